#include <signal.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launch/supervision/fake_process_spawner.h"
#include "launch/supervision/supervisor.h"

namespace leeway {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Observer : public SupervisionObserver {
 public:
  void OnEvent(const std::string& line, const std::string& log_path) override { events.push_back(line); }
  Pulse OnPulse(const SupervisionPolicy& policy) override {
    ++pulses;
    Pulse pulse = next;
    next = Pulse{};
    return pulse;
  }
  std::vector<std::string> events;
  int pulses = 0;
  Pulse next;
};

// A job of a queue, a trainer and two rollout workers whose logs are named like them.
class SupervisorTest : public ::testing::Test {
 protected:
  static std::vector<Supervisor::Child> Children() {
    const auto child = [](const std::string& name, ProcessRole role) {
      return Supervisor::Child{{name, role}, {"leeway-" + name, {}, {}, name}, {}};
    };
    return {child("queue-0", ProcessRole::kQueue), child("trainer-0", ProcessRole::kTrainer),
            child("rollout-0", ProcessRole::kRollout), child("rollout-1", ProcessRole::kRollout)};
  }
  MonotonicTime After(double seconds) { return MonotonicTime{absl::Seconds(1 + seconds)}; }
  void EndAt(double seconds, const std::string& name, ChildExit exit) {
    spawner_.At(After(seconds), [this, name, exit] { spawner_.End(name, exit); });
  }

  FakeClock clock_;
  FakeProcessSpawner spawner_{&clock_};
  Observer observer_;
  SupervisionOptions options_;
  Supervisor supervisor_{options_, Children(), &spawner_, &observer_, &clock_};
};

TEST_F(SupervisorTest, TrainerDoneEndsTheJobWithZero) {
  EndAt(5, "trainer-0", {});
  EXPECT_EQ(supervisor_.Run(), ExitCode::kDone);
  EXPECT_EQ(supervisor_.policy().reason(), "training is complete");
  EXPECT_THAT(spawner_.history, ElementsAre("start queue-0", "start trainer-0", "start rollout-0", "start rollout-1",
                                            "signal queue-0 15", "signal rollout-0 15", "signal rollout-1 15"));
  EXPECT_EQ(supervisor_.cpu_seconds().at("trainer-0"), 1.0);
}

TEST_F(SupervisorTest, DeadRolloutWorkerComesBackAfterItsBackOff) {
  EndAt(1, "rollout-1", {0, SIGKILL});
  spawner_.At(After(1.19), [this] { EXPECT_FALSE(supervisor_.policy().is_running(3)); });
  spawner_.At(After(1.3), [this] { EXPECT_TRUE(supervisor_.policy().is_running(3)); });
  EndAt(2, "trainer-0", {});
  EXPECT_EQ(supervisor_.Run(), ExitCode::kDone);
  EXPECT_EQ(supervisor_.policy().restarts(3), 1);
  EXPECT_THAT(observer_.events, Contains(HasSubstr("rollout-1 ended: killed by signal 9")));
}

TEST_F(SupervisorTest, WorkerThatEndsCleanlyIsNotRestarted) {
  EndAt(1, "rollout-0", {});
  EndAt(1, "rollout-1", {});
  EndAt(3, "trainer-0", {});
  EXPECT_EQ(supervisor_.Run(), ExitCode::kDone);
  EXPECT_EQ(supervisor_.policy().restarts(2), 0);
}

TEST_F(SupervisorTest, WorkersThatEndedComeBackWithTheTrainer) {
  EndAt(1, "rollout-0", {});
  EndAt(2, "trainer-0", {0, SIGKILL});
  spawner_.At(After(2.1), [this] { EXPECT_FALSE(supervisor_.policy().is_running(2)); });
  spawner_.At(After(2.3), [this] { EXPECT_TRUE(supervisor_.policy().is_running(2)); });
  EndAt(3, "trainer-0", {});
  EXPECT_EQ(supervisor_.Run(), ExitCode::kDone);
  EXPECT_EQ(supervisor_.policy().restarts(2), 1);
  EXPECT_EQ(supervisor_.policy().restarts(3), 0);
}

TEST_F(SupervisorTest, TrainerIsRestartedUntilItsCap) {
  for (int i = 0; i < 6; ++i) EndAt(20.0 * i + 1, "trainer-0", {static_cast<int>(ExitCode::kPeerLost), 0});
  EXPECT_EQ(supervisor_.Run(), ExitCode::kPeerLost);
  EXPECT_EQ(supervisor_.policy().restarts(1), 5);
  EXPECT_THAT(supervisor_.policy().reason(), HasSubstr("trainer-0 died 6 times in a row without progress"));
}

TEST_F(SupervisorTest, ProgressForgivesEarlierDeaths) {
  for (int i = 0; i < 8; ++i) {
    EndAt(20.0 * i + 1, "trainer-0", {0, SIGSEGV});
    spawner_.At(After(20.0 * i + 15), [this] { observer_.next.made_progress = true; });
  }
  EndAt(200, "trainer-0", {});
  EXPECT_EQ(supervisor_.Run(), ExitCode::kDone);
  EXPECT_EQ(supervisor_.policy().restarts(1), 8);
}

// A job whose trainer is three ranks.
class TrainerRanksTest : public SupervisorTest {
 protected:
  static std::vector<Supervisor::Child> RankChildren() {
    std::vector<Supervisor::Child> children = Children();
    for (const char* name : {"trainer-1", "trainer-2"}) {
      Supervisor::Child child = children[1];
      child.process.name = name;
      child.command.executable = std::string("leeway-") + name;
      child.command.log_path = name;
      children.push_back(child);
    }
    return children;
  }
  // Every rank's number of restarts.
  std::vector<int> Restarts() const {
    return {ranks_.policy().restarts(1), ranks_.policy().restarts(4), ranks_.policy().restarts(5)};
  }

