#include "trainer/trainer.h"

#include <algorithm>
#include <map>

#include "base/fake_clock.h"
#include "base/fake_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "trainer/queue_patience.h"
#include "trainer/trainer_job_test.h"

namespace leeway {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using TrainerFaultTest = TrainerJobTest;

TEST_F(TrainerFaultTest, ARunThatDiedAndRestoredEndsWithTheBytesOfOneThatDidNot) {
  options_.steps = 6;
  ASSERT_TRUE(Run().ok());
  const std::string expected = Claimed(6);
  change_batch_ = [&](uint64_t step, LeasedBatch* batch) { AwaitCheckpoint(step, batch); };
  // The commit of version v is refused: the step before it is lost, or even two (a checkpoint is made every 2 steps).
  for (uint64_t version = 2; version <= 7; ++version) {
    UseDirectory("version" + std::to_string(version));
    on_commit_ = [&](uint64_t committed, FakeWeightPublisher*) {
      if (committed + 1 == version && queue_->lineage() == 1) queue_->FailNext("Commit", absl::AbortedError("fenced"));
    };
    EXPECT_EQ(Run().code(), absl::StatusCode::kAborted) << version;
    EXPECT_THAT(calls_.back(), HasSubstr("abandon 1." + std::to_string(version)));
    ASSERT_TRUE(Run().ok()) << version;
    EXPECT_EQ(Claimed(6), expected) << version;
    EXPECT_THAT(Steps("metrics.jsonl"), ElementsAre(1, 2, 3, 4, 5, 6)) << version;
    EXPECT_THAT(Steps("schedule.jsonl"), ElementsAre(1, 2, 3, 4, 5, 6)) << version;
    // The restore names the step and brings the ledger of the checkpoint.
    const uint64_t restored = (version - 2) / 2 * 2;
    ASSERT_THAT(queue_->restores(), SizeIs(2));
    EXPECT_EQ(queue_->restores()[1].lineage, 2u);
    EXPECT_EQ(queue_->restores()[1].step, restored) << version;
    EXPECT_EQ(queue_->restores()[1].ledger_snapshot, restored == 0 ? "" : "ledger");
    const std::vector<v1::CommitRequest> commits = queue_->commits();
    const auto initial =
        std::find_if(commits.begin() + 1, commits.end(), [](const v1::CommitRequest& c) { return c.initial(); });
    ASSERT_NE(initial, commits.end());
    EXPECT_EQ(initial->version(), restored + 1);
    EXPECT_EQ(initial->lineage(), 2u);
  }
}

TEST_F(TrainerFaultTest, ADamagedCheckpointMeansTheOneBeforeAndTheSameBytes) {
  options_.steps = 6;
  options_.updates_per_step = 3;
  options_.objective.kind = ObjectiveKind::kDecoupled;
  options_.objective.correction = CorrectionKind::kTis;
  ASSERT_TRUE(Run().ok());
  const std::string expected = Claimed(6);
  const std::string weights = JoinPath(options_.run_directory, "checkpoints/step-6/weights.safetensors");
  std::string bytes = *files_->ReadFile(weights);
  bytes.back() ^= 0x10;
  ASSERT_TRUE(files_->WriteFileAtomically(weights, bytes).ok());
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(queue_->restores().back().step, 4u);
  EXPECT_EQ(finished_, 6);
  EXPECT_EQ(Claimed(6), expected);
  EXPECT_THAT(Steps("metrics.jsonl"), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(TrainerFaultTest, AStepThatIsNotFiniteChangesNoWeightIsDumpedAndCommitted) {
  options_.advantage = AdvantageKind::kDrGrpo;
  change_batch_ = [](uint64_t step, LeasedBatch* batch) {
    if (step == 2) batch->groups[1].members[0].mutable_score()->set_reward(1e300);
  };
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(finished_, 4);
  EXPECT_EQ(digests_[3], digests_[2]);
  EXPECT_NE(digests_[4], digests_[3]);
  EXPECT_THAT(queue_->commits()[2].tickets(), ElementsAre(4, 5, 6));
  const std::vector<json> lines = Lines("metrics.jsonl");
  EXPECT_EQ(lines[0]["optimizer/skipped_steps"], 0);
  EXPECT_EQ(lines[1]["optimizer/skipped_steps"], 1);
  EXPECT_EQ(lines[1]["optimizer/updates"], 0);
  EXPECT_EQ(lines[3]["optimizer/skipped_steps"], 1);
  EXPECT_THAT(Lines("failed_steps/step-2.jsonl"), SizeIs(kGroups * kMembers));
  EXPECT_EQ(json::parse(Read("checkpoints/step-4/state.json"))["skipped_steps"], 1);
  EXPECT_EQ(json::parse(Read("checkpoints/step-4/state.json"))["optimizer_updates"], 3);
}

// Episodes as if an earlier version had made them.
void Age(LeasedBatch* batch, size_t group, uint64_t version) {
  for (v1::Trajectory& member : batch->groups[group].members) {
    for (v1::Span& span : *member.mutable_spans()) {
      for (v1::VersionRun& run : *span.mutable_versions()) run.mutable_weights()->set_version(version);
    }
  }
}

TEST_F(TrainerFaultTest, UnderMaskTokensBeyondTheBudgetAreNotTrained) {
  options_.breach_masks = true;
  options_.staleness_budget = 1;
  change_batch_ = [](uint64_t step, LeasedBatch* batch) {
    if (step == 4) Age(batch, 0, 1);  // lag 3
    if (step == 3) Age(batch, 2, 2);  // lag 1
  };
  ASSERT_TRUE(Run().ok());
  const std::vector<json> lines = Lines("metrics.jsonl");
  EXPECT_EQ(lines[2]["staleness/max"], 1);
  EXPECT_EQ(lines[2]["staleness/histogram"], (json{40, 20}));
  EXPECT_EQ(lines[3]["staleness/max"], 0);
  EXPECT_EQ(lines[3]["tokens/masked"], 20);
  EXPECT_EQ(lines[3]["tokens/trained"], 40);
  EXPECT_THAT(queue_->commits()[4].tickets(), ElementsAre(10, 11, 12));
}

TEST_F(TrainerFaultTest, ATokenBeyondTheBoundStopsTheTrainer) {
  change_batch_ = [](uint64_t step, LeasedBatch* batch) {
    if (step == 3) Age(batch, 1, 2);
  };
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("ticket 8"), HasSubstr("staleness bound is 0")));
  EXPECT_EQ(finished_, 2);
}

TEST_F(TrainerFaultTest, ALeaseThatAllowsMoreThanTheBudgetOrHasTheWrongSizeIsRefused) {
  change_batch_ = [](uint64_t, LeasedBatch* batch) { batch->lag_limit = 5; };
  EXPECT_EQ(Run().code(), absl::StatusCode::kInternal);
  UseDirectory("size");
  change_batch_ = [](uint64_t, LeasedBatch* batch) { batch->groups.pop_back(); };
  EXPECT_EQ(Run().code(), absl::StatusCode::kInternal);
  // A queue that was started with larger groups.
  UseDirectory("members");
  change_batch_ = [](uint64_t, LeasedBatch* batch) {
    batch->groups[1].members.push_back(batch->groups[1].members[0]);
    batch->groups[1].members.back().mutable_key()->set_member(kMembers);
  };
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("ticket 2"), HasSubstr("trainer.group_size")));
}

