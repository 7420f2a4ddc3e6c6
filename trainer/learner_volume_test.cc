// What the ranks send in a whole train step, against the closed forms (parallel/sharding_options.h; of tensor
// parallelism: Shoeybi et al., arXiv 1909.08053).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "model/tensor_parallel.h"
#include "trainer/fake_rollout.h"
#include "trainer/learner.h"
#include "trainer/parallel/run_mesh_test.h"

namespace leeway {
namespace {

using internal::RunMesh;

// Rows of activations are whole vectors of 16, and four ranks cut all parameters evenly.
ModelShape Shape(bool tied_head) {
  return {.vocabulary = 64,
          .hidden = 32,
          .layers = 3,
          .heads = 4,
          .key_value_heads = 4,
          .head_dim = 16,
          .intermediate = 64,
          .max_positions = 32,
          .tied_head = tied_head};
}

constexpr int64_t kGroups = 4;
constexpr int64_t kMembers = 3;
constexpr int64_t kSequences = kGroups * kMembers;
// Of an episode of FakeRollout: the tokens up to the last one that predicts a trained one, and the trained ones.
constexpr int64_t kRows = 9;
constexpr int64_t kPositions = 5;

// Bytes that one rank sent to the ranks of one group, by operation.
struct Traffic {
  int64_t all_reduce = 0;
  int64_t reduce_scatter = 0;
  int64_t all_gather = 0;
  int64_t send = 0;
  int64_t other = 0;

