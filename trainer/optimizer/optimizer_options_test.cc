#include "trainer/optimizer/optimizer_options.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(OptimizerProblemsTest, ListsEverythingAtOnce) {
  EXPECT_TRUE(OptimizerProblems(OptimizerOptions()).empty());
  OptimizerOptions options;
  options.schedule.peak = -1;
  options.schedule.kind = ScheduleKind::kCosine;
  options.schedule.warmup_steps = 10;
  options.schedule.total_steps = 10;
  options.beta1 = 1;
  options.max_grad_norm = NAN;
  options.momentum = 1;
  std::vector<std::string> keys;
  for (const ConfigProblem& problem : OptimizerProblems(options)) keys.push_back(problem.key);
  EXPECT_THAT(keys, ::testing::ElementsAre("optimizer.learning_rate", "optimizer.warmup_steps", "optimizer.beta1",
                                           "optimizer.max_grad_norm", "optimizer.momentum"));
}

TEST(OptimizerKindTest, Names) {
  EXPECT_EQ(*ParseOptimizerKind("adamw"), OptimizerKind::kAdamW);
  EXPECT_EQ(*ParseOptimizerKind("muon"), OptimizerKind::kMuon);
  EXPECT_EQ(ParseOptimizerKind("adam").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(OptimizerKindNames(), ::testing::ElementsAre("adamw", "muon", "sgd"));
}

}  // namespace
}  // namespace leeway
