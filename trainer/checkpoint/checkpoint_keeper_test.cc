#include "trainer/checkpoint/checkpoint_keeper.h"

#include <algorithm>

#include "base/fake_clock.h"
#include "base/fake_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/transformer/transformer.h"
#include "trainer/fake_rollout.h"
#include "trainer/temporary_directory_test.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Ranks that write when the test says so. Rank 0 has everything to write, the others nothing.
class PuppetRanks : public CheckpointRanks {
 public:
  PuppetRanks(int ranks, FakeClock* clock) : outcomes_(ranks), clock_(clock) {}

  absl::Status BeginSave(const std::string& folder, std::map<std::string, std::string> texts) override {
    folder_ = folder;
    texts_ = std::move(texts);
    for (ShareOutcome& outcome : outcomes_) outcome = ShareOutcome{.is_pending = true};
    clock_->Advance(absl::Seconds(2));  // for copying
    return lost;
  }
  absl::StatusOr<std::vector<ShareOutcome>> SaveOutcomes(absl::Duration wait) override {
    ++asked;
    if (wait > absl::ZeroDuration() && on_wait) on_wait();
    if (!lost.ok()) return lost;
    return outcomes_;
  }

  // Rank 0 writes its share, any other is done.
  void Finish(int rank, const absl::Status& status = absl::OkStatus()) {
    ShareOutcome& outcome = outcomes_[rank];
    outcome = ShareOutcome{.status = status, .seconds = 10.0 + rank};
    if (rank > 0 || !status.ok()) return;
    StatePieces pieces;
    const std::vector<float> values = RandomParameters(TinyShape(), 1);
    for (const ParameterInfo& parameter : ParameterLayout(TinyShape())) {
      NDArray array(DType::kF32, parameter.shape);
      std::copy_n(values.begin() + parameter.offset, parameter.element_count, array.values<float>().begin());
      pieces.weights.tensors.push_back({parameter.name, std::move(array)});
    }
    const absl::StatusOr<WrittenFiles> files =
        WriteShare(RealFileSystem(), folder_, {std::move(pieces), texts_}, false);
    ASSERT_TRUE(files.ok()) << files.status();
    outcome.files = *files;
  }
  void FinishAll() {
    for (int rank = 0; rank < static_cast<int>(outcomes_.size()); ++rank) Finish(rank);
  }

  std::function<void()> on_wait;
  absl::Status lost;  // the connection to the ranks
  int asked = 0;

 private:
  std::vector<ShareOutcome> outcomes_;
  FakeClock* const clock_;
  std::string folder_;
  std::map<std::string, std::string> texts_;
};

class CheckpointKeeperTest : public ::testing::Test {
 protected:
  bool Exists(uint64_t step) const { return RealFileSystem()->Exists(store_.PathOf(step)); }
  absl::Status Save(uint64_t step) { return keeper_.Save(step, Make(step)); }
  CheckpointKeeper::Make Make(uint64_t step) {
    return [this, step]() -> absl::StatusOr<Checkpoint> {
      ++made_;
      Checkpoint checkpoint;
      checkpoint.step = step;
      checkpoint.lineage = 4;
      return checkpoint;
    };
  }

  const TemporaryDirectory directory_;
  absl::Status disk_;
  FaultyFileSystem files_{[this](absl::string_view, const std::string&) { return disk_; }};
  CheckpointStore store_{&files_, JoinPath(directory_.path(), "checkpoints"), ParameterLayout(TinyShape()), 2};
  FakeClock clock_;
  StateClock states_{&clock_};
  PuppetRanks ranks_{3, &clock_};
  std::vector<uint64_t> settled_;  // those that changed something
  absl::Status fenced_;
  int made_ = 0;
  CheckpointKeeper keeper_{directory_.path(),
                           &ranks_,
                           &store_,
                           [this](uint64_t step) {
                             if (fenced_.ok() && step > (settled_.empty() ? 0 : settled_.back())) {
                               settled_.push_back(step);
                             }
                             return fenced_;
                           },
                           &states_,
                           &clock_};
};

TEST_F(CheckpointKeeperTest, IsThereOnceAllRanksHaveWritten) {
  ASSERT_TRUE(Save(3).ok());
  EXPECT_TRUE(keeper_.Look().ok());
  EXPECT_FALSE(Exists(3));
  ranks_.Finish(0);
  ranks_.Finish(2);
  EXPECT_TRUE(keeper_.Look().ok());
  EXPECT_FALSE(Exists(3));
  EXPECT_FALSE(keeper_.saved_step().has_value());
  ranks_.Finish(1);
  EXPECT_TRUE(keeper_.Look().ok());
  EXPECT_TRUE(Exists(3));
  EXPECT_EQ(keeper_.saved_step(), 3u);
  // Nobody is asked once it is done.
  const int asked = ranks_.asked;
  EXPECT_TRUE(keeper_.Look().ok());
  EXPECT_TRUE(keeper_.Wait().ok());
  EXPECT_EQ(ranks_.asked, asked);
}

