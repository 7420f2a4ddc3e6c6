// A model on several ranks against the same model on one: the same log-probabilities to the bit, the slices of its
// gradients to rounding, and exactly the traffic that the closed forms say.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "collective/in_process/in_process_group.h"
#include "collective/in_process/run_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/random_case.h"
#include "model/tensor_parallel.h"
#include "model/transformer/transformer.h"

namespace leeway {
namespace {

using internal::NextTokenPositions;
using internal::OddShape;
using internal::RandomSequences;
using internal::SameBits;
using internal::SmallShape;
using internal::SpreadParameters;
using internal::Stream;

struct Problem {
  ModelShape shape;
  PackedSequences sequences;
  std::vector<ScoredPosition> positions;
  std::vector<std::vector<int32_t>> legal_sets;
  std::vector<double> for_logprobs;
  std::vector<double> for_entropies;
};

// Legal sets that leave whole shards without an allowed token, temperatures, a row that is scored twice.
Problem MakeProblem(const ModelShape& shape, const std::vector<int64_t>& lengths) {
  Problem problem{.shape = shape, .sequences = RandomSequences(shape, lengths, 31)};
  problem.positions = NextTokenPositions(problem.sequences);
  if (!problem.positions.empty()) problem.positions.push_back(problem.positions.front());
  problem.legal_sets = {{0, 2, 4, 9, 17, 30, 50}, {11}, {1, 2, 3}};
  RandomStream stream = Stream(32);
  for (size_t i = 0; i < problem.positions.size(); ++i) {
    ScoredPosition& position = problem.positions[i];
    if (i % 3 == 1) position.temperature = 0.8f;
    if (i % 4 == 2) {
      position.legal_set = static_cast<int32_t>(stream.NextBelow(problem.legal_sets.size()));
      position.target = problem.legal_sets[position.legal_set].back();
    }
    problem.for_logprobs.push_back(stream.NextNormal());
    problem.for_entropies.push_back(stream.NextNormal());
  }
  return problem;
}

template <typename Real>
struct Outcome {
  PositionScores<Real> scores;
  std::vector<Real> gradients;
  CollectiveCounters forward;
  CollectiveCounters all;
};

template <typename Real>
absl::StatusOr<Outcome<Real>> Compute(const Problem& problem, absl::Span<const Real> flat, int threads,
                                      const TensorParallel& tensor_parallel) {
  ParallelFor parallel(threads);
  Transformer<Real> model(problem.shape, &parallel, {.tensor_parallel = tensor_parallel});
  model.SetParameters(flat);
  Outcome<Real> outcome;
  LEEWAY_RETURN_IF_ERROR(model.Score(problem.sequences, problem.positions, problem.legal_sets, true, &outcome.scores));
  if (tensor_parallel.ranks != nullptr) outcome.forward = tensor_parallel.ranks->counters();
  outcome.gradients.assign(flat.size(), Real(0));
  LEEWAY_RETURN_IF_ERROR(model.Backward(std::vector<Real>(problem.for_logprobs.begin(), problem.for_logprobs.end()),
                                        std::vector<Real>(problem.for_entropies.begin(), problem.for_entropies.end()),
                                        absl::MakeSpan(outcome.gradients)));
  if (tensor_parallel.ranks != nullptr) outcome.all = tensor_parallel.ranks->counters();
  return outcome;
}

template <typename Real>
std::vector<Outcome<Real>> ComputeOnRanks(const Problem& problem, const std::vector<Real>& flat, int size,
                                          bool sequence) {
  std::vector<Outcome<Real>> outcomes(static_cast<size_t>(size));
  const std::vector<absl::Status> statuses =
      RunRanks(size, absl::Seconds(60), [&](int rank, Communicator* ranks) -> absl::Status {
        std::vector<Real> shard(static_cast<size_t>(TensorShard(problem.shape, rank, size).ParameterCount()));
        CopyToShard<Real>(TensorShardSlices(problem.shape, rank, size), flat, absl::MakeSpan(shard));
        // Threads differ between ranks: they change no bit.
        LEEWAY_ASSIGN_OR_RETURN(outcomes[rank],
                                Compute<Real>(problem, shard, 1 + rank % 2, {.ranks = ranks, .sequence = sequence}));
        return absl::OkStatus();
      });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  return outcomes;
}

ModelShape Shape(bool tied, int64_t head_dim, ModelFamily family = ModelFamily::kLlama) {
  ModelShape shape = OddShape();
  shape.family = family;
  shape.heads = 8;
  shape.key_value_heads = 4;
  shape.head_dim = head_dim;
  shape.tied_head = tied;
  return shape;
}

struct Case {
  ModelShape shape;
  std::vector<int64_t> lengths;
  int size;
  bool sequence;
};

void PrintTo(const Case& c, std::ostream* out) {
  PrintTo(c.shape, out);
  *out << ", " << c.size << " ranks" << (c.sequence ? ", sequence parallel" : "") << ", " << c.lengths.size()
       << " sequences";
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const ModelShape& shape : {Shape(true, 10), Shape(false, 16), SmallShape(),
                                  Shape(false, 10, ModelFamily::kQwen2), Shape(true, 16, ModelFamily::kQwen3)}) {
    for (const int size : {1, 2, 4}) {
      for (const bool sequence : {false, true}) {
        // Skewed lengths and an empty sequence; fewer rows than ranks.
        cases.push_back({shape, {3, 19, 0, 1, 40, 7}, size, sequence});
        cases.push_back({shape, {3}, size, sequence});
      }
    }
  }
  return cases;
}

class TensorParallelTransformerTest : public ::testing::TestWithParam<Case> {
 public:
  template <typename Real>
  void EqualsOneRank(double tolerance) {
    const Problem problem = MakeProblem(GetParam().shape, GetParam().lengths);
    const std::vector<Real> flat = SpreadParameters<Real>(problem.shape, 33);
    const absl::StatusOr<Outcome<Real>> one = Compute<Real>(problem, flat, 2, {});
    ASSERT_TRUE(one.ok()) << one.status();
    const std::vector<Outcome<Real>> ranks = ComputeOnRanks(problem, flat, GetParam().size, GetParam().sequence);
    const std::vector<ParameterInfo> layout = ParameterLayout(problem.shape);
    for (int rank = 0; rank < GetParam().size; ++rank) {
      EXPECT_TRUE(SameBits(ranks[rank].scores.logprobs, one->scores.logprobs)) << "rank " << rank;
      EXPECT_TRUE(SameBits(ranks[rank].scores.entropies, one->scores.entropies)) << "rank " << rank;
      const std::vector<ShardSlice> slices = TensorShardSlices(problem.shape, rank, GetParam().size);
      for (size_t i = 0; i < layout.size(); ++i) {
        const auto whole = absl::MakeConstSpan(one->gradients).subspan(layout[i].offset, layout[i].element_count);
        double largest = 0;
        for (const Real value : whole) largest = std::max<double>(largest, std::abs(value));
        const ShardSlice& slice = slices[i];
        double error = 0;
        for (int64_t e = 0; e < slice.rows * slice.columns; ++e) {
          const Real expected =
              one->gradients[slice.whole_offset + e / slice.columns * slice.whole_stride + e % slice.columns];
          error = std::max<double>(error, std::abs(ranks[rank].gradients[slice.shard_offset + e] - expected));
        }
        EXPECT_LE(error, tolerance * largest) << layout[i].name << " on rank " << rank;
        if (!IsReplicated(layout[i])) continue;
        EXPECT_EQ(std::memcmp(&ranks[rank].gradients[slice.shard_offset],
                              &ranks[0].gradients[TensorShardSlices(problem.shape, 0, GetParam().size)[i].shard_offset],
                              static_cast<size_t>(slice.rows) * sizeof(Real)),
                  0)
            << layout[i].name << " differs between ranks 0 and " << rank;
      }
    }
  }
};

TEST_P(TensorParallelTransformerTest, DoubleEqualsOneRank) { EqualsOneRank<double>(1e-13); }
TEST_P(TensorParallelTransformerTest, FloatEqualsOneRank) { EqualsOneRank<float>(5e-6); }

INSTANTIATE_TEST_SUITE_P(Layouts, TensorParallelTransformerTest, ::testing::ValuesIn(Cases()));

// Volumes per rank in elements: a sum over ranks moves 2 n (t-1)/t, a gather or scatter n (t-1)/t.
int64_t Sent(const CollectiveCounters& counters) {
  int64_t bytes = 0;
  for (const CollectiveCounters::PerOperation& operation : counters.operations) bytes += operation.bytes_sent;
  return bytes / static_cast<int64_t>(sizeof(double));
}

class TensorParallelVolumeTest : public ::testing::TestWithParam<ModelFamily> {};

TEST_P(TensorParallelVolumeTest, EqualsTheClosedForms) {
  ModelShape shape = SmallShape();
  shape.family = GetParam();
  shape.layers = 3;
  Problem problem = MakeProblem(shape, {16, 40, 8});
  const std::vector<double> flat = SpreadParameters<double>(shape, 34);
  const int64_t rows = 64;
  const int64_t positions = static_cast<int64_t>(problem.positions.size()) / 4 * 4;
  problem.positions.resize(positions);
  problem.for_logprobs.resize(positions);
  problem.for_entropies.resize(positions);
  const int64_t stream = rows * shape.hidden;  // b s h
  for (const int64_t t : {2, 4}) {
    const auto share = [t](int64_t elements) { return elements * (t - 1) / t; };
    // Embedding; per layer two sums; the head's maximum, and three sums a position.
    const int64_t head = 2 * share(positions) + 2 * share(3 * positions);
    const int64_t forward = 2 * share(stream) + shape.layers * 4 * share(stream) + head;
    // Per layer two sums; the gradient of the scored rows; those of norms over heads, of which each rank has its own.
    const int64_t head_norms = GetParam() == ModelFamily::kQwen3 ? shape.layers * 2 * share(2 * shape.head_dim) : 0;
    const int64_t backward = shape.layers * 4 * share(stream) + 2 * share(positions * shape.hidden) + head_norms;
    for (const Outcome<double>& rank : ComputeOnRanks(problem, flat, static_cast<int>(t), false)) {
      EXPECT_EQ(Sent(rank.forward), forward);
      EXPECT_EQ(Sent(rank.all), forward + backward);
      EXPECT_EQ(rank.all.of(Collective::kAllGather).calls + rank.all.of(Collective::kReduceScatter).calls, 0);
    }
    // With sequence parallelism a sum becomes a scatter and a gather, so forward moves the same, but that the head
    // needs all rows; backward gathers each norm's output again, and the embedding's gradient; the norms' are summed.
    const int64_t again = 2 * shape.layers * share(stream) + share(stream) + 2 * share(2 * shape.layers * shape.hidden);
    for (const Outcome<double>& rank : ComputeOnRanks(problem, flat, static_cast<int>(t), true)) {
      EXPECT_EQ(Sent(rank.forward), forward);
      EXPECT_EQ(Sent(rank.all), forward + backward + again);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TensorParallelVolumeTest,
                         ::testing::Values(ModelFamily::kLlama, ModelFamily::kQwen2, ModelFamily::kQwen3));

TEST(TensorParallelFailureTest, ALostRankEndsTheCall) {
  const Problem problem = MakeProblem(SmallShape(), {9, 4});
  const std::vector<double> flat = SpreadParameters<double>(problem.shape, 35);
  InProcessGroup group(2, "tensor_parallel", absl::Seconds(60));
  group.Take(1).reset();
  const std::unique_ptr<Communicator> ranks = group.Take(0);
  std::vector<double> shard(static_cast<size_t>(TensorShard(problem.shape, 0, 2).ParameterCount()));
  CopyToShard<double>(TensorShardSlices(problem.shape, 0, 2), flat, absl::MakeSpan(shard));
  const absl::Status status = Compute<double>(problem, shard, 1, {.ranks = ranks.get()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("rank 1"));
}

}  // namespace
}  // namespace leeway
