#include "trainer/checkpoint/checkpoint_store.h"

#include <algorithm>
#include <functional>

#include "base/fake_file_system.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/transformer/transformer.h"
#include "trainer/checkpoint/checkpoint_in_progress.h"
#include "trainer/checkpoint/share_writer.h"
#include "trainer/fake_rollout.h"
#include "trainer/pieces/piece_reader.h"
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

  static Checkpoint Make(uint64_t step) {
    Checkpoint checkpoint;
    checkpoint.step = step;
    checkpoint.seed = 0xFFFFFFFFFFFFFFFFu;
    checkpoint.optimizer_updates = static_cast<int64_t>(step);
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

  // Writer `writer` of two, which share the rows; or the only one, of all.
  StatePieces Pieces(uint64_t step, int writer, int writers) const {
    StatePieces pieces{.writer = writer, .writers = writers};
    uint64_t seed = step;
    const std::vector<float> values = RandomParameters(TinyShape(), seed);
    for (const ParameterInfo& parameter : layout_) {
      const int64_t columns = parameter.element_count / parameter.shape[0];
      const int64_t begin = parameter.shape[0] * writer / writers, end = parameter.shape[0] * (writer + 1) / writers;
      const PiecePlace place{{begin, end, 0, columns}, parameter.shape};
      for (const char* array : {"", ".first_moment", ".second_moment"}) {
        PieceSet& set = *array == 0 ? pieces.weights : pieces.optimizer;
        const std::string name = parameter.name + array;
        NDArray piece(DType::kF32, place.shape());
        std::copy_n(values.begin() + parameter.offset + begin * columns, place.rectangle.area(),
                    piece.values<float>().begin());
        if (*array != 0) piece.values<float>()[0] = static_cast<float>(array[1]);
        set.tensors.push_back({name, std::move(piece)});
        if (writers > 1) set.places[name] = FormatPlace(place);
      }
    }
    return pieces;
  }

  // All of a save, as ranks and keeper do it together; each rank has a disk of its own.
  absl::Status Save(CheckpointStore* store, const Checkpoint& checkpoint, const std::vector<FileSystem*>& disks) {
    LEEWAY_ASSIGN_OR_RETURN(const std::string folder, store->Begin(checkpoint.step, checkpoint.lineage));
    std::vector<ShareOutcome> outcomes;
    const int writers = static_cast<int>(disks.size());
    for (int writer = 0; writer < writers; ++writer) {
      CheckpointShare share{Pieces(checkpoint.step, writer, writers), {}};
      if (writer == 0) share.texts = CheckpointTexts(checkpoint);
      const absl::StatusOr<WrittenFiles> written = WriteShare(disks[writer], folder, std::move(share), false);
      outcomes.push_back({.status = written.status(), .files = written.ok() ? *written : WrittenFiles()});
    }
    CheckpointInProgress progress(checkpoint.step, folder);
    progress.Take(outcomes);
    EXPECT_TRUE(progress.is_over());
    LEEWAY_RETURN_IF_ERROR(progress.status());
    return store->Complete(checkpoint.step, folder, progress.files());
  }
  absl::Status Save(CheckpointStore* store, const Checkpoint& checkpoint, int writers = 1) {
    return Save(store, checkpoint, std::vector<FileSystem*>(writers, files_));
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
  ASSERT_TRUE(Save(&store, saved).ok());
  EXPECT_EQ(Read("latest"), "step-7\n");
  CheckpointStore other = Store();
  const auto loaded = other.LoadNewest();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
  const Checkpoint& checkpoint = **loaded;
  EXPECT_EQ(checkpoint.step, 7u);
  EXPECT_EQ(checkpoint.seed, saved.seed);
  EXPECT_EQ(checkpoint.optimizer_updates, 7);
  const auto state = OpenCheckpoint(files_, other.PathOf(7), layout_);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(*state->ReadParameters<float>(), RandomParameters(TinyShape(), 7));
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
  ASSERT_TRUE(Save(&store, Make(4)).ok());
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
  ASSERT_TRUE(Save(&store, other).ok());
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
  for (uint64_t step : {1, 2, 3, 4}) ASSERT_TRUE(Save(&store, Make(step)).ok());
  EXPECT_THAT(store.verified_steps(), ElementsAre(3, 4));
  EXPECT_THAT(*files_->ListDirectory(directory_), ElementsAre("latest", "step-3", "step-4"));
}

TEST_F(CheckpointStoreTest, EveryDamagedFileOfEveryRankMakesTheStoreGoBackToTheOneBefore) {
  for (const int writers : {1, 2}) {
    std::vector<std::string> names = {"state.json", "ledger.bin", "run_state.json", "manifest.json"};
    for (int writer = 0; writer < writers; ++writer) {
      for (const ShardKind kind : kShardKinds) names.push_back(ShardFileName(kind, writer, writers));
    }
    for (const std::string& name : names) {
      ASSERT_TRUE(files_->RemoveAll(directory_).ok());
      CheckpointStore store = Store();
      ASSERT_TRUE(Save(&store, Make(1), writers).ok());
      ASSERT_TRUE(Save(&store, Make(2), writers).ok());
      const std::string path = "step-2/" + name;
      const std::string whole = Read(path);
      const auto expect_the_one_before = [&](const char* what) {
        const auto newest = store.LoadNewest();
        ASSERT_TRUE(newest.ok() && newest->has_value()) << name << " " << what << ": " << newest.status();
        EXPECT_EQ((*newest)->step, 1u) << name << " " << what;
        EXPECT_THAT(store.verified_steps(), ElementsAre(1)) << name << " " << what;
        const absl::Status status = VerifyCheckpoint(files_, store.PathOf(2));
        EXPECT_THAT(std::string(status.message()), HasSubstr(name)) << what;
      };
      std::string flipped = whole;
      flipped[whole.size() / 2] ^= 1;
      Write(path, flipped);
      expect_the_one_before("flipped");
      Write(path, whole.substr(0, whole.size() - 3));
      expect_the_one_before("cut");
      ASSERT_TRUE(files_->RemoveAll(JoinPath(directory_, path)).ok());
      expect_the_one_before("missing");
      // The damaged folder is not in the way of the next checkpoint of that step.
      ASSERT_TRUE(Save(&store, Make(2), writers).ok());
      EXPECT_EQ((*store.LoadNewest())->step, 2u);
    }
  }
}

// Digests are right, and yet something is not there: it never becomes a checkpoint.
TEST_F(CheckpointStoreTest, AShareThatIsMissingIsFoundBeforeTheCheckpointCounts) {
  CheckpointStore store = Store();
  ASSERT_TRUE(Save(&store, Make(1), 2).ok());
  const absl::StatusOr<std::string> folder = store.Begin(2, 3);
  ASSERT_TRUE(folder.ok());
  const auto written = WriteShare(files_, *folder, {Pieces(2, 0, 2), CheckpointTexts(Make(2))}, false);
  ASSERT_TRUE(written.ok()) << written.status();
  const absl::Status status = store.Complete(2, *folder, *written);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("weights.safetensors is expected"));
  store.Abandon(*folder);
  EXPECT_EQ((*store.LoadNewest())->step, 1u);
  EXPECT_THAT(*files_->ListDirectory(directory_), ElementsAre("latest", "step-1"));
}
TEST_F(CheckpointStoreTest, AFolderUnderAForeignNameIsDamaged) {
  CheckpointStore store = Store();
  ASSERT_TRUE(Save(&store, Make(3)).ok());
  ASSERT_TRUE(files_->Rename(store.PathOf(3), store.PathOf(30)).ok());
  const auto loaded = store.LoadNewest();
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(loaded.status().message()), ::testing::HasSubstr("none of the 1 checkpoints"));
  // A whole one beside it is enough.
  ASSERT_TRUE(Save(&store, Make(4)).ok());
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
  EXPECT_TRUE(Save(&store, Make(5)).ok());
}

