#include "queue/policy/evaluation_plan.h"

#include <set>

#include "gtest/gtest.h"

namespace leeway {
namespace {

const MonotonicTime kStart{absl::Seconds(100)};

v1::WeightsVersion Weights(uint64_t version, uint64_t lineage = 1) {
  v1::WeightsVersion weights;
  weights.set_lineage(lineage);
  weights.set_version(version);
  return weights;
}

EvaluationOptions Options(uint64_t every, uint32_t episodes) {
  EvaluationOptions options;
  options.every = every;
  options.episodes = episodes;
  options.deadline = absl::Seconds(60);
  return options;
}

TrajectorySummary Result(const EvaluationPlan::Assignment& assignment, double reward) {
  TrajectorySummary summary;
  summary.evaluation = true;
  summary.completed = true;
  summary.key.set_ticket(assignment.id);
  summary.key.set_issue(assignment.issue);
  summary.reward = reward;
  AddVersion(assignment.weights.lineage(), assignment.weights.version(), &summary.versions);
  return summary;
}

TEST(EvaluationPlanTest, EvaluatesTheFirstEveryNthAndTheLastVersion) {
  EvaluationPlan plan(Options(5, 1), /*last_version=*/14);
  std::set<uint64_t> planned;
  for (uint64_t version = 1; version <= 14; ++version) {
    if (plan.OnCommit(Weights(version), {}, kStart)) planned.insert(version);
  }
  EXPECT_EQ(planned, (std::set<uint64_t>{1, 6, 11, 14}));
  EvaluationPlan none(Options(0, 1), 14);
  EXPECT_FALSE(none.OnCommit(Weights(1), {}, kStart));
  EXPECT_TRUE(none.idle());
}

TEST(EvaluationPlanTest, MeansOverScoredEpisodesOnlyAndReportsFailures) {
  EvaluationPlan plan(Options(1, 4), 2);
  ASSERT_TRUE(plan.OnCommit(Weights(1), {}, kStart));
  const auto tickets = plan.Acquire(1, Weights(1), 10);
  ASSERT_EQ(tickets.size(), 4u);
  std::string reason;
  EXPECT_EQ(plan.Push(1, Result(tickets[3], 1.0), &reason), v1::ACCEPTED);
  EXPECT_EQ(plan.Push(1, Result(tickets[3], 1.0), &reason), v1::DUPLICATE);
  TrajectorySummary failed = Result(tickets[1], 0.0);
  failed.completed = false;
  failed.reward.reset();
  failed.versions.clear();
  EXPECT_EQ(plan.Push(1, failed, &reason), v1::ACCEPTED);
  EXPECT_FALSE(plan.idle());
  EXPECT_FALSE(plan.Results()[0].complete());
  EXPECT_EQ(plan.Results()[0].episodes(), 2u);
  EXPECT_EQ(plan.Results()[0].reward_mean(), 1.0);
  TrajectorySummary unscored = Result(tickets[2], 0.0);
  unscored.reward.reset();
  EXPECT_EQ(plan.Push(1, unscored, &reason), v1::ACCEPTED);
  EXPECT_EQ(plan.Push(1, Result(tickets[0], 0.0), &reason), v1::ACCEPTED);
  ASSERT_TRUE(plan.idle());
  const v1::EvaluationResult result = plan.Results()[0];
  EXPECT_TRUE(result.complete());
  EXPECT_EQ(result.episodes(), 4u);
  EXPECT_EQ(result.failed(), 2u);
  EXPECT_EQ(result.reward_mean(), 0.5);
  EXPECT_EQ(plan.Push(1, Result(tickets[0], 0.0), &reason), v1::GROUP_CLOSED);
}

TEST(EvaluationPlanTest, OnlyWorkersThatCanRunTheVersionGetIt) {
  EvaluationPlan plan(Options(5, 2), 100);
  ASSERT_TRUE(plan.OnCommit(Weights(6), {1, 2}, kStart));
  EXPECT_EQ(plan.Reachable(1, Weights(5)), 2u);  // a member that has not swapped yet
  EXPECT_EQ(plan.Reachable(3, Weights(5)), 2u);  // joins: what it loads next is the newest version
  EXPECT_EQ(plan.Reachable(3, Weights(6)), 2u);  // loaded it in full
  EXPECT_EQ(plan.Reachable(1, Weights(7)), 0u);  // gone past it
  EXPECT_EQ(plan.Reachable(1, Weights(7, 2)), 0u);
  EXPECT_EQ(plan.Reachable(2, v1::WeightsVersion()), 2u);
  ASSERT_FALSE(plan.OnCommit(Weights(7), {1, 2}, kStart));
  EXPECT_EQ(plan.Reachable(3, Weights(5)), 0u);  // overtaken: it will load version 7
  plan.WorkerLost(2);
  EXPECT_EQ(plan.Reachable(2, v1::WeightsVersion()), 0u);
  EXPECT_TRUE(plan.Acquire(1, Weights(7), 5).empty());
  EXPECT_EQ(plan.Acquire(1, Weights(5), 5).size(), 2u);
}

TEST(EvaluationPlanTest, AnEpisodeWhoseVersionWasOvertakenGoesToAWorkerThatHasIt) {
  EvaluationPlan plan(Options(5, 1), 100);
  ASSERT_TRUE(plan.OnCommit(Weights(6), {2}, kStart));
  const auto joiner = plan.Acquire(1, v1::WeightsVersion(), 1);
  ASSERT_EQ(joiner.size(), 1u);
  ASSERT_FALSE(plan.OnCommit(Weights(7), {1, 2}, kStart));
  TrajectorySummary gone = Result(joiner[0], 0);
  gone.completed = false;
  gone.failure_code = "version_gone";
  std::string reason;
  EXPECT_EQ(plan.Push(1, gone, &reason), v1::ACCEPTED);
  EXPECT_EQ(plan.Reachable(1, v1::WeightsVersion()), 0u);
  const auto member = plan.Acquire(2, Weights(6), 1);
  ASSERT_EQ(member.size(), 1u);
  EXPECT_EQ(plan.Push(2, Result(member[0], 0.75), &reason), v1::ACCEPTED);
  EXPECT_EQ(plan.Results()[0].reward_mean(), 0.75);
  EXPECT_EQ(plan.Results()[0].failed(), 0u);
}

TEST(EvaluationPlanTest, AnEvaluationThatNobodyCanReachEndsAtOnce) {
  EvaluationPlan plan(Options(5, 2), 100);
  ASSERT_TRUE(plan.OnCommit(Weights(6), {1}, kStart));
  EXPECT_TRUE(plan.EndUnreachable({}).empty());  // the newest version: whoever joins will hold it
  const auto assigned = plan.Acquire(1, Weights(6), 1);
  ASSERT_FALSE(plan.OnCommit(Weights(7), {1}, kStart));
  EXPECT_TRUE(plan.EndUnreachable({{1, Weights(7)}}).empty());  // an episode is under way
  std::string reason;
  EXPECT_EQ(plan.Push(1, Result(assigned[0], 1.0), &reason), v1::ACCEPTED);
  EXPECT_TRUE(plan.EndUnreachable({{1, Weights(6)}}).empty());  // could still take the other one
  EXPECT_EQ(plan.EndUnreachable({{1, Weights(7)}, {2, v1::WeightsVersion()}}).size(), 1u);
  EXPECT_TRUE(plan.idle());
  EXPECT_EQ(plan.Results()[0].failed(), 1u);
  EXPECT_EQ(plan.Results()[0].reward_mean(), 1.0);
}

TEST(EvaluationPlanTest, ALostWorkersEpisodesAreHandedOutAgainOnce) {
  EvaluationPlan plan(Options(1, 3), 100);
  ASSERT_TRUE(plan.OnCommit(Weights(1), {1, 2}, kStart));
  const auto first = plan.Acquire(1, Weights(1), 2);
  ASSERT_EQ(first.size(), 2u);
  std::string reason;
  ASSERT_EQ(plan.Push(1, Result(first[0], 0.25), &reason), v1::ACCEPTED);
  plan.WorkerLost(1);
  const auto second = plan.Acquire(2, Weights(1), 10);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].id, first[1].id);
  EXPECT_EQ(second[0].issue, first[1].issue + 1);
  EXPECT_EQ(plan.Push(1, Result(first[1], 1.0), &reason), v1::GROUP_CLOSED);
  EXPECT_EQ(plan.Push(1, Result(second[0], 1.0), &reason), v1::GROUP_CLOSED);  // not its worker
  EXPECT_EQ(plan.Push(2, Result(second[0], 1.0), &reason), v1::ACCEPTED);
  EXPECT_EQ(plan.Push(2, Result(second[1], 0.25), &reason), v1::ACCEPTED);
  EXPECT_EQ(plan.Results()[0].reward_mean(), 0.5);
}

