#include "trainer/optimizer/sgd.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;

TEST(SgdTest, TwoUpdatesByHand) {
  OptimizerOptions options;
  options.weight_decay = 0.5;
  const ParameterInfo matrix{"m", {2, 1}, 0, 2};
  const ParameterInfo norm{"n", {1}, 2, 1};
  Sgd<double> sgd(options, std::vector<OptimizerPart>{{matrix, 0, 2}, {norm, 0, 1}});
  std::vector<double> values = {1, -2, 4};
  const std::vector<double> gradients = {8, 0, 1};
  for (int i = 0; i < 2; ++i) {
    sgd.Begin(/*learning_rate=*/0.5, /*gradient_scale=*/0.25);
    ASSERT_TRUE(sgd.Update(std::vector<PartUpdate<double>>{{0, &gradients[0], &values[0]}}).ok());
    ASSERT_TRUE(sgd.Update(std::vector<PartUpdate<double>>{{1, &gradients[2], &values[2]}}).ok());
  }
  // Matrices: 3/4 of the value less 1/8 of the gradient, twice; norms do not decay.
  EXPECT_THAT(values, ElementsAre((1 * 0.75 - 1) * 0.75 - 1, -2 * 0.75 * 0.75, 4 - 0.25));
  EXPECT_EQ(sgd.updates(), 2);
  EXPECT_EQ(sgd.state_bytes(), 0);
}

}  // namespace
}  // namespace leeway
