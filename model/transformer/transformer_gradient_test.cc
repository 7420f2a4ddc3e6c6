#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/random_case.h"
#include "model/transformer/transformer.h"

namespace leeway {
namespace {

using internal::NextTokenPositions;
using internal::OddQwen2Shape;
using internal::OddShape;
using internal::RandomSequences;
using internal::RandomShapes;
using internal::SmallShape;
using internal::SpreadParameters;
using internal::Stream;
using internal::TiedQwen3Shape;

struct Problem {
  ModelShape shape;
  PackedSequences sequences;
  std::vector<ScoredPosition> positions;
  std::vector<std::vector<int32_t>> legal_sets;
  std::vector<double> for_logprobs;
  std::vector<double> for_entropies;
};

Problem MakeProblem(const ModelShape& shape, const std::vector<int64_t>& lengths) {
  Problem problem{.shape = shape, .sequences = RandomSequences(shape, lengths, 21)};
  problem.positions = NextTokenPositions(problem.sequences);
  problem.legal_sets = {{0, 2, 4, 9, 17, 30}};
  // One row scored twice, with another target and temperature.
  problem.positions.push_back(problem.positions[problem.positions.size() / 2]);
  problem.positions.back().target = 1;
  RandomStream stream = Stream(22);
  for (size_t i = 0; i < problem.positions.size(); ++i) {
    if (i % 3 == 1) problem.positions[i].temperature = 0.8f;
    if (i % 4 == 2) {
      problem.positions[i].legal_set = 0;
      problem.positions[i].target = 9;
    }
    problem.for_logprobs.push_back(stream.NextNormal());
    problem.for_entropies.push_back(stream.NextNormal());
  }
  return problem;
}

template <typename Real>
double Objective(const Problem& problem, Transformer<Real>* model, const std::vector<Real>& flat) {
  model->SetParameters(flat);
  PositionScores<Real> scores;
  EXPECT_TRUE(model->Score(problem.sequences, problem.positions, problem.legal_sets, false, &scores).ok());
  double sum = 0;
  for (size_t i = 0; i < scores.logprobs.size(); ++i) {
    sum += problem.for_logprobs[i] * scores.logprobs[i] + problem.for_entropies[i] * scores.entropies[i];
  }
  return sum;
}

template <typename Real>
std::vector<Real> Gradient(const Problem& problem, const std::vector<Real>& flat, int threads = 2) {
  ParallelFor parallel(threads);
  Transformer<Real> model(problem.shape, &parallel);
  model.SetParameters(flat);
  PositionScores<Real> scores;
  EXPECT_TRUE(model.Score(problem.sequences, problem.positions, problem.legal_sets, true, &scores).ok());
  std::vector<Real> gradients(flat.size(), 0);
  EXPECT_TRUE(model
                  .Backward(std::vector<Real>(problem.for_logprobs.begin(), problem.for_logprobs.end()),
                            std::vector<Real>(problem.for_entropies.begin(), problem.for_entropies.end()),
                            absl::MakeSpan(gradients))
                  .ok());
  return gradients;
}

double Norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

ModelShape TiedShape() {
  ModelShape shape = OddShape();
  shape.tied_head = true;
  shape.head_dim = 16;
  shape.key_value_heads = 4;
  return shape;
}

class GradientTest : public ::testing::TestWithParam<ModelShape> {};

TEST_P(GradientTest, EqualsCentralDifferencesInEveryTensor) {
  const Problem problem = MakeProblem(GetParam(), {3, 19, 1, 7});
  const std::vector<double> flat = SpreadParameters<double>(problem.shape, 23);
  const std::vector<double> gradient = Gradient(problem, flat);
  ParallelFor parallel(1);
  Transformer<double> model(problem.shape, &parallel);
  RandomStream stream = Stream(24);
  for (const ParameterInfo& info : ParameterLayout(problem.shape)) {
    // Along a random direction of the whole tensor, and along a few single parameters.
    std::vector<std::vector<double>> directions(4, std::vector<double>(static_cast<size_t>(info.element_count), 0.0));
    for (double& value : directions[0])
      value = stream.NextNormal() / std::sqrt(static_cast<double>(info.element_count));
    for (size_t i = 1; i < directions.size(); ++i)
      directions[i][stream.NextBelow(static_cast<uint64_t>(info.element_count))] = 1;
    for (const std::vector<double>& direction : directions) {
      double expected = 0;
      for (int64_t i = 0; i < info.element_count; ++i) expected += direction[i] * gradient[info.offset + i];
      constexpr double kStep = 1e-5;
      std::vector<double> moved = flat;
      for (int64_t i = 0; i < info.element_count; ++i)
        moved[info.offset + i] = flat[info.offset + i] + kStep * direction[i];
      const double above = Objective(problem, &model, moved);
      for (int64_t i = 0; i < info.element_count; ++i)
        moved[info.offset + i] = flat[info.offset + i] - kStep * direction[i];
      const double below = Objective(problem, &model, moved);
      const double difference = (above - below) / (2 * kStep);
      EXPECT_NEAR(difference, expected, 2e-6 * (1 + std::abs(expected))) << info.name;
    }
  }
}

TEST_P(GradientTest, FloatIsNearDouble) {
  const Problem problem = MakeProblem(GetParam(), {3, 19, 1, 40, 7});
  const std::vector<double> exact = Gradient(problem, SpreadParameters<double>(problem.shape, 25));
  const std::vector<float> rounded = Gradient(problem, SpreadParameters<float>(problem.shape, 25));
  std::vector<double> error(exact.size());
  for (size_t i = 0; i < exact.size(); ++i) error[i] = exact[i] - static_cast<double>(rounded[i]);
  EXPECT_LT(Norm(error), 5e-6 * Norm(exact));
}

TEST_P(GradientTest, PackingDoesNotMatter) {
  const Problem together = MakeProblem(GetParam(), {5, 30, 2, 11});
  const std::vector<double> flat = SpreadParameters<double>(together.shape, 26);
  const std::vector<double> expected = Gradient(together, flat);
  std::vector<double> sum(flat.size(), 0.0);
  for (int64_t s = 0; s < together.sequences.sequence_count(); ++s) {
    const int64_t begin = together.sequences.starts[s];
    const int64_t end = together.sequences.starts[s + 1];
    Problem alone{.shape = together.shape, .legal_sets = together.legal_sets};
    alone.sequences.tokens.assign(together.sequences.tokens.begin() + begin, together.sequences.tokens.begin() + end);
    alone.sequences.starts.push_back(end - begin);
    for (size_t i = 0; i < together.positions.size(); ++i) {
      if (together.positions[i].row < begin || together.positions[i].row >= end) continue;
      alone.positions.push_back(together.positions[i]);
      alone.positions.back().row -= begin;
      alone.for_logprobs.push_back(together.for_logprobs[i]);
      alone.for_entropies.push_back(together.for_entropies[i]);
    }
    const std::vector<double> part = Gradient(alone, flat);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  for (size_t i = 0; i < sum.size(); ++i) sum[i] -= expected[i];
  EXPECT_LT(Norm(sum), 1e-12 * Norm(expected));
}

INSTANTIATE_TEST_SUITE_P(Shapes, GradientTest,
                         ::testing::Values(OddShape(), TiedShape(), SmallShape(), OddQwen2Shape(), TiedQwen3Shape()));
INSTANTIATE_TEST_SUITE_P(RandomShapes, GradientTest, ::testing::ValuesIn(RandomShapes(6)));

TEST(GradientTest, AddsToWhatIsThere) {
  const Problem problem = MakeProblem(SmallShape(), {9, 4});
  const std::vector<double> flat = SpreadParameters<double>(problem.shape, 27);
  const std::vector<double> once = Gradient(problem, flat);
  ParallelFor parallel(1);
  Transformer<double> model(problem.shape, &parallel);
  model.SetParameters(flat);
  PositionScores<double> scores;
  ASSERT_TRUE(model.Score(problem.sequences, problem.positions, problem.legal_sets, true, &scores).ok());
  std::vector<double> twice(flat.size(), 0.0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(model.Backward(problem.for_logprobs, problem.for_entropies, absl::MakeSpan(twice)).ok());
  }
  for (size_t i = 0; i < twice.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], 1e-12 * (1 + std::abs(once[i])));
}

TEST(GradientTest, LargeVocabularyGoesThroughTheHeadInChunks) {
  // 40,009 columns leave 128 rows a chunk: 300 scored positions take three.
  ModelShape shape = SmallShape();
  shape.vocabulary = 40009;
  shape.hidden = 16;
  shape.layers = 1;
  Problem problem = MakeProblem(shape, {64, 64, 64, 64, 50});
  const std::vector<float> rounded = Gradient(problem, SpreadParameters<float>(shape, 28));
  const std::vector<double> exact = Gradient(problem, SpreadParameters<double>(shape, 28));
  std::vector<double> error(exact.size());
  for (size_t i = 0; i < exact.size(); ++i) error[i] = exact[i] - static_cast<double>(rounded[i]);
  EXPECT_LT(Norm(error), 5e-6 * Norm(exact));
}

}  // namespace
}  // namespace leeway