TEST(EvaluationPlanTest, TokensOfAnotherVersionAreRefusedAndFail) {
  EvaluationPlan plan(Options(1, 2), 100);
  ASSERT_TRUE(plan.OnCommit(Weights(3), {}, kStart));
  const auto tickets = plan.Acquire(1, Weights(3), 2);
  TrajectorySummary mixed = Result(tickets[0], 1.0);
  AddVersion(1, 4, &mixed.versions);
  std::string reason;
  EXPECT_EQ(plan.Push(1, mixed, &reason), v1::REJECTED);
  EXPECT_EQ(reason.substr(0, reason.find(':')), "evaluation_version");
  TrajectorySummary unknown = Result(tickets[1], 1.0);
  unknown.key.set_ticket(3);
  EXPECT_EQ(plan.Push(1, unknown, &reason), v1::REJECTED);
  unknown = Result(tickets[1], 1.0);
  unknown.key.set_issue(9);
  EXPECT_EQ(plan.Push(1, unknown, &reason), v1::REJECTED);
  plan.Fail(2, tickets[1].weights.version() == 3 ? Result(tickets[1], 0).key
                                                 : v1::EpisodeKey());  // another worker: no effect
  EXPECT_FALSE(plan.idle());
  plan.Fail(1, Result(tickets[1], 0).key);
  EXPECT_TRUE(plan.idle());
  EXPECT_EQ(plan.Results()[0].failed(), 2u);
}