TEST_F(CheckpointStoreTest, AnotherModelIsAnErrorAndNotADamage) {
  CheckpointStore store = Store();
  ASSERT_TRUE(Save(&store, Make(1)).ok());
  ModelShape wider = TinyShape();
  wider.intermediate *= 2;
  CheckpointStore other(files_, directory_, ParameterLayout(wider), 2);
  EXPECT_EQ(other.LoadNewest().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CheckpointStoreTest, AWriteOfAnyRankThatFailsAnywhereLeavesTheOlderCheckpointInForce) {
  for (const int bad_rank : {0, 1}) {
    // The n-th write fails, for every n until a whole save passes.
    bool passed = false;
    for (int failing = 1; failing < 60 && !passed; ++failing) {
      ASSERT_TRUE(files_->RemoveAll(directory_).ok());
      CheckpointStore first = Store();
      ASSERT_TRUE(Save(&first, Make(1), 2).ok());
      int count = 0;
      FaultyFileSystem faulty([&](absl::string_view, const std::string& path) {
        return ++count == failing ? absl::ResourceExhaustedError("no space: " + path) : absl::OkStatus();
      });
      CheckpointStore store = Store(bad_rank == 0 ? &faulty : files_);
      std::vector<FileSystem*> disks(2, files_);
      disks[bad_rank] = &faulty;
      const absl::Status saved = Save(&store, Make(2), disks);
      passed = saved.ok() && count < failing;
      if (bad_rank == 1 && !passed) {
        EXPECT_THAT(std::string(saved.message()), HasSubstr("rank 1: no space: " + directory_)) << failing;
      }
      CheckpointStore after = Store();
      const auto newest = after.LoadNewest();
      ASSERT_TRUE(newest.ok() && newest->has_value());
      // Only the file that names the newest for people may fail without harm.
      EXPECT_EQ((*newest)->step, saved.ok() ? 2u : 1u) << failing;
      EXPECT_EQ(store.verified_steps().empty(), !saved.ok()) << failing;
    }
    EXPECT_TRUE(passed);
  }
}

}  // namespace
}  // namespace leeway