TEST_F(CheckpointKeeperTest, TheNextOneWaitsAndSettlesWhatItCovers) {
  ASSERT_TRUE(Save(2).ok());
  ASSERT_TRUE(Save(2).ok());  // is under way
  EXPECT_EQ(made_, 1);
  int waits = 0;
  ranks_.on_wait = [&] {
    EXPECT_EQ(states_.current(), "busy:checkpoint");
    clock_.Advance(absl::Seconds(20));
    if (++waits == 3) ranks_.FinishAll();
  };
  ASSERT_TRUE(Save(4).ok());
  EXPECT_EQ(waits, 3);
  EXPECT_TRUE(Exists(2));
  EXPECT_FALSE(Exists(4));
  EXPECT_THAT(settled_, IsEmpty());
  ranks_.FinishAll();
  ASSERT_TRUE(keeper_.Look().ok());
  EXPECT_THAT(settled_, ElementsAre(2));
  // Twice copied, waited in between; the slowest rank of each wrote for 12 s.
  const CheckpointTimes times = keeper_.TakeTimes();
  EXPECT_EQ(times.wait, 2 + 60 + 2);
  EXPECT_EQ(times.write, 24);
  EXPECT_EQ(keeper_.TakeTimes().write, 0);
}

TEST_F(CheckpointKeeperTest, ADiskThatFailsOnOneRankLeavesTheOlderOneAndTheRunGoesOn) {
  ASSERT_TRUE(Save(2).ok());
  ranks_.FinishAll();
  ASSERT_TRUE(keeper_.Look().ok());
  ASSERT_TRUE(Save(4).ok());
  ranks_.Finish(1, absl::ResourceExhaustedError("write /disk/of/one: no space"));
  ASSERT_TRUE(keeper_.Look().ok());
  // The others are not disturbed while they write.
  EXPECT_TRUE(RealFileSystem()->Exists(JoinPath(directory_.path(), "checkpoints/.tmp-step-4-lineage-4")));
  ranks_.Finish(0);
  ranks_.Finish(2);
  ASSERT_TRUE(keeper_.Look().ok());
  EXPECT_EQ(keeper_.saved_step(), 2u);
  EXPECT_THAT(*files_.ListDirectory(JoinPath(directory_.path(), "checkpoints")), ElementsAre("latest", "step-2"));
  // Where the run needs it, the reason is said, after one more attempt.
  ranks_.on_wait = [&] {
    ranks_.FinishAll();
    ranks_.Finish(1, absl::ResourceExhaustedError("write /disk/of/one: no space"));
  };
  const absl::Status needed = keeper_.Need(4, "it is the last one", Make(4));
  EXPECT_EQ(needed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(needed.message()),
              AllOf(HasSubstr("step 4"), HasSubstr("rank 1: write /disk/of/one: no space"), HasSubstr("the last one"),
                    HasSubstr(directory_.path())));
  ranks_.on_wait = [&] { ranks_.FinishAll(); };
  EXPECT_TRUE(keeper_.Need(4, "it is the last one", Make(4)).ok());
  EXPECT_TRUE(Exists(4));
}

TEST_F(CheckpointKeeperTest, AFolderThatCannotBeMadeIsNoErrorEither) {
  disk_ = absl::PermissionDeniedError("read-only");
  EXPECT_TRUE(Save(2).ok());
  EXPECT_EQ(ranks_.asked, 0);
  EXPECT_THAT(std::string(keeper_.Need(2, "it is the last one", Make(2)).message()), HasSubstr("read-only"));
  disk_ = absl::OkStatus();
  ranks_.on_wait = [&] { ranks_.FinishAll(); };
  EXPECT_TRUE(keeper_.Need(2, "it is the last one", Make(2)).ok());
}

TEST_F(CheckpointKeeperTest, ARankThatIsGoneEndsTheWait) {
  ASSERT_TRUE(Save(2).ok());
  int waits = 0;
  ranks_.on_wait = [&] {
    if (++waits == 2) ranks_.lost = absl::UnavailableError("rank 2 is gone");
  };
  EXPECT_EQ(keeper_.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(states_.current(), "busy:checkpoint");
}

TEST_F(CheckpointKeeperTest, NothingIsPutInPlaceOnceALaterTrainerHasTakenOver) {
  ASSERT_TRUE(Save(2).ok());
  ranks_.FinishAll();
  fenced_ = absl::AbortedError("lineage 5 has taken over");
  EXPECT_EQ(keeper_.Look(), fenced_);
  EXPECT_FALSE(Exists(2));
  EXPECT_FALSE(keeper_.saved_step().has_value());
}

TEST_F(CheckpointKeeperTest, TheLastOneWaitsForTheOneUnderWay) {
  ASSERT_TRUE(Save(2).ok());
  ranks_.on_wait = [&] { ranks_.FinishAll(); };
  EXPECT_TRUE(keeper_.Need(3, "it is the last one", Make(3)).ok());
  EXPECT_TRUE(Exists(2));
  EXPECT_TRUE(Exists(3));
  EXPECT_EQ(keeper_.saved_step(), 3u);
}

TEST_F(CheckpointKeeperTest, RoomIsMadeByASecondCheckpointOrTheRemedyIsSaid) {
  ranks_.on_wait = [&] { ranks_.FinishAll(); };
  const absl::Status first = keeper_.MakeRoom(2, Make(2));
  EXPECT_EQ(first.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(first.message()), HasSubstr("queue.max_bytes"));
  EXPECT_TRUE(Exists(2));
  EXPECT_TRUE(keeper_.MakeRoom(3, Make(3)).ok());
  EXPECT_THAT(settled_, ElementsAre(2));
}

}  // namespace
}  // namespace leeway
