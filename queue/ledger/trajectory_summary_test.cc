#include "queue/ledger/trajectory_summary.h"

#include "gtest/gtest.h"

namespace leeway {
namespace {

void AddRun(v1::Span* span, uint64_t lineage, uint64_t version, int count) {
  v1::VersionRun* run = span->add_versions();
  run->mutable_weights()->set_lineage(lineage);
  run->mutable_weights()->set_version(version);
  run->set_count(count);
  for (int i = 0; i < count; ++i) span->add_ids(2);
}

TEST(TrajectorySummaryTest, CountsSampledTokensAndVersionsOnly) {
  v1::Trajectory trajectory;
  trajectory.mutable_key()->set_ticket(5);
  trajectory.mutable_key()->set_member(3);
  trajectory.set_outcome(v1::COMPLETED);
  trajectory.mutable_score()->set_status(v1::Score::SCORED);
  trajectory.mutable_score()->set_reward(0.0);
  trajectory.add_spans()->add_ids(1);  // given
  v1::Span* first = trajectory.add_spans();
  first->set_sampled(true);
  AddRun(first, 2, 7, 3);
  AddRun(first, 2, 9, 1);
  v1::Span* second = trajectory.add_spans();
  second->set_sampled(true);
  AddRun(second, 1, 8, 2);
  const TrajectorySummary summary = Summarize(trajectory);
  EXPECT_EQ(summary.key.ticket(), 5u);
  EXPECT_EQ(summary.key.member(), 3u);
  EXPECT_TRUE(summary.completed);
  ASSERT_TRUE(summary.reward.has_value());
  EXPECT_EQ(*summary.reward, 0.0);
  EXPECT_EQ(summary.sampled_tokens, 6u);
  EXPECT_EQ(summary.versions, (VersionUse{{1, 8, 8}, {2, 7, 9}}));
  EXPECT_EQ(OldestVersion(summary.versions), 7u);
}

TEST(TrajectorySummaryTest, ScoredZeroUnscoredAndFailedDiffer) {
  v1::Trajectory trajectory;
  trajectory.set_outcome(v1::COMPLETED);
  trajectory.mutable_score()->set_status(v1::Score::UNSCORED);
  EXPECT_FALSE(Summarize(trajectory).reward.has_value());
  EXPECT_TRUE(Summarize(trajectory).completed);
  trajectory.mutable_score()->set_status(v1::Score::SCORING_FAILED);
  EXPECT_FALSE(Summarize(trajectory).completed);
  EXPECT_EQ(Summarize(trajectory).failure_code, "scoring_failed");
  trajectory.set_outcome(v1::FAILED);
  trajectory.mutable_failure()->set_code("step_timeout");
  const TrajectorySummary failed = Summarize(trajectory);
  EXPECT_FALSE(failed.completed);
  EXPECT_EQ(failed.failure_code, "step_timeout");
  EXPECT_FALSE(failed.reward.has_value());
  EXPECT_EQ(OldestVersion(failed.versions), 0u);
}

}  // namespace
}  // namespace leeway