  void Add(const Communicator& ranks, int64_t sign) {
    const CollectiveCounters counters = ranks.counters();
    for (int c = 0; c < kCollectiveCount; ++c) {
      const auto collective = static_cast<Collective>(c);
      int64_t* to = &other;
      if (collective == Collective::kAllReduce) to = &all_reduce;
      if (collective == Collective::kReduceScatter) to = &reduce_scatter;
      if (collective == Collective::kAllGather) to = &all_gather;
      if (collective == Collective::kSend) to = &send;
      *to += sign * counters.of(collective).bytes_sent;
    }
  }
  friend bool operator==(const Traffic&, const Traffic&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Traffic& traffic) {
    return out << "all-reduce " << traffic.all_reduce << ", reduce-scatter " << traffic.reduce_scatter
               << ", all-gather " << traffic.all_gather << ", send " << traffic.send << ", other " << traffic.other;
  }
};

struct StepTraffic {
  Traffic data;
  Traffic tensor;
  Traffic world;
  void Add(const Mesh& mesh, int64_t sign) {
    data.Add(*mesh.data(), sign);
    data.Add(*mesh.data_gather(), sign);
    tensor.Add(*mesh.tensor(), sign);
    world.Add(*mesh.world(), sign);
  }
};

struct Case {
  ModelShape shape;
  MeshShape mesh;
  ShardingOptions sharding;
  bool sequence_parallel = false;
  int64_t micro_batches = 1;  // of each rank
};

// Trains one step and hands what each rank sent in it to `check`.
void Train(const Case& c, const std::function<void(const Mesh& mesh, const StepTraffic& traffic)>& check) {
  ParallelFor parallel(1);
  FakeRollout rollout(c.shape, &parallel);
  v1::WeightsVersion weights;
  weights.set_lineage(1);
  weights.set_version(1);
  const std::vector<float> initial = RandomParameters(c.shape, 91);
  rollout.SetWeights(weights, initial);
  const LeasedBatch batch = rollout.Batch(1, kGroups, kMembers);
  TrainerOptions options;
  options.model = c.shape;
  options.mesh = c.mesh;
  options.sequence_parallel = c.sequence_parallel;
  options.sharding = c.sharding;
  options.micro_batch_tokens = kSequences / c.mesh.data / c.micro_batches * kRows;
  const absl::Status status = RunMesh(c.mesh, [&](const Mesh& mesh) -> absl::Status {
    ParallelFor own(1);
    LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Learner> learner, Learner::Create(options, &mesh, &own));
    LEEWAY_RETURN_IF_ERROR(learner->Reset(initial));
    StepTraffic traffic;
    traffic.Add(mesh, -1);
    StepReport report;
    LEEWAY_RETURN_IF_ERROR(learner->Train(1, batch, &report));
    traffic.Add(mesh, 1);
    EXPECT_EQ(report.updates, 1);
    EXPECT_EQ(static_cast<int64_t>(learner->batch().micro_batches.size()), c.micro_batches);
    check(mesh, traffic);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

int64_t Half(int64_t elements, int64_t element_bytes, int n) { return elements * element_bytes / n * (n - 1); }
int64_t AllReduce(int64_t elements, int64_t element_bytes, int n) { return 2 * Half(elements, element_bytes, n); }

// Beside the gradients: the step's seven sums, and every position's log-probability at the step's weights.
int64_t Scalars(int n) {
  return RingBytesSent(Collective::kAllReduce, 7 * 8, n) +
         RingBytesSent(Collective::kAllReduce, kSequences * kPositions * 8, n);
}

TEST(LearnerVolumeTest, DataParallelRanksSendTwoOrThreeTimesTheParameters) {
  for (const bool tied : {true, false}) {
    const ModelShape shape = Shape(tied);
    const int64_t psi = shape.ParameterCount();
    int64_t layers = 0;
    for (const ParameterInfo& parameter : ParameterLayout(shape)) {
      if (parameter.name.find("layers.") != std::string::npos) layers += parameter.element_count;
    }
    for (const int n : {2, 4}) {
      for (const int64_t k : {1, 3}) {
        const auto expect = [&](const ShardingOptions& sharding, Traffic expected) {
          expected.all_reduce += Scalars(n);
          Train({shape, {.data = n}, sharding, false, k}, [&](const Mesh& mesh, const StepTraffic& traffic) {
            const std::string where = absl::StrCat("stage ", sharding.zero_stage, " of ", n, " ranks, ", k,
                                                   " micro-batches, rank ", mesh.world()->rank());
            EXPECT_EQ(traffic.data, expected) << where;
            EXPECT_EQ(traffic.tensor, Traffic()) << where;
            // The norm.
            EXPECT_EQ(traffic.world, Traffic{.all_reduce = RingBytesSent(Collective::kAllReduce, 8, n)}) << where;
          });
        };
        expect({.zero_stage = 0}, {.all_reduce = AllReduce(psi, 4, n)});
        expect({.zero_stage = 1}, {.reduce_scatter = Half(psi, 4, n), .all_gather = Half(psi, 4, n)});
        expect({.zero_stage = 2}, {.reduce_scatter = k * Half(psi, 4, n), .all_gather = Half(psi, 4, n)});
        // The layers forward and backward, embedding and head once; once more everything, for rank 0 to publish.
        const int64_t gathered = k * (Half(psi, 4, n) + Half(layers, 4, n)) + Half(psi, 4, n);
        expect({.zero_stage = 3}, {.reduce_scatter = k * Half(psi, 4, n), .all_gather = gathered});
        expect({.zero_stage = 3, .reduce_once = true}, {.reduce_scatter = Half(psi, 4, n), .all_gather = gathered});
      }
    }
  }
}

TEST(LearnerVolumeTest, TensorParallelRanksSendEightActivationsALayer) {
  const ModelShape shape = Shape(true);
  for (const MeshShape mesh_shape : {MeshShape{1, 2}, MeshShape{1, 4}, MeshShape{2, 2}}) {
    const int t = mesh_shape.tensor;
    const int n = mesh_shape.data;
    const int64_t share = TensorShard(shape, 0, t).ParameterCount();
    // Of all micro-batches of one data-parallel rank.
    const int64_t stream = kSequences / n * kRows * shape.hidden;
    const int64_t positions = kSequences / n * kPositions;
    // A layer's four sums are 8 b s h (t-1)/t elements; beside them the embedding's, four numbers of each scored
    // position and the gradient of its row.
    const int64_t layer = 8 * stream * (t - 1) / t;
    const int64_t sums = 4 * shape.layers * layer + AllReduce(stream, 4, t) + AllReduce(4 * positions, 4, t) +
                         AllReduce(positions * shape.hidden, 4, t);
    for (const int64_t k : {1, 3}) {
      for (const int zero_stage : {1, 3}) {
        Train({shape, mesh_shape, {.zero_stage = zero_stage}, false, k},
              [&](const Mesh& mesh, const StepTraffic& traffic) {
                const std::string where = absl::StrCat(n, " x ", t, ", stage ", zero_stage, ", ", k,
                                                       " micro-batches, rank ", mesh.world()->rank());
                // Rank 0 publishes whole parameters: the first copy's ranks hand theirs over.
                const int64_t handed = mesh.data_rank() == 0 && mesh.tensor_rank() > 0 ? share * 4 : 0;
                EXPECT_EQ(traffic.tensor, (Traffic{.all_reduce = sums, .send = handed})) << where;
                if (n == 1) return;
                EXPECT_EQ(traffic.data.reduce_scatter, (zero_stage == 3 ? k : 1) * Half(share, 4, n)) << where;
                EXPECT_EQ(traffic.data.all_reduce, Scalars(n)) << where;
              });
      }
    }
    // With sequence parallelism each sum becomes a scatter and a gather of as many bytes. Backward gathers the two
    // norms' outputs of a layer again, and the embedding's gradient; the norms' own gradients are summed.
    const int64_t again = Half((2 * shape.layers + 1) * stream, 4, t);
    const int64_t norms = AllReduce(2 * shape.layers * shape.hidden, 4, t);
    Train({shape, mesh_shape, {.zero_stage = 1}, true, 1}, [&](const Mesh&, const StepTraffic& traffic) {
      EXPECT_EQ(traffic.tensor.all_reduce + traffic.tensor.reduce_scatter + traffic.tensor.all_gather,
                sums + again + norms)
          << n << " x " << t;
      EXPECT_EQ(traffic.tensor.other, 0);
    });
  }
}

}  // namespace
}  // namespace leeway