TEST_F(TrainerFaultTest, GroupsWithFalseLogprobsAreRetiredAndReplaced) {
  ASSERT_TRUE(Run().ok());
  const std::string expected = Claimed(4);
  UseDirectory("false");
  change_batch_ = [](uint64_t step, LeasedBatch* batch) {
    if (step == 2) {
      for (float& logprob : *batch->groups[0].members[3].mutable_spans(1)->mutable_logprobs()) logprob = 0.0f;
      auto* shifted = batch->groups[2].members[1].mutable_spans(1)->mutable_logprobs();
      std::rotate(shifted->begin(), shifted->begin() + 1, shifted->end());
    }
    if (step == 3) batch->groups[1].members[0].mutable_spans(3)->mutable_logprobs()->RemoveLast();
  };
  ASSERT_TRUE(Run().ok());
  const auto retired = queue_->retired();
  ASSERT_THAT(retired, SizeIs(3));
  EXPECT_EQ(retired[0].ticket, 4u);
  EXPECT_EQ(retired[0].reason, "logprob_mismatch");
  EXPECT_EQ(retired[1].ticket, 6u);
  EXPECT_EQ(retired[1].step, 2u);
  EXPECT_EQ(retired[2].ticket, 8u);
  EXPECT_EQ(retired[2].reason, "malformed_trajectory");
  EXPECT_EQ(Lines("metrics.jsonl").back()["groups/refused"], 3);
  // The replacements are what an honest queue would have given at once.
  EXPECT_EQ(Claimed(4), expected);
  // The next life of the trainer goes on counting.
  options_.steps = 5;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Lines("metrics.jsonl").back()["step"], 5);
  EXPECT_EQ(Lines("metrics.jsonl").back()["groups/refused"], 3);
}

