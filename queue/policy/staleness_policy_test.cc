#include "queue/policy/staleness_policy.h"

#include <algorithm>
#include <map>
#include <vector>

#include "gtest/gtest.h"

namespace leeway {
namespace {

StalenessOptions Options(StalenessOrder order, StalenessBreach breach, uint64_t budget) {
  StalenessOptions options;
  options.order = order;
  options.breach = breach;
  options.budget = budget;
  options.groups_per_step = 3;
  options.steps = 10;
  return options;
}

TEST(StalenessPolicyTest, ParsesTheWordsOfTheConfiguration) {
  EXPECT_EQ(*ParseStalenessMode("sync"), StalenessMode::kSync);
  EXPECT_EQ(*ParseStalenessOrder("oldest"), StalenessOrder::kOldest);
  EXPECT_EQ(*ParseStalenessBreach("mask"), StalenessBreach::kMask);
  const absl::Status unknown = ParseStalenessOrder("newest").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(unknown.message(), "staleness.order \"newest\" is not one of: ticket, oldest, ready");
}

TEST(StalenessPolicyTest, RefusesWhatCannotWork) {
  EXPECT_FALSE(StalenessPolicy::Create(Options(StalenessOrder::kReady, StalenessBreach::kWait, 1)).ok());
  EXPECT_FALSE(StalenessPolicy::Create(Options(StalenessOrder::kOldest, StalenessBreach::kWait, 1)).ok());
  EXPECT_TRUE(StalenessPolicy::Create(Options(StalenessOrder::kTicket, StalenessBreach::kWait, 1)).ok());
  StalenessOptions empty = Options(StalenessOrder::kTicket, StalenessBreach::kDrop, 0);
  empty.groups_per_step = 0;
  empty.steps = 0;
  const absl::Status refused = StalenessPolicy::Create(empty).status();
  EXPECT_NE(refused.message().find("groups_per_step"), absl::string_view::npos);
  EXPECT_NE(refused.message().find("trainer.steps"), absl::string_view::npos);
}

TEST(StalenessPolicyTest, PacesByVersionAndEndsWithTheRun) {
  const StalenessPolicy policy = *StalenessPolicy::Create(Options(StalenessOrder::kTicket, StalenessBreach::kWait, 2));
  // B = 3, S = 2: at version 1 steps 1..3 may be generated.
  EXPECT_EQ(policy.RankLimit(1, 0), 9u);
  EXPECT_EQ(policy.RankLimit(4, 0), 18u);
  // 10 steps consume 30 groups.
  EXPECT_EQ(policy.RankLimit(8, 0), 30u);
  EXPECT_EQ(policy.RankLimit(10, 0), 30u);
  EXPECT_EQ(policy.RankLimit(11, 0), 30u);
}

TEST(StalenessPolicyTest, SyncAdmitsWhatTheTrainerAsksFor) {
  StalenessOptions options = Options(StalenessOrder::kTicket, StalenessBreach::kWait, 2);
  options.mode = StalenessMode::kSync;
  const StalenessPolicy policy = *StalenessPolicy::Create(options);
  EXPECT_EQ(policy.RankLimit(1, 0), 0u);
  EXPECT_EQ(policy.RankLimit(1, 1), 3u);
  EXPECT_EQ(policy.RankLimit(2, 1), 3u);
  EXPECT_EQ(policy.RankLimit(2, 2), 6u);
  EXPECT_EQ(policy.lag_limit(), 0u);
}

TEST(StalenessPolicyTest, JudgesByTheOldestToken) {
  using Verdict = StalenessPolicy::Verdict;
  const struct {
    StalenessBreach breach;
    Verdict beyond;
  } cases[] = {{StalenessBreach::kDrop, Verdict::kStale},
               {StalenessBreach::kMask, Verdict::kMask},
               {StalenessBreach::kWait, Verdict::kBreach}};
  for (const auto& c : cases) {
    for (uint64_t budget : {0, 1, 2, 4, 8}) {
      const StalenessPolicy policy = *StalenessPolicy::Create(Options(StalenessOrder::kTicket, c.breach, budget));
      EXPECT_EQ(policy.lag_limit(), budget);
      for (uint64_t step = 1; step <= 12; ++step) {
        for (uint64_t version = 1; version <= step; ++version) {
          const uint64_t lag = step - version;
          EXPECT_EQ(policy.Judge(step, version), lag > budget ? c.beyond : Verdict::kTrain) << step << " " << version;
        }
        EXPECT_EQ(policy.Judge(step, 0), Verdict::kTrain);
      }
    }
  }
}

TEST(StalenessPolicyTest, OrdersReadyGroups) {
  struct Group {
    uint64_t ticket, oldest, completion;
  };
  // Completed in the order 4, 2, 3, 1.
  const std::vector<Group> groups = {{4, 2, 1}, {2, 1, 2}, {3, 2, 3}, {1, 3, 4}};
  const auto sorted = [&](StalenessOrder order) {
    const StalenessPolicy policy = *StalenessPolicy::Create(Options(order, StalenessBreach::kDrop, 1));
    std::map<StalenessPolicy::OrderKey, uint64_t> by_key;
    for (const Group& group : groups) by_key[policy.KeyOf(group.ticket, group.oldest, group.completion)] = group.ticket;
    std::vector<uint64_t> tickets;
    for (const auto& [key, ticket] : by_key) tickets.push_back(ticket);
    return tickets;
  };
  EXPECT_EQ(sorted(StalenessOrder::kTicket), (std::vector<uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(sorted(StalenessOrder::kOldest), (std::vector<uint64_t>{2, 3, 4, 1}));
  EXPECT_EQ(sorted(StalenessOrder::kReady), (std::vector<uint64_t>{4, 2, 3, 1}));
}

// The claim of the header, by simulation on paper: tickets without deaths, all generated the moment they are admitted.
// The largest lag trained is then exactly S, from step S + 1 on.
TEST(StalenessPolicyTest, TicketOrderReachesTheBudgetAndNeverPassesIt) {
  for (uint64_t budget = 0; budget <= 4; ++budget) {
    const StalenessPolicy policy =
        *StalenessPolicy::Create(Options(StalenessOrder::kTicket, StalenessBreach::kWait, budget));
    std::vector<uint64_t> version_of;  // by ticket - 1
    uint64_t largest = 0;
    for (uint64_t step = 1; step <= 10; ++step) {
      while (version_of.size() + 1 <= policy.RankLimit(step, 0)) version_of.push_back(step);
      for (uint64_t ticket = (step - 1) * 3; ticket < step * 3; ++ticket) {
        ASSERT_LT(ticket, version_of.size());
        largest = std::max(largest, step - version_of[ticket]);
      }
    }
    EXPECT_EQ(largest, budget);
    EXPECT_EQ(version_of.size(), 30u);
  }
}

}  // namespace
}  // namespace leeway