  Supervisor ranks_{options_, RankChildren(), &spawner_, &observer_, &clock_};
};

TEST_F(TrainerRanksTest, AllStartAgainTogetherOnceAllAreGone) {
  EndAt(1, "trainer-1", {0, SIGKILL});
  EndAt(2, "trainer-0", {static_cast<int>(ExitCode::kPeerLost), 0});
  spawner_.At(After(2.5), [this] { EXPECT_THAT(Restarts(), ElementsAre(0, 0, 0)); });
  EndAt(3, "trainer-2", {static_cast<int>(ExitCode::kPeerLost), 0});
  spawner_.At(After(3.3), [this] { EXPECT_THAT(Restarts(), ElementsAre(1, 1, 1)); });
  EndAt(5, "trainer-0", {});
  EXPECT_EQ(ranks_.Run(), ExitCode::kDone);
  EXPECT_THAT(Restarts(), ElementsAre(1, 1, 1));
  // Nobody had to be killed, and the workers went on.
  EXPECT_THAT(spawner_.history, Not(Contains(HasSubstr(" 9"))));
  EXPECT_EQ(ranks_.policy().restarts(2), 0);
}

TEST_F(TrainerRanksTest, ARankThatHangsIsKilledAfterTheGrace) {
  EndAt(1, "trainer-0", {static_cast<int>(ExitCode::kStalled), 0});
  EndAt(1.01, "trainer-1", {static_cast<int>(ExitCode::kStalled), 0});
  spawner_.At(After(5.9), [this] { EXPECT_THAT(spawner_.history, Not(Contains("signal trainer-2 9"))); });
  spawner_.At(After(6.5), [this] {
    EXPECT_THAT(spawner_.history, Contains("signal trainer-2 9"));
    EXPECT_THAT(Restarts(), ElementsAre(1, 1, 1));
  });
  EndAt(13, "trainer-0", {});
  EXPECT_EQ(ranks_.Run(), ExitCode::kDone);
}

TEST_F(TrainerRanksTest, ARankThatHasHeardOfTheEndIsNoFailureAndRankZeroEndsTheJob) {
  spawner_.ignores_terminate = {"trainer-1"};  // it follows rank 0, not signals
  EndAt(1, "trainer-2", {});
  EndAt(2, "trainer-0", {});
  spawner_.At(After(1.5), [this] { EXPECT_FALSE(ranks_.policy().is_ending()); });
  EndAt(2.1, "trainer-1", {});
  spawner_.At(After(2.05), [this] { EXPECT_THAT(spawner_.history, Not(Contains("signal queue-0 15"))); });
  EXPECT_EQ(ranks_.Run(), ExitCode::kDone);
  EXPECT_EQ(ranks_.policy().reason(), "training is complete");
  // The queue goes after the last rank, by itself.
  EXPECT_THAT(spawner_.history, Contains("signal queue-0 15"));
  EXPECT_THAT(spawner_.history, Not(Contains(HasSubstr(" 9"))));
}

TEST_F(TrainerRanksTest, WhatCanNotHelpEndsTheJobAlsoWhenAnotherRankDiedFirst) {
  EndAt(1, "trainer-1", {static_cast<int>(ExitCode::kPeerLost), 0});
  EndAt(1.1, "trainer-0", {static_cast<int>(ExitCode::kConfiguration), 0});
  EXPECT_EQ(ranks_.Run(), ExitCode::kConfiguration);
  EXPECT_THAT(ranks_.policy().reason(), HasSubstr("trainer-0 ended with exit code 2"));
}

TEST_F(TrainerRanksTest, TheRankThatFailedByItselfIsBlamedAndNotWhoLostIt) {
  options_.max_restarts = 0;
  Supervisor ranks(options_, RankChildren(), &spawner_, &observer_, &clock_);
  EndAt(1, "trainer-1", {static_cast<int>(ExitCode::kPeerLost), 0});
  EndAt(1.1, "trainer-2", {0, SIGSEGV});
  EndAt(1.2, "trainer-0", {static_cast<int>(ExitCode::kPeerLost), 0});
  EXPECT_EQ(ranks.Run(), ExitCode::kPeerLost);
  EXPECT_THAT(ranks.policy().reason(), HasSubstr("trainer-2 died"));
}

TEST_F(TrainerRanksTest, AnInterruptBetweenTheDeathOfRankZeroAndThatOfTheOthersEndsTheJobWithThem) {
  spawner_.ignores_terminate = {"trainer-1", "trainer-2"};  // they follow rank 0, not signals
  EndAt(1, "trainer-0", {0, SIGKILL});
  spawner_.At(After(1.1), [this] { spawner_.Interrupt(); });
  EndAt(1.5, "trainer-1", {static_cast<int>(ExitCode::kPeerLost), 0});
  EndAt(2, "trainer-2", {static_cast<int>(ExitCode::kPeerLost), 0});
  EXPECT_EQ(ranks_.Run(), ExitCode::kOther);
  EXPECT_LT(clock_.Now(), After(3));
  EXPECT_THAT(ranks_.policy().reason(), HasSubstr("interrupted; trainer-0 ended with killed by signal 9"));
  EXPECT_THAT(Restarts(), ElementsAre(0, 0, 0));
}

TEST_F(TrainerRanksTest, AnInterruptDoesNotLetRanksHang) {
  spawner_.ignores_terminate = {"trainer-1", "trainer-2"};
  EndAt(1, "trainer-0", {0, SIGKILL});
  EndAt(1.1, "trainer-1", {static_cast<int>(ExitCode::kPeerLost), 0});
  spawner_.At(After(1.2), [this] { spawner_.Interrupt(); });
  EXPECT_EQ(ranks_.Run(), ExitCode::kOther);
  // Not after the time for draining.
  EXPECT_LT(clock_.Now(), After(1) + options_.rank_grace + absl::Seconds(1));
}

TEST_F(TrainerRanksTest, AFollowerThatDiesWhileTheJobDrainsTakesAHungLeaderAlong) {
  spawner_.ignores_terminate = {"trainer-0", "trainer-1", "trainer-2"};
  spawner_.At(After(1), [this] { spawner_.Interrupt(); });
  EndAt(2, "trainer-1", {0, SIGKILL});
  EXPECT_EQ(ranks_.Run(), ExitCode::kOther);
  EXPECT_LT(clock_.Now(), After(2) + options_.rank_grace + absl::Seconds(1));
}

TEST_F(SupervisorTest, QueueDeathEndsTheJobAndKillsWhoDoesNotGo) {
  spawner_.ignores_terminate = {"rollout-0"};
  EndAt(2, "queue-0", {0, SIGKILL});
  EXPECT_EQ(supervisor_.Run(), ExitCode::kPeerLost);
  EXPECT_THAT(supervisor_.policy().reason(), HasSubstr("the queue died (killed by signal 9"));
  EXPECT_EQ(spawner_.history.back(), "signal rollout-0 9");
  EXPECT_EQ(clock_.Now(), After(12));
}

TEST(SupervisionPolicyTest, ADurableQueueComesBackAndNobodyElseIsTouched) {
  SupervisionOptions options;
  options.is_queue_durable = true;
  options.max_restarts = 2;
  SupervisionPolicy policy(options, {{"queue-0", ProcessRole::kQueue}, {"trainer-0", ProcessRole::kTrainer}});
  policy.Start();
  const MonotonicTime start{absl::Seconds(5)};
  EXPECT_TRUE(policy.OnExit(0, {0, SIGKILL}, start).empty());
  EXPECT_FALSE(policy.is_ending());
  EXPECT_EQ(policy.next_time(), start + options.backoff);
  const std::vector<SupervisionAction> restart = policy.OnTime(start + options.backoff);
  ASSERT_EQ(restart.size(), 1u);
  EXPECT_EQ(restart[0].kind, SupervisionAction::Kind::kStart);
  EXPECT_EQ(restart[0].process, 0);
  // Without progress in between its restarts end, and with them the job.
  EXPECT_TRUE(policy.OnExit(0, {1, 0}, start + absl::Seconds(1)).empty());
  policy.OnTime(start + absl::Seconds(2));
  policy.OnExit(0, {1, 0}, start + absl::Seconds(3));
  EXPECT_TRUE(policy.is_ending());
  EXPECT_EQ(policy.exit_code(), ExitCode::kPeerLost);
  EXPECT_THAT(policy.reason(), HasSubstr("queue-0 died 3 times in a row"));
}

TEST(SupervisionPolicyTest, ADurableQueueComesBackForTheLastCheckpointOfADrainingTrainer) {
  SupervisionOptions options;
  options.is_queue_durable = true;
  SupervisionPolicy policy(options, {{"queue-0", ProcessRole::kQueue}, {"trainer-0", ProcessRole::kTrainer}});
  policy.Start();
  const MonotonicTime start{absl::Seconds(5)};
  policy.OnExit(0, {0, SIGKILL}, start);
  policy.OnInterrupt(start);  // while the queue is away
  ASSERT_TRUE(policy.is_draining());
  EXPECT_EQ(policy.OnTime(start + options.backoff).size(), 1u);
  EXPECT_TRUE(policy.is_running(0));
  policy.OnExit(0, {0, SIGKILL}, start + absl::Seconds(1));  // and once more
  EXPECT_TRUE(policy.is_draining());
  EXPECT_EQ(policy.OnTime(start + absl::Seconds(3)).size(), 1u);
  // The trainer is through: the queue ends, and nobody is started again.
  const std::vector<SupervisionAction> end = policy.OnExit(1, {0, 0}, start + absl::Seconds(4));
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(end[0].kind, SupervisionAction::Kind::kTerminate);
  EXPECT_TRUE(policy.OnExit(0, {0, SIGKILL}, start + absl::Seconds(5)).empty());
  EXPECT_TRUE(policy.OnTime(start + absl::Seconds(9)).empty());
  EXPECT_TRUE(policy.is_finished());
  EXPECT_EQ(policy.reason(), "interrupted");
}

TEST(SupervisionPolicyTest, AStoreThatIsRefusedEndsTheJobAtOnce) {
  SupervisionOptions options;
  options.is_queue_durable = true;
  SupervisionPolicy policy(options, {{"queue-0", ProcessRole::kQueue}, {"trainer-0", ProcessRole::kTrainer}});
  policy.Start();
  policy.OnExit(0, {static_cast<int>(ExitCode::kDataRefused), 0}, MonotonicTime{absl::Seconds(5)});
  EXPECT_TRUE(policy.is_ending());
  EXPECT_EQ(policy.exit_code(), ExitCode::kDataRefused);
}

// A full disk or a lost folder: at the start it is told at once, later it may pass.
TEST(SupervisionPolicyTest, TroubleAroundAQueueThatHasWorkedMayPass) {
  SupervisionOptions options;
  options.is_queue_durable = true;
  const ChildExit environment = {static_cast<int>(ExitCode::kEnvironment), 0};
  SupervisionPolicy fresh(options, {{"queue-0", ProcessRole::kQueue}});
  fresh.Start();
  fresh.OnExit(0, environment, MonotonicTime());
  EXPECT_EQ(fresh.exit_code(), ExitCode::kEnvironment);

  SupervisionPolicy policy(options, {{"queue-0", ProcessRole::kQueue}});
  policy.Start();
  policy.OnExit(0, {0, SIGKILL}, MonotonicTime());
  for (int restart = 1; restart <= options.max_restarts; ++restart) {
    ASSERT_FALSE(policy.is_ending()) << restart;
    const MonotonicTime due = policy.next_time();
    ASSERT_EQ(policy.OnTime(due).size(), 1u);
    policy.OnExit(0, environment, due);
  }
  EXPECT_EQ(policy.exit_code(), ExitCode::kEnvironment);
  EXPECT_THAT(policy.reason(), HasSubstr("without progress"));
}

TEST_F(SupervisorTest, ConfigurationErrorOfTheQueueIsTheJobs) {
  EndAt(1, "queue-0", {static_cast<int>(ExitCode::kConfiguration), 0});
  EXPECT_EQ(supervisor_.Run(), ExitCode::kConfiguration);
}

TEST_F(SupervisorTest, ConfigurationErrorOfARoleIsNotRetried) {
  EndAt(1, "rollout-0", {static_cast<int>(ExitCode::kConfiguration), 0});
  EXPECT_EQ(supervisor_.Run(), ExitCode::kConfiguration);
  EXPECT_EQ(supervisor_.policy().restarts(2), 0);
}

TEST_F(SupervisorTest, GivenUpWorkersEndTheJobOnlyTogether) {
  for (int i = 0; i < 6; ++i) EndAt(20.0 * i + 1, "rollout-0", {0, SIGABRT});
  spawner_.At(After(150), [this] { EXPECT_FALSE(supervisor_.policy().is_ending()); });
  for (int i = 0; i < 6; ++i) EndAt(200 + 20.0 * i, "rollout-1", {0, SIGABRT});
  EXPECT_EQ(supervisor_.Run(), ExitCode::kPeerLost);
  EXPECT_THAT(supervisor_.policy().reason(), HasSubstr("rollout-1 died 6 times"));
}

TEST_F(SupervisorTest, InterruptDrainsTrainerBeforeQueue) {
  spawner_.At(After(3), [this] { spawner_.Interrupt(); });
  EXPECT_EQ(supervisor_.Run(), ExitCode::kOther);
  EXPECT_EQ(supervisor_.policy().reason(), "interrupted");
  EXPECT_THAT(spawner_.history,
              ElementsAre("start queue-0", "start trainer-0", "start rollout-0", "start rollout-1",
                          "signal trainer-0 15", "signal rollout-0 15", "signal rollout-1 15", "signal queue-0 15"));
}

TEST_F(SupervisorTest, SecondInterruptKills) {
  spawner_.ignores_terminate = {"trainer-0"};
  spawner_.At(After(3), [this] { spawner_.Interrupt(); });
  spawner_.At(After(4), [this] { spawner_.Interrupt(); });
  EXPECT_EQ(supervisor_.Run(), ExitCode::kOther);
  EXPECT_THAT(spawner_.history, Contains("signal trainer-0 9"));
  EXPECT_EQ(clock_.Now(), After(4));
}

TEST_F(SupervisorTest, DrainThatTakesTooLongIsKilled) {
  spawner_.ignores_terminate = {"trainer-0"};
  spawner_.At(After(3), [this] { spawner_.Interrupt(); });
  EXPECT_EQ(supervisor_.Run(), ExitCode::kOther);
  EXPECT_THAT(supervisor_.policy().reason(), HasSubstr("not drained within 30s"));
  EXPECT_EQ(clock_.Now(), After(33));
}

TEST_F(SupervisorTest, StallEndsTheJobNamingTheCulprit) {
  spawner_.At(After(3),
              [this] { observer_.next.stall_diagnosis = "trainer waits for groups; ticket 17 runs on rollout-1"; });
  EXPECT_EQ(supervisor_.Run(), ExitCode::kStalled);
  EXPECT_THAT(supervisor_.policy().reason(), HasSubstr("ticket 17"));
}

TEST_F(SupervisorTest, QueueStaysUntilTheTrainerHasGone) {
  spawner_.At(After(3), [this] { observer_.next.stall_diagnosis = "nothing moves"; });
  EXPECT_EQ(supervisor_.Run(), ExitCode::kStalled);
  const std::vector<std::string> ends(spawner_.history.begin() + 4, spawner_.history.end());
  EXPECT_THAT(ends,
              ElementsAre("signal trainer-0 15", "signal rollout-0 15", "signal rollout-1 15", "signal queue-0 15"));
}

TEST_F(SupervisorTest, GoalEndsTheJobWithZero) {
  spawner_.At(After(3), [this] { observer_.next.goal = "evaluation is complete"; });
  EXPECT_EQ(supervisor_.Run(), ExitCode::kDone);
  EXPECT_EQ(supervisor_.policy().reason(), "evaluation is complete");
}

TEST_F(SupervisorTest, ProgramThatCanNotBeStartedIsAnEnvironmentError) {
  spawner_.fails_to_spawn = {"trainer-0"};
  EXPECT_EQ(supervisor_.Run(), ExitCode::kEnvironment);
  EXPECT_THAT(spawner_.history, Not(Contains("start rollout-0")));
  EXPECT_THAT(supervisor_.policy().reason(), HasSubstr("trainer-0 could not be started"));
}

}  // namespace
}  // namespace leeway