TEST_F(TrainerFaultTest, AStepWhoseGroupsAllLieEndsTheRun) {
  replaces_ = false;
  options_.max_refused_groups = 5;
  change_batch_ = [](uint64_t, LeasedBatch* batch) {
    for (float& logprob : *batch->groups[1].members[0].mutable_spans(1)->mutable_logprobs()) logprob = -0.25f;
  };
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("logprob_mismatch"));
  EXPECT_THAT(queue_->retired(), SizeIs(6));
}

TEST_F(TrainerFaultTest, AnInconsistentCacheIsNotHeldToTheBits) {
  change_batch_ = [](uint64_t, LeasedBatch* batch) {
    batch->groups[0].members[0].set_kv_cache_consistent(false);
    batch->groups[0].members[0].mutable_spans(1)->set_logprobs(0, -1.0f);
  };
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(queue_->retired(), IsEmpty());
  EXPECT_NE(Lines("metrics.jsonl")[0]["mismatch/k1"], 0);
}

TEST_F(TrainerFaultTest, AReceiverThatFailsInAPublishIsFencedAtTheQueue) {
  v1::WorkerIdentity good, bad;
  good.set_producer_id(1);
  good.set_epoch(1);
  bad.set_producer_id(2);
  bad.set_epoch(7);
  members_ = {good, bad};
  on_commit_ = [&](uint64_t version, FakeWeightPublisher* publisher) {
    if (version == 2) publisher->FenceInNextPrepare(bad, "digest differs");
  };
  ASSERT_TRUE(Run().ok());
  const auto fenced = queue_->fenced();
  ASSERT_THAT(fenced, SizeIs(1));
  EXPECT_EQ(fenced[0].identity.producer_id(), 2u);
  EXPECT_EQ(fenced[0].identity.epoch(), 7u);
  EXPECT_EQ(fenced[0].reason, "digest differs");
  EXPECT_EQ(queue_->commits()[1].members_size(), 2);
  ASSERT_EQ(queue_->commits()[2].members_size(), 1);
  EXPECT_EQ(queue_->commits()[2].members(0).producer_id(), 1u);
  EXPECT_EQ(Lines("metrics.jsonl")[1]["weights/fenced"], 1);
  EXPECT_EQ(Lines("metrics.jsonl")[1]["weights/members"], 1);
}

TEST_F(TrainerFaultTest, ARefusedCommitMeansRestartAndALostLineageToo) {
  on_commit_ = [&](uint64_t version, FakeWeightPublisher*) {
    if (version == 2) queue_->FailNext("Commit", absl::FailedPreconditionError("ticket 4 is not leased"));
  };
  const absl::Status refused = Run();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("ticket 4 is not leased"));
  EXPECT_THAT(calls_, Not(Contains("commit 1.3")));
  UseDirectory("lease");
  on_commit_ = nullptr;
  queue_->FailNext("LeaseBatch", absl::AbortedError("another lineage"));
  EXPECT_EQ(Run().code(), absl::StatusCode::kAborted);
  // A ledger that disagrees is answered by a restore too.
  UseDirectory("order");
  queue_->FailNext("LeaseBatch", absl::FailedPreconditionError("step 1 is not the next one"));
  EXPECT_EQ(Run().code(), absl::StatusCode::kAborted);
}

