#include "trainer/checkpoint/checkpoint_store.h"

#include <functional>

#include "base/fake_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/transformer/transformer.h"
#include "trainer/fake_rollout.h"
#include "trainer/temporary_directory_test.h"

namespace leeway {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CheckpointStoreTest : public ::testing::Test {
 protected:
  CheckpointStoreTest() : layout_(ParameterLayout(TinyShape())) {}

  Checkpoint Make(uint64_t step) const {
    Checkpoint checkpoint;
    checkpoint.step = step;
    checkpoint.seed = 0xFFFFFFFFFFFFFFFFu;
    checkpoint.training.parameters = RandomParameters(TinyShape(), step);
    uint64_t seed = step + 100;
    for (const ParameterInfo& parameter : layout_) {
      for (const char* array : {".first_moment", ".second_moment"}) {
        const std::vector<float> values = RandomParameters(TinyShape(), ++seed);
        checkpoint.training.optimizer[parameter.name + array].assign(values.begin(),
                                                                     values.begin() + parameter.element_count);
      }
    }
    checkpoint.training.updates = static_cast<int64_t>(step);
    for (uint64_t id = 1; id <= 2 * step; ++id) checkpoint.consumed.Add(id);
    checkpoint.skipped_steps = 1;
    checkpoint.ledger = std::string("le\0dger", 7);
    checkpoint.lineage = 3;
    checkpoint.wall_seconds = 12.5;
    checkpoint.refused_groups = 2;
    checkpoint.resolved_config = "seed = 1\n\"\xFF";
    checkpoint.held_lines = {{step, step + 1, true, "{\"step\":1}"}};
    return checkpoint;
  }

  CheckpointStore Store(FileSystem* files = RealFileSystem()) const {
    return CheckpointStore(files, directory_, layout_, /*kept=*/2);
  }

  std::string Read(const std::string& name) const {
    const auto content = files_->ReadFile(JoinPath(directory_, name));
    EXPECT_TRUE(content.ok()) << content.status();
    return content.value_or("");
  }
  void Write(const std::string& name, const std::string& content) const {
    ASSERT_TRUE(files_->WriteFileAtomically(JoinPath(directory_, name), content).ok());
  }

  FileSystem* const files_ = RealFileSystem();
  const TemporaryDirectory temporary_directory_;
  const std::string directory_ = JoinPath(temporary_directory_.path(), "checkpoints");
  const std::vector<ParameterInfo> layout_;
};

TEST_F(CheckpointStoreTest, WhatWasSavedIsLoaded) {
  CheckpointStore store = Store();
  EXPECT_FALSE(store.LoadNewest()->has_value());
  const Checkpoint saved = Make(7);
  ASSERT_TRUE(store.Save(saved).ok());
  EXPECT_EQ(Read("latest"), "step-7\n");
  CheckpointStore other = Store();
  const auto loaded = other.LoadNewest();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
  const Checkpoint& checkpoint = **loaded;
  EXPECT_EQ(checkpoint.step, 7u);
  EXPECT_EQ(checkpoint.seed, saved.seed);
  EXPECT_EQ(checkpoint.training, saved.training);
  EXPECT_EQ(checkpoint.training.updates, 7);
  EXPECT_EQ(checkpoint.consumed.ranges(), saved.consumed.ranges());
  EXPECT_EQ(checkpoint.skipped_steps, 1u);
  EXPECT_EQ(checkpoint.ledger, saved.ledger);
  EXPECT_EQ(checkpoint.lineage, 3u);
  EXPECT_EQ(checkpoint.wall_seconds, 12.5);
  EXPECT_EQ(checkpoint.refused_groups, 2u);
  ASSERT_EQ(checkpoint.held_lines.size(), 1u);
  EXPECT_EQ(checkpoint.held_lines[0].version, 8u);
  EXPECT_TRUE(checkpoint.held_lines[0].awaits_evaluation);
  EXPECT_EQ(checkpoint.held_lines[0].json, "{\"step\":1}");
}

TEST_F(CheckpointStoreTest, TheFilesOfTheClaimDependOnTheTrainedDataOnly) {
  CheckpointStore store = Store();
  ASSERT_TRUE(store.Save(Make(4)).ok());
  const std::string weights = Read("step-4/weights.safetensors");
  const std::string optimizer = Read("step-4/optimizer.safetensors");
  const std::string state = Read("step-4/state.json");
  Checkpoint other = Make(4);
  other.lineage = 99;
  other.wall_seconds = 1e6;
  other.refused_groups = 5;
  other.resolved_config = "other";
  other.ledger = "other";
  other.held_lines.clear();
  ASSERT_TRUE(store.Save(other).ok());
  EXPECT_EQ(Read("step-4/weights.safetensors"), weights);
  EXPECT_EQ(Read("step-4/optimizer.safetensors"), optimizer);
  EXPECT_EQ(Read("step-4/state.json"), state);
  for (const std::string& text : {weights, optimizer, state}) {
    EXPECT_THAT(text, Not(HasSubstr("lineage")));
    EXPECT_THAT(text, Not(HasSubstr("metadata")));
  }
}

TEST_F(CheckpointStoreTest, KeepsTheNewest) {
  CheckpointStore store = Store();
  for (uint64_t step : {1, 2, 3, 4}) ASSERT_TRUE(store.Save(Make(step)).ok());
  EXPECT_THAT(store.verified_steps(), ElementsAre(3, 4));
  EXPECT_THAT(*files_->ListDirectory(directory_), ElementsAre("latest", "step-3", "step-4"));
}

TEST_F(CheckpointStoreTest, EveryDamagedFileMakesTheStoreGoBackToTheOneBefore) {
  for (const char* name : {"weights.safetensors", "optimizer.safetensors", "state.json", "ledger.bin", "run_state.json",
                           "manifest.json"}) {
    ASSERT_TRUE(files_->RemoveAll(directory_).ok());
    CheckpointStore store = Store();
    ASSERT_TRUE(store.Save(Make(1)).ok());
    ASSERT_TRUE(store.Save(Make(2)).ok());
    const std::string path = std::string("step-2/") + name;
    std::string content = Read(path);
    content[content.size() / 2] ^= 1;
    Write(path, content);
    const auto flipped = store.LoadNewest();
    ASSERT_TRUE(flipped.ok() && flipped->has_value()) << name << flipped.status();
    EXPECT_EQ((*flipped)->step, 1u) << name;
    EXPECT_THAT(store.verified_steps(), ElementsAre(1)) << name;
    ASSERT_TRUE(files_->RemoveAll(JoinPath(directory_, path)).ok());
    EXPECT_EQ((*store.LoadNewest())->step, 1u) << name << " missing";
    // The damaged folder is not in the way of the next checkpoint of that step.
    ASSERT_TRUE(store.Save(Make(2)).ok());
    EXPECT_EQ((*store.LoadNewest())->step, 2u);
  }
}

TEST_F(CheckpointStoreTest, AFolderUnderAForeignNameIsDamaged) {
  CheckpointStore store = Store();
  ASSERT_TRUE(store.Save(Make(3)).ok());
  ASSERT_TRUE(files_->Rename(store.PathOf(3), store.PathOf(30)).ok());
  const auto loaded = store.LoadNewest();
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(loaded.status().message()), ::testing::HasSubstr("none of the 1 checkpoints"));
  // A whole one beside it is enough.
  ASSERT_TRUE(store.Save(Make(4)).ok());
  EXPECT_EQ((*store.LoadNewest())->step, 4u);
}

