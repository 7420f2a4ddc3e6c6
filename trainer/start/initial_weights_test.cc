#include "trainer/start/initial_weights.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/model_files.h"
#include "model/transformer/transformer.h"
#include "trainer/fake_rollout.h"
#include "trainer/temporary_directory_test.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TrainerOptions Options() {
  TrainerOptions options;
  options.seed = 5;
  options.model = TinyShape();
  return options;
}

TEST(InitialWeightsTest, WithoutADirectoryTheyComeFromTheSeed) {
  const auto weights = InitialWeights(Options());
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(*weights, RandomParameters(TinyShape(), 5));
  EXPECT_NE(*weights, RandomParameters(TinyShape(), 6));
}

TEST(InitialWeightsTest, ADirectoryGivesItsOwnBitsIfItsModelFits) {
  const TemporaryDirectory folder;
  const std::string path = JoinPath(folder.path(), "model");
  ModelDirectory directory;
  directory.shape = TinyShape();
  directory.parameters = RandomParameters(TinyShape(), 123);
  ASSERT_TRUE(WriteModelDirectory(RealFileSystem(), path, directory).ok());
  TrainerOptions options = Options();
  options.model_directory = path;
  const auto weights = InitialWeights(options);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(*weights, directory.parameters);

  options.model.layers = 3;
  options.model.family = ModelFamily::kQwen2;
  options.model.max_positions = 1 << 20;
  const absl::Status status = InitialWeights(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("model.family = qwen2, the directory has llama"),
                                                   HasSubstr("model.layers = 3, the directory has 1"),
                                                   HasSubstr("model.max_positions"), Not(HasSubstr("model.hidden"))));
  options.model_directory = "/nowhere/at/all";
  EXPECT_EQ(InitialWeights(options).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace leeway
