#include "trainer/optimizer/muon.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/optimizer/newton_schulz.h"

namespace leeway {
namespace {

const ParameterInfo kEmbedding{"model.embed_tokens.weight", {5, 4}, 0, 20};
const ParameterInfo kNorm{"model.layers.0.input_layernorm.weight", {4}, 20, 4};
const ParameterInfo kTall{"model.layers.0.mlp.gate_proj.weight", {6, 4}, 24, 24};
const ParameterInfo kWide{"model.layers.0.mlp.down_proj.weight", {4, 6}, 48, 24};
const ParameterInfo kHead{"lm_head.weight", {5, 4}, 72, 20};

std::vector<OptimizerPart> Parts() {
  return {{kEmbedding, 0, 20}, {kNorm, 0, 4}, {kTall, 0, 24}, {kWide, 0, 24}, {kHead, 0, 20}};
}
std::vector<SharedMatrix> Matrices() { return {{2, 6, 4, {{0, 6, 0, 4}}}, {3, 4, 6, {{0, 4, 0, 6}}}}; }

double Value(int i, int step) { return std::sin(0.7 * i + 1.3 * step); }

template <typename Real>
std::vector<Real> Train(Optimizer<Real>* optimizer) {
  std::vector<Real> parameters(92), gradients(92);
  for (int i = 0; i < 92; ++i) parameters[i] = static_cast<Real>(Value(i, 0));
  for (int step = 1; step <= 10; ++step) {
    for (int i = 0; i < 92; ++i) gradients[i] = static_cast<Real>(Value(i, step));
    optimizer->Begin(0.01 * step, 0.5);
    std::vector<PartUpdate<Real>> updates;
    const std::vector<OptimizerPart> parts = Parts();
    for (int64_t p = 4; p >= 0; --p) {
      const int64_t offset = parts[static_cast<size_t>(p)].parameter.offset;
      updates.push_back({p, gradients.data() + offset, parameters.data() + offset});
    }
    EXPECT_TRUE(optimizer->Update(updates).ok());
  }
  return parameters;
}

TEST(MuonTest, MatricesFollowTheFormulaAndTheRestIsAdamWs) {
  OptimizerOptions options;
  options.kind = OptimizerKind::kMuon;
  options.weight_decay = 0.1;
  options.momentum = 0.9;
  ParallelFor parallel(1);
  Muon<double> muon(options, Parts(), Matrices(), nullptr, &parallel);
  const std::vector<double> actual = Train(&muon);
  BasicAdamW<double> adamw(options, Parts(), &parallel);
  const std::vector<double> others = Train(&adamw);

  for (const auto& [info, rows, columns] : {std::tuple(kTall, 6, 4), std::tuple(kWide, 4, 6)}) {
    const int begin = static_cast<int>(info.offset);
    std::vector<double> weights(24), momentum(24, 0.0), direction(24);
    for (int i = 0; i < 24; ++i) weights[i] = Value(begin + i, 0);
    for (int step = 1; step <= 10; ++step) {
      for (int i = 0; i < 24; ++i) {
        const double gradient = 0.5 * Value(begin + i, step);
        momentum[i] = 0.9 * momentum[i] + gradient;
        direction[i] = gradient + 0.9 * momentum[i];
      }
      Orthogonalise(rows, columns, direction.data(), &parallel);
      for (int i = 0; i < 24; ++i) {
        weights[i] -= 0.01 * step * 0.1 * weights[i];
        weights[i] -= 0.01 * step * 0.2 * std::sqrt(6.0) * direction[i];
      }
    }
    for (int i = 0; i < 24; ++i) EXPECT_NEAR(actual[begin + i], weights[i], 1e-9);
  }
  for (int i = 0; i < 92; ++i) {
    const bool is_in_matrix = i >= 24 && i < 72;
    EXPECT_EQ(actual[i] == others[i], !is_in_matrix) << i;
  }
}

TEST(MuonTest, StateIsHalfOfAdamWsForMatrices) {
  OptimizerOptions options;
  ParallelFor parallel(1);
  Muon<float> muon(options, Parts(), Matrices(), nullptr, &parallel);
  EXPECT_EQ(muon.state_bytes(), 4 * (48 + 2 * 44));
  EXPECT_EQ(OptimizerStateElements(OptimizerKind::kMuon, Parts()), 48 + 2 * 44);
  EXPECT_EQ(OptimizerStateElements(OptimizerKind::kAdamW, Parts()), 2 * 92);
  std::vector<std::string> names;
  for (const PartState<float>& state : muon.PartStates()) {
    names.push_back(std::to_string(state.part) + " " + state.name);
    EXPECT_EQ(static_cast<int64_t>(state.values.size()), Parts()[static_cast<size_t>(state.part)].count);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("2 momentum", "3 momentum", "0 first_moment", "0 second_moment",
                                            "1 first_moment", "1 second_moment", "4 first_moment", "4 second_moment"));
}

TEST(MuonTest, StateContinuesToTheSameBits) {
  OptimizerOptions options;
  ParallelFor parallel(1);
  Muon<float> first(options, Parts(), Matrices(), nullptr, &parallel);
  Train(&first);
  Muon<float> second(options, Parts(), Matrices(), nullptr, &parallel);
  const std::vector<PartState<float>> from = first.PartStates(), to = second.PartStates();
  for (size_t i = 0; i < from.size(); ++i) {
    std::copy(from[i].values.begin(), from[i].values.end(), to[i].values.begin());
  }
  second.set_updates(first.updates());
  EXPECT_EQ(second.updates(), 10);
  EXPECT_EQ(Train(&first), Train(&second));
}

}  // namespace
}  // namespace leeway
