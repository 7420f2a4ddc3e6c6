// Which groups are trained in which step, with which lag: the promises that users see.

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "queue/core/queue_core.h"
#include "queue/core/queue_core_test_driver.h"

namespace leeway {
namespace {

// ---- the lag that is reached ----------------------------------------------------------------------------------------

class LagTest : public ::testing::TestWithParam<uint64_t> {};

// Rollout is the faster side: everything that is admitted is generated at once, then one step is trained.
TEST_P(LagTest, TicketOrderReachesTheBudgetExactlyAndDropsNothing) {
  const uint64_t budget = GetParam();
  CoreDriver driver(DriverOptions(3, 2, budget, 30));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  std::map<uint64_t, uint64_t> version_of;
  uint64_t largest = 0;
  for (uint64_t step = 1; step <= 30; ++step) {
    for (v1::AcquireTicketsResponse some = driver.Acquire(worker, 100); some.tickets_size() > 0;
         some = driver.Acquire(worker, 100)) {
      for (const v1::Ticket& ticket : some.tickets()) {
        version_of[ticket.id()] = ticket.weights().version();
        driver.Complete(worker, ticket);
      }
    }
    const std::vector<uint64_t> trained = driver.Train(step);
    ASSERT_EQ(trained.size(), 3u);
    for (uint64_t ticket : trained) {
      ASSERT_LE(step - version_of.at(ticket), budget);
      largest = std::max(largest, step - version_of.at(ticket));
    }
  }
  EXPECT_EQ(largest, budget);
  const v1::LedgerCounts counts = driver.counts();
  EXPECT_EQ(counts.stale() + counts.failed() + counts.filtered() + counts.cancelled() + counts.rewound(), 0u);
  EXPECT_EQ(counts.issued_total(), 90u);
}

// One straggler a step and everything else at once: order `ready` overtakes, so stragglers grow old and are dropped.
TEST_P(LagTest, ReadyOrderWithDropNeverPassesTheBudgetAndCountsWhatItDrops) {
  const uint64_t budget = GetParam();
  QueueCoreOptions options = DriverOptions(3, 1, budget, 30);
  options.staleness.order = StalenessOrder::kReady;
  options.staleness.breach = StalenessBreach::kDrop;
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  std::map<uint64_t, uint64_t> version_of;
  std::vector<v1::Ticket> stragglers;
  uint64_t dropped = 0;
  for (uint64_t step = 1; step <= 30; ++step) {
    std::vector<uint64_t> trained;
    for (int round = 0; trained.empty() && round < 50; ++round) {
      const v1::AcquireTicketsResponse some = driver.Acquire(worker, 100);
      for (const v1::Ticket& ticket : some.tickets()) {
        version_of[ticket.id()] = ticket.weights().version();
        if (ticket.id() % 4 == 0) {
          stragglers.push_back(ticket);
        } else {
          driver.Complete(worker, ticket);
        }
      }
      // A straggler comes when it is the last one that can help, or far too late.
      if (some.tickets().empty() && !stragglers.empty()) {
        const v1::PushAnswer answer = driver.Push(worker, CoreDriver::Completed(stragglers.front(), 0, 0.5));
        const bool is_late = step - stragglers.front().weights().version() > budget;
        EXPECT_EQ(answer.result(), is_late ? v1::TOO_STALE : v1::ACCEPTED);
        dropped += is_late ? 1 : 0;
        stragglers.erase(stragglers.begin());
      }
      trained = driver.Train(step);
    }
    ASSERT_EQ(trained.size(), 3u) << step;
    for (uint64_t ticket : trained) ASSERT_LE(step - version_of.at(ticket), budget);
  }
  EXPECT_EQ(driver.counts().stale(), dropped);
}

INSTANTIATE_TEST_SUITE_P(Budgets, LagTest, ::testing::Values(0, 1, 2, 4, 8));

// ---- S = 0 is synchronous training ----------------------------------------------------------------------------------

// A world in which what an episode gives depends on ticket and member alone, as with counter-based random numbers.
uint64_t Fate(uint64_t ticket, uint32_t member) { return std::mt19937_64(ticket * 64 + member)() % 12; }
bool Fails(uint64_t ticket, uint32_t member) { return Fate(ticket, member) == 0; }
double Reward(uint64_t ticket, uint32_t member) { return Fate(ticket, member) < 7 ? 1.0 : 0.0; }

// Step, ticket, seed, version of the tokens, members trained, without advantage?
using Schedule = std::vector<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t, size_t, bool>>;

// Runs to the end with `workers` workers in a random interleaving of `seed`; workers are killed now and then if
// `kills`; the trainer is killed and goes back to its newest checkpoint if `restarts`.
Schedule RunToTheEnd(QueueCoreOptions options, StalenessMode mode, int workers, uint64_t seed, bool kills,
                     bool restarts) {
  options.staleness.mode = mode;
  CoreDriver driver(options);
  std::mt19937_64 random(seed);
  std::vector<v1::WorkerIdentity> identities;
  std::vector<std::vector<std::pair<v1::Ticket, uint32_t>>> work(workers);
  for (int i = 0; i < workers; ++i) identities.push_back(driver.Register(absl::StrCat("worker-", i)));
  driver.StartTrainer();
  std::map<uint64_t, v1::Ticket> ticket_of;
  std::map<uint64_t, Schedule> by_step;
  uint64_t checkpoint = 0;
  uint64_t step = 1;
  for (int round = 0; step <= options.staleness.steps; ++round) {
    EXPECT_LT(round, 100'000);
    if (round >= 100'000) break;
    driver.Advance(absl::Milliseconds(30));
    driver.core().Tick(driver.now());
    const int i = random() % workers;
    if (kills && random() % 40 == 0) {
      identities[i] = driver.Register(absl::StrCat("worker-", i));
      work[i].clear();
    }
    const v1::AcquireTicketsResponse some = driver.Acquire(identities[i], 4);
    for (const v1::Ticket& ticket : some.tickets()) {
      ticket_of[ticket.id()] = ticket;
      for (uint32_t member : ticket.members()) work[i].push_back({ticket, member});
    }
    for (int pushes = random() % 5; pushes > 0 && !work[i].empty(); --pushes) {
      const size_t chosen = random() % work[i].size();
      const auto [ticket, member] = work[i][chosen];
      work[i].erase(work[i].begin() + chosen);
      driver.Push(identities[i], Fails(ticket.id(), member)
                                     ? CoreDriver::Failed(ticket, member, "made_up")
                                     : CoreDriver::Completed(ticket, member, Reward(ticket.id(), member)));
    }
    const LeaseResult lease = driver.Lease(step);
    if (lease.groups.empty()) continue;
    if (restarts && random() % 8 == 0) {
      driver.StartTrainer(checkpoint);
      step = checkpoint + 1;
      continue;
    }
    std::vector<uint64_t> tickets;
    by_step[step].clear();
    for (const LeasedGroup& group : lease.groups) {
      tickets.push_back(group.ticket);
      const v1::Ticket& ticket = ticket_of.at(group.ticket);
      by_step[step].push_back(
          {step, group.ticket, ticket.seed(), ticket.weights().version(), group.members.size(), group.zero_advantage});
    }
    EXPECT_TRUE(driver.Commit(step + 1, tickets).ok());
    if (step % 3 == 0) checkpoint = step;
    ++step;
  }
  Schedule schedule;
  for (const auto& [number, groups] : by_step) schedule.insert(schedule.end(), groups.begin(), groups.end());
  return schedule;
}

TEST(BudgetZeroTest, AsynchronousAndSynchronousTrainTheSameGroupsWhateverIsKilled) {
  std::vector<QueueCoreOptions> variants(3, DriverOptions(3, 4, 0, 12));
  variants[1].short_group = ShortGroupPolicy::kTrainShort;
  variants[1].min_group_size = 3;
  variants[2].filter_zero_variance = true;
  variants[2].filter_max_refills = 0.4;
  for (QueueCoreOptions& options : variants) {
    options.poison_losses = 1000;
    const Schedule expected = RunToTheEnd(options, StalenessMode::kSync, 1, 1, false, false);
    ASSERT_EQ(expected.size(), 36u);
    for (const auto& [step, ticket, seed, version, members, zero] : expected) EXPECT_EQ(version, step);
    for (uint64_t seed = 2; seed < 12; ++seed) {
      const bool kills = seed % 2 == 0;
      const bool restarts = seed % 3 == 0;
      for (StalenessMode mode : {StalenessMode::kSync, StalenessMode::kAsync}) {
        EXPECT_EQ(RunToTheEnd(options, mode, 2, seed, kills, restarts), expected) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace leeway