TEST_F(TrainerFaultTest, AQueueThatIsAwayForAMomentIsAskedAgain) {
  for (const char* method : {"AllocateLineage", "Restore", "LeaseBatch", "Commit", "LedgerSnapshot", "Settle"}) {
    UseDirectory(method);
    queue_->FailNext(method, absl::UnavailableError("away"));
    EXPECT_TRUE(Run().ok()) << method;
    EXPECT_EQ(finished_, 4);
  }
  UseDirectory("gone");
  for (int i = 0; i < 100; ++i) queue_->FailNext("LeaseBatch", absl::UnavailableError("gone"));
  EXPECT_EQ(Run().code(), absl::StatusCode::kUnavailable);
}

TEST_F(TrainerFaultTest, ACheckpointThatTheQueueWantsIsWrittenAfterTheStep) {
  options_.checkpoint_every = 0;
  v1::StatusResponse status;
  status.set_checkpoint_wanted(true);
  queue_->SetStatus(status);
  on_commit_ = [&](uint64_t version, FakeWeightPublisher*) {
    if (version == 4) queue_->SetStatus(v1::StatusResponse());
  };
  change_batch_ = [&](uint64_t step, LeasedBatch*) {
    EXPECT_EQ(Exists("checkpoints/step-" + std::to_string(step - 1)), step == 2 || step == 3) << step;
  };
  ASSERT_TRUE(Run().ok());
  // Steps 1 and 2 have checkpoints; the end settles the rest.
  EXPECT_THAT(queue_->settled(), ElementsAre(1, 2, 4));
}

// From step `first` on, there is no batch until all but the last of the steps before it are settled.
void NeedRoomFrom(uint64_t first, const ReplacingQueue& queue, uint64_t step, LeasedBatch* batch) {
  if (step < first || queue.settled_through + 2 >= first) return;
  batch->groups.clear();
  batch->cause = "queue_needs_checkpoint";
}

TEST_F(TrainerFaultTest, AQueueWithoutRoomGetsACheckpointAndTheStepsBeforeItAreSettled) {
  change_batch_ = [&](uint64_t step, LeasedBatch* batch) { NeedRoomFrom(4, *queue_, step, batch); };
  ASSERT_TRUE(Run().ok());
  EXPECT_FALSE(Exists("checkpoints/step-2"));  // two are kept
  EXPECT_TRUE(Exists("checkpoints/step-3"));
  EXPECT_THAT(queue_->settled(), ElementsAre(2, 3, 4));
}

TEST_F(TrainerFaultTest, AQueueWithoutRoomIsAskedToSettleAgainWhatADeadTrainerDidNot) {
  options_.steps = 6;
  on_commit_ = [&](uint64_t version, FakeWeightPublisher*) {
    if (version != 5 || queue_->lineage() != 1) return;
    // Not the call before the checkpoint is put in place, but the one that settles.
    queue_->FailNext("Settle", absl::OkStatus());
    queue_->FailNext("Settle", absl::AbortedError("fenced"));
  };
  change_batch_ = [&](uint64_t step, LeasedBatch* batch) { AwaitCheckpoint(step, batch); };
  EXPECT_EQ(Run().code(), absl::StatusCode::kAborted);
  ASSERT_THAT(queue_->settled(), IsEmpty());
  ASSERT_TRUE(RealFileSystem()->Exists(JoinPath(options_.run_directory, "checkpoints/step-4")));
  change_batch_ = [&](uint64_t step, LeasedBatch* batch) { NeedRoomFrom(4, *queue_, step, batch); };
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(queue_->settled(), ElementsAre(2, 4, 6));
}

TEST_F(TrainerFaultTest, AQueueThatNoCheckpointCanMakeRoomInEndsTheRunWithTheRemedy) {
  options_.checkpoint_every = 0;
  change_batch_ = [&](uint64_t step, LeasedBatch* batch) { NeedRoomFrom(3, *queue_, step, batch); };
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("queue.max_bytes"));
  // One checkpoint is not enough, but it is there for the next start.
  EXPECT_TRUE(Exists("checkpoints/step-2"));
  EXPECT_THAT(queue_->settled(), IsEmpty());
}