TEST(EvaluationPlanTest, EndsAtItsDeadlineWithTheMissingOnesFailed) {
  EvaluationPlan plan(Options(1, 3), 100);
  EXPECT_EQ(plan.NextDeadline(), MonotonicTime::InfiniteFuture());
  ASSERT_TRUE(plan.OnCommit(Weights(1), {}, kStart));
  const auto tickets = plan.Acquire(1, Weights(1), 2);
  std::string reason;
  ASSERT_EQ(plan.Push(1, Result(tickets[0], 1.0), &reason), v1::ACCEPTED);
  EXPECT_EQ(plan.NextDeadline(), kStart + absl::Seconds(60));
  EXPECT_TRUE(plan.Tick(kStart + absl::Seconds(59)).empty());
  EXPECT_EQ(plan.Tick(kStart + absl::Seconds(60)).size(), 1u);
  EXPECT_TRUE(plan.idle());
  EXPECT_EQ(plan.Results()[0].failed(), 2u);
  EXPECT_EQ(plan.Results()[0].episodes(), 3u);
  EXPECT_EQ(plan.Results()[0].reward_mean(), 1.0);
  EXPECT_EQ(plan.Push(1, Result(tickets[1], 1.0), &reason), v1::GROUP_CLOSED);
}

TEST(EvaluationPlanTest, ARestoreForgetsLaterVersionsAndIssueNumbersGoOn) {
  EvaluationPlan plan(Options(5, 1), 100);
  ASSERT_TRUE(plan.OnCommit(Weights(1), {}, kStart));
  const auto at_one = plan.Acquire(1, Weights(1), 1);
  std::string reason;
  ASSERT_EQ(plan.Push(1, Result(at_one[0], 0.5), &reason), v1::ACCEPTED);
  ASSERT_TRUE(plan.OnCommit(Weights(6), {}, kStart));
  const auto at_six = plan.Acquire(1, Weights(6), 1);
  plan.OnRestore(5);
  EXPECT_TRUE(plan.idle());
  ASSERT_TRUE(plan.OnCommit(Weights(6, 2), {}, kStart));
  EXPECT_EQ(plan.Push(1, Result(at_six[0], 1.0), &reason), v1::GROUP_CLOSED);
  const auto again = plan.Acquire(1, Weights(6, 2), 1);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_GT(again[0].issue, at_six[0].issue);
  EXPECT_EQ(plan.Push(1, Result(again[0], 0.75), &reason), v1::ACCEPTED);
  const auto results = plan.Results();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].weights().version(), 1u);
  EXPECT_EQ(results[1].weights().lineage(), 2u);
  EXPECT_EQ(results[1].reward_mean(), 0.75);
}

