#include "trainer/learner_ranks.h"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "base/fake_file_system.h"
#include "collective/in_process/in_process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/written_state_test.h"
#include "trainer/fake_rollout.h"
#include "trainer/temporary_directory_test.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

int64_t CommandsOf(const Communicator& commands) { return commands.counters().of(Collective::kBroadcast).calls / 2; }

TrainerOptions Options() {
  TrainerOptions options;
  options.model = TinyShape();
  options.mesh = {.data = 2, .tensor = 1};
  options.micro_batch_tokens = 64;
  return options;
}

// Rank 0 of two, and a thread that follows it.
class LearnerRanksTest : public ::testing::Test {
 protected:
  struct Rank {
    std::unique_ptr<Communicator> world;
    std::unique_ptr<Communicator> commands;
    std::unique_ptr<Mesh> mesh;
    std::unique_ptr<ParallelFor> parallel;
    std::unique_ptr<Learner> learner;
  };

  // Waits of up to `timeout`. The follower makes its learner when the leader makes its own.
  void Start(absl::Duration timeout) {
    commands_ = std::make_unique<InProcessGroup>(2, "commands", timeout);
    follower_ = std::thread([this] {
      Rank rank = Join(1);
      followed = FollowLeader(
          rank.learner.get(), rank.commands.get(), [](uint64_t) {}, disk_of_follower);
      has_ended = true;
    });
    leader = Join(0);
  }
  Rank Join(int index) {
    Rank rank;
    rank.world = world_.Take(index);
    rank.commands = commands_->Take(index);
    rank.mesh = *Mesh::Create(options.mesh, rank.world.get());
    rank.parallel = std::make_unique<ParallelFor>(1);
    rank.learner = *Learner::Create(options, rank.mesh.get(), rank.parallel.get());
    return rank;
  }
  void TearDown() override {
    if (follower_.joinable()) follower_.join();
  }
  absl::Status WaitForFollower() {
    follower_.join();
    return followed;
  }

  TrainerOptions options = Options();
  Rank leader;
  FileSystem* disk_of_follower = RealFileSystem();
  absl::Status followed;
  std::atomic<bool> has_ended = false;

 private:
  InProcessGroup world_{2, "trainer", absl::Seconds(60)};
  std::unique_ptr<InProcessGroup> commands_;
  std::thread follower_;
};

TEST_F(LearnerRanksTest, ALeaderThatIsBusyElsewhereForLongerThanTheTimeoutIsNotTakenForHung) {
  Start(absl::Seconds(1));
  {
    LearnerLeader lead(leader.learner.get(), leader.commands.get());
    // More than a timeout holds.
    while (CommandsOf(*leader.commands) < 6 && !has_ended) std::this_thread::yield();
    EXPECT_TRUE(lead.Stop(absl::OkStatus()).ok());
  }
  EXPECT_TRUE(WaitForFollower().ok()) << followed;
}

TEST_F(LearnerRanksTest, AFollowerThatIsGoneIsNamedByTheNextCall) {
  InProcessGroup group(2, "commands", absl::Seconds(60));
  const std::unique_ptr<Communicator> commands = group.Take(0);
  { const std::unique_ptr<Communicator> gone = group.Take(1); }
  Start(absl::Seconds(60));
  LearnerLeader lead(leader.learner.get(), commands.get());
  EXPECT_THAT(std::string(lead.Idle().message()), HasSubstr("rank 1"));
  EXPECT_THAT(std::string(lead.SaveOutcomes(absl::ZeroDuration()).status().message()), HasSubstr("rank 1"));
  leader.commands->Abort("the test is over");
}

TEST_F(LearnerRanksTest, FollowersHearHowTheRunEnded) {
  Start(absl::Seconds(60));
  EXPECT_TRUE(LearnerLeader(leader.learner.get(), leader.commands.get()).Stop(absl::DataLossError("a bad batch")).ok());
  EXPECT_EQ(WaitForFollower().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(followed.message()), HasSubstr("a bad batch"));
}

// What all ranks find out by themselves makes nobody wait for a timeout.
TEST_F(LearnerRanksTest, AnErrorOfACallEndsAllRanksAtOnce) {
  Start(absl::InfiniteDuration());
  LearnerLeader lead(leader.learner.get(), leader.commands.get());
  const TemporaryDirectory directory;
  internal::RanksCheckpoint checkpoint(directory.path(), ParameterLayout(TinyShape()), 1);
  StatePieces pieces = leader.learner->CopyPieces();
  for (NamedTensor& tensor : pieces.optimizer.tensors) tensor.name += "_of_another";
  ASSERT_TRUE(checkpoint.Write(0, std::move(pieces)).ok());
  const absl::Status restored = lead.Restore(checkpoint.Complete(), 1);
  EXPECT_EQ(restored.code(), absl::StatusCode::kInvalidArgument) << restored;
  EXPECT_TRUE(lead.Stop(restored).ok());
  EXPECT_FALSE(WaitForFollower().ok());
}