TEST_F(TrainerFaultTest, AQueueWithoutRoomAndADiskWithoutRoomEndTheRunAndSettleNothing) {
  FaultyFileSystem faulty([](absl::string_view, const std::string& path) {
    const bool hit = path.find("checkpoints/.tmp-step-3") != std::string::npos;
    return hit ? absl::ResourceExhaustedError("no space") : absl::OkStatus();
  });
  files_ = &faulty;
  change_batch_ = [&](uint64_t step, LeasedBatch* batch) { NeedRoomFrom(4, *queue_, step, batch); };
  const absl::Status status = Run();
  files_ = RealFileSystem();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step 3"), HasSubstr("no space"), HasSubstr("full"), HasSubstr(options_.run_directory)));
  EXPECT_THAT(queue_->settled(), IsEmpty());
}

TEST_F(TrainerFaultTest, ALastCheckpointThatFailsNamesItsCause) {
  FaultyFileSystem faulty([](absl::string_view, const std::string& path) {
    const bool hit = path.find("checkpoints/.tmp-step-4") != std::string::npos;
    return hit ? absl::ResourceExhaustedError("no space") : absl::OkStatus();
  });
  files_ = &faulty;
  const absl::Status status = Run();
  files_ = RealFileSystem();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("step 4"), HasSubstr("no space")));
}

TEST_F(TrainerFaultTest, ADiskThatFailsACheckpointDoesNotEndTheTraining) {
  bool full = true;
  FaultyFileSystem faulty([&](absl::string_view, const std::string& path) {
    const bool hit = full && path.find("checkpoints/.tmp-step-2") != std::string::npos;
    return hit ? absl::ResourceExhaustedError("no space") : absl::OkStatus();
  });
  files_ = &faulty;
  ASSERT_TRUE(Run().ok());
  EXPECT_FALSE(Exists("checkpoints/step-2"));
  EXPECT_TRUE(Exists("checkpoints/step-4"));
  files_ = RealFileSystem();
}

// ---- waiting for the queue
// -------------------------------------------------------------------------------------------

class QueuePatienceTest : public ::testing::Test {
 protected:
  // A call that takes `seconds` and gives `status`.
  absl::Status Call(double seconds, const absl::Status& status) {
    return patience_("Commit", [&] {
      clock_.Advance(absl::Seconds(seconds));
      return status;
    });
  }
  double SecondsIn(const std::string& state) {
    const std::map<std::string, absl::Duration> totals = states_.Totals();
    const auto found = totals.find(state);
    return found == totals.end() ? 0 : absl::ToDoubleSeconds(found->second);
  }

  FakeClock clock_;
  StateClock states_{&clock_};
  std::atomic<bool> stop_{false};
  QueuePatience patience_{absl::Seconds(10), &stop_, &states_, &clock_};
};

TEST_F(QueuePatienceTest, WaitingForAnAnswerIsAWaitAndEndsWithIt) {
  states_.Enter("busy:publish");
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(Call(2, absl::OkStatus()).ok());
  EXPECT_EQ(states_.current(), "busy:publish");
  EXPECT_EQ(SecondsIn("wait:queue_answer"), 2);
  EXPECT_EQ(SecondsIn("busy:publish"), 1);
}

TEST_F(QueuePatienceTest, CallerWhoSaidWhatItWaitsForKeepsItsWords) {
  states_.Enter("wait:waiting_for_groups");
  EXPECT_TRUE(Call(3, absl::OkStatus()).ok());
  EXPECT_EQ(SecondsIn("wait:waiting_for_groups"), 3);
  EXPECT_EQ(SecondsIn("wait:queue_answer"), 0);
}

TEST_F(QueuePatienceTest, OneSilentCallDoesNotEndThePatience) {
  int calls = 0;
  const absl::Status status = patience_("Commit", [&] {
    clock_.Advance(absl::Seconds(6));
    return ++calls < 2 ? absl::DeadlineExceededError("no answer") : absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(calls, 2);
}

TEST_F(QueuePatienceTest, EndsWithTheLastErrorOnceTheLimitHasPassed) {
  int calls = 0;
  const absl::Status status = patience_("Commit", [&] {
    clock_.Advance(absl::Seconds(6));
    ++calls;
    return absl::UnavailableError("nobody");
  });
  EXPECT_EQ(status, absl::UnavailableError("nobody"));
  EXPECT_EQ(calls, 2);
}

TEST_F(QueuePatienceTest, RefusalOutOfOrderMeansANewStart) {
  EXPECT_EQ(Call(1, absl::FailedPreconditionError("not leased")).code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace leeway