TEST(EvaluationPlanTest, TheNextStepWaitsForAHolderOfTheEvaluatedVersionButNotLong) {
  EvaluationPlan plan(Options(5, 1), 100);
  EXPECT_FALSE(plan.AwaitsHolder(kStart));
  ASSERT_TRUE(plan.OnCommit(Weights(6), {1}, kStart));
  EXPECT_TRUE(plan.AwaitsHolder(kStart));
  plan.OnHeld(Weights(5));
  EXPECT_TRUE(plan.AwaitsHolder(kStart));
  plan.OnHeld(Weights(6));
  EXPECT_FALSE(plan.AwaitsHolder(kStart));
  EXPECT_FALSE(plan.OnCommit(Weights(7), {1}, kStart));
  EXPECT_FALSE(plan.AwaitsHolder(kStart));
  ASSERT_TRUE(plan.OnCommit(Weights(11), {1}, kStart));
  plan.Postpone(absl::Seconds(3));
  EXPECT_TRUE(plan.AwaitsHolder(kStart + absl::Seconds(12.9)));
  EXPECT_FALSE(plan.AwaitsHolder(kStart + absl::Seconds(13)));
}

TEST(EvaluationPlanTest, ALateResultIsKeptLikeAnyOther) {
  EvaluationPlan plan(Options(1, 1), 1000);
  std::string reason;
  ASSERT_TRUE(plan.OnCommit(Weights(1), {}, kStart));
  const auto late = plan.Acquire(1, Weights(1), 1)[0];
  for (uint64_t version = 2; version <= 100; ++version) {
    ASSERT_TRUE(plan.OnCommit(Weights(version), {}, kStart));
    ASSERT_EQ(plan.Push(1, Result(plan.Acquire(1, Weights(version), 1)[0], 1.0), &reason), v1::ACCEPTED);
  }
  ASSERT_EQ(plan.Push(1, Result(late, 0.5), &reason), v1::ACCEPTED);
  const auto results = plan.Results();
  ASSERT_EQ(results.size(), EvaluationPlan::kKeptResults);
  EXPECT_EQ(results.front().weights().version(), 1u);
  EXPECT_EQ(results.front().reward_mean(), 0.5);
  EXPECT_TRUE(results.front().complete());
}

TEST(EvaluationPlanTest, KeepsABoundedNumberOfResults) {
  EvaluationPlan plan(Options(1, 1), 1000);
  std::string reason;
  for (uint64_t version = 1; version <= 200; ++version) {
    ASSERT_TRUE(plan.OnCommit(Weights(version), {}, kStart));
    ASSERT_EQ(plan.Push(1, Result(plan.Acquire(1, Weights(version), 1)[0], 1.0), &reason), v1::ACCEPTED);
  }
  const auto results = plan.Results();
  ASSERT_EQ(results.size(), EvaluationPlan::kKeptResults);
  EXPECT_EQ(results.back().weights().version(), 200u);
}

}  // namespace
}  // namespace leeway