// What one rank alone finds out ends the call that the others are in, with its reason.
TEST_F(LearnerRanksTest, AnErrorOfOneRankEndsTheCallThatTheOthersAreIn) {
  Start(absl::InfiniteDuration());
  LearnerLeader lead(leader.learner.get(), leader.commands.get());
  ASSERT_TRUE(lead.Reset(RandomParameters(TinyShape(), 1)).ok());
  // The follower waits for commands, the leader for the follower: as if it had met an error on the way.
  std::thread failing([this] { leader.commands->Abort("rank 1 has failed: out of memory"); });
  failing.join();
  const absl::Status status = lead.SaveOutcomes(absl::ZeroDuration()).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 has failed: out of memory"));
  EXPECT_THAT(std::string(WaitForFollower().message()), HasSubstr("rank 1 has failed: out of memory"));
}

// A rank whose disk takes its time holds up nobody, and what it writes is of the moment of saving.
TEST_F(LearnerRanksTest, StepsTrainWhileARankStillWrites) {
  const TemporaryDirectory directory;
  std::promise<void> gate;
  const std::shared_future<void> is_open = gate.get_future().share();
  FaultyFileSystem slow([&](absl::string_view, const std::string&) {
    is_open.wait();
    return absl::OkStatus();
  });
  disk_of_follower = &slow;
  options.sharding.zero_stage = 3;
  Start(absl::Seconds(60));
  LearnerLeader lead(leader.learner.get(), leader.commands.get());
  const std::vector<float> initial = RandomParameters(TinyShape(), 1);
  ASSERT_TRUE(lead.Reset(initial).ok());
  ASSERT_TRUE(lead.BeginSave(directory.path(), {{"state.json", "{}"}}).ok());
  ParallelFor parallel(1);
  FakeRollout rollout(TinyShape(), &parallel);
  v1::WeightsVersion version;
  version.set_lineage(1);
  for (uint64_t step = 1; step <= 2; ++step) {
    version.set_version(step);
    rollout.SetWeights(version, leader.learner->parameters());
    StepReport report;
    ASSERT_TRUE(lead.Train(step, rollout.Batch(step, 4, 3), &report).ok());
    EXPECT_EQ(report.updates, 1);
    const auto outcomes = lead.SaveOutcomes(absl::ZeroDuration());
    ASSERT_TRUE(outcomes.ok()) << outcomes.status();
    ASSERT_EQ(outcomes->size(), 2u);
    EXPECT_TRUE(outcomes->at(1).is_pending);
  }
  gate.set_value();
  WrittenFiles files;
  while (files.empty()) {
    const auto outcomes = lead.SaveOutcomes(absl::Seconds(10));
    ASSERT_TRUE(outcomes.ok()) << outcomes.status();
    if (outcomes->at(0).is_pending || outcomes->at(1).is_pending) continue;
    for (const ShareOutcome& outcome : *outcomes) {
      ASSERT_TRUE(outcome.status.ok()) << outcome.status;
      files.insert(outcome.files.begin(), outcome.files.end());
    }
  }
  EXPECT_TRUE(lead.Stop(absl::OkStatus()).ok());
  EXPECT_TRUE(WaitForFollower().ok()) << followed;
  std::vector<std::string> names;
  for (const auto& [name, file] : files) names.push_back(name);
  const auto state = PieceReader::Open(directory.path(), names, ParameterLayout(TinyShape()));
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(*state->ReadParameters<float>(), initial);
  // The files' bytes are those that were reported.
  for (const auto& [name, file] : files)
    EXPECT_EQ(*DescribeFile(RealFileSystem(), JoinPath(directory.path(), name)), file);
}

TEST_F(LearnerRanksTest, ADiskThatFailsOnAnotherRankIsToldAndNobodyEnds) {
  const TemporaryDirectory directory;
  FaultyFileSystem full([](absl::string_view, const std::string& path) {
    return absl::ResourceExhaustedError("no space left: " + path);
  });
  disk_of_follower = &full;
  options.sharding.zero_stage = 1;
  Start(absl::Seconds(60));
  LearnerLeader lead(leader.learner.get(), leader.commands.get());
  ASSERT_TRUE(lead.Reset(RandomParameters(TinyShape(), 1)).ok());
  for (int attempt = 0; attempt < 2; ++attempt) {
    ASSERT_TRUE(lead.BeginSave(directory.path(), {}).ok());
    CheckpointInProgress progress(1, directory.path());
    while (!progress.is_over()) {
      const auto outcomes = lead.SaveOutcomes(absl::Seconds(10));
      ASSERT_TRUE(outcomes.ok()) << outcomes.status();
      progress.Take(*outcomes);
    }
    EXPECT_EQ(progress.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(progress.status().message()), HasSubstr("rank 1: no space left: " + directory.path()));
  }
  EXPECT_TRUE(lead.Stop(absl::OkStatus()).ok());
  EXPECT_TRUE(WaitForFollower().ok()) << followed;
}

}  // namespace
}  // namespace leeway