TEST_F(CheckpointStoreTest, LeftOverTemporaryFoldersAreRemovedAndNeverBlock) {
  ASSERT_TRUE(files_->CreateDirectory(JoinPath(directory_, ".tmp-step-5/sub")).ok());
  Write(".tmp-step-5/weights.safetensors", "torn");
  CheckpointStore store = Store();
  EXPECT_FALSE(store.LoadNewest()->has_value());
  EXPECT_THAT(*files_->ListDirectory(directory_), Not(Contains(".tmp-step-5")));
  // One that appears later (another process was killed) is replaced.
  ASSERT_TRUE(files_->CreateDirectory(JoinPath(directory_, ".tmp-step-5/sub")).ok());
  EXPECT_TRUE(store.Save(Make(5)).ok());
}

TEST_F(CheckpointStoreTest, AnotherModelIsAnErrorAndNotADamage) {
  CheckpointStore store = Store();
  ASSERT_TRUE(store.Save(Make(1)).ok());
  ModelShape wider = TinyShape();
  wider.intermediate *= 2;
  CheckpointStore other(files_, directory_, ParameterLayout(wider), 2);
  EXPECT_EQ(other.LoadNewest().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CheckpointStoreTest, AWriteThatFailsAnywhereLeavesTheOlderCheckpointInForce) {
  // The n-th write fails, for every n until a whole save passes.
  bool passed = false;
  for (int failing = 1; failing < 40 && !passed; ++failing) {
    ASSERT_TRUE(files_->RemoveAll(directory_).ok());
    CheckpointStore first = Store();
    ASSERT_TRUE(first.Save(Make(1)).ok());
    int count = 0;
    FaultyFileSystem faulty([&](absl::string_view, const std::string& path) {
      return ++count == failing ? absl::ResourceExhaustedError("no space: " + path) : absl::OkStatus();
    });
    CheckpointStore store = Store(&faulty);
    passed = store.Save(Make(2)).ok() && count < failing;
    CheckpointStore after = Store();
    const auto newest = after.LoadNewest();
    ASSERT_TRUE(newest.ok() && newest->has_value());
    EXPECT_GE((*newest)->step, 1u) << failing;
    if (passed) {
      EXPECT_EQ((*newest)->step, 2u);
    }
  }
  EXPECT_TRUE(passed);
}

}  // namespace
}  // namespace leeway
