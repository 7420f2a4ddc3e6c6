#include "queue/ledger/ledger.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

v1::WeightsVersion At(uint64_t version, uint64_t lineage = 1) {
  v1::WeightsVersion weights;
  weights.set_lineage(lineage);
  weights.set_version(version);
  return weights;
}

VersionUse Tokens(uint64_t oldest, uint64_t newest, uint64_t lineage = 1) {
  return {LineageUse{lineage, oldest, newest}};
}

// Lineage 1 from scratch, having committed versions 1 .. `last`.
LineageHistory History(uint64_t last) {
  LineageHistory history;
  EXPECT_TRUE(history.Restore(1, 0).ok());
  for (uint64_t version = 1; version <= last; ++version) EXPECT_TRUE(history.Commit(1, version).ok());
  return history;
}

uint64_t IssueRunning(Ledger* ledger, uint64_t version = 1) {
  const uint64_t ticket = (*ledger->IssueNew(At(version)))->ticket;
  EXPECT_TRUE(ledger->Start(ticket, At(version)).ok());
  return ticket;
}

uint64_t IssueReady(Ledger* ledger, uint64_t version = 1) {
  const uint64_t ticket = IssueRunning(ledger, version);
  for (uint32_t member = 0; member < 2; ++member) {
    EXPECT_TRUE(ledger->Deliver(ticket, member, Tokens(version, version), 0.5, 10).ok());
  }
  EXPECT_TRUE(ledger->MarkReady(ticket).ok());
  return ticket;
}

uint64_t IssueTrained(Ledger* ledger, uint64_t step) {
  const uint64_t ticket = IssueReady(ledger, step);
  EXPECT_TRUE(ledger->Lease(ticket, step).ok());
  EXPECT_TRUE(ledger->Train(ticket).ok());
  return ticket;
}

// A ledger of groups of two whose ticket 1 is in `state`.
Ledger InState(RowState state) {
  Ledger ledger(2);
  absl::Status moved;
  switch (state) {
    case RowState::kIssued:
      EXPECT_TRUE(ledger.IssueNew(At(1)).ok());
      break;
    case RowState::kRunning:
      IssueRunning(&ledger);
      break;
    case RowState::kTrained:
      IssueTrained(&ledger, 1);
      break;
    case RowState::kSettled:
      IssueTrained(&ledger, 1);
      ledger.SettleThrough(1);
      break;
    default:
      IssueReady(&ledger);
      moved = state == RowState::kLeased      ? ledger.Lease(1, 1)
              : state == RowState::kFiltered  ? ledger.Filter(1, 1)
              : state == RowState::kStale     ? ledger.MarkStale(1, 1)
              : state == RowState::kFailed    ? ledger.Fail(1, 1)
              : state == RowState::kCancelled ? ledger.Cancel(1, 1)
              : state == RowState::kRewound   ? ledger.Rewind(1)
                                              : absl::OkStatus();
      break;
  }
  EXPECT_TRUE(moved.ok()) << moved;
  EXPECT_EQ(ledger.count(state), 1u);
  return ledger;
}

TEST(LedgerTest, EveryTransitionFromEveryState) {
  using S = RowState;
  struct Transition {
    const char* name;
    std::function<absl::Status(Ledger*)> call;
    std::set<S> from;
    S to;
  };
  // MarkReady is left to its own test: a running row has to be complete.
  const std::vector<Transition> transitions = {
      {"Reissue", [](Ledger* l) { return l->Reissue(1, At(1)).status(); }, {S::kRewound}, S::kIssued},
      {"Start", [](Ledger* l) { return l->Start(1, At(1)); }, {S::kIssued}, S::kRunning},
      {"Deliver", [](Ledger* l) { return l->Deliver(1, 0, Tokens(1, 1), 1.0, 5); }, {S::kRunning}, S::kRunning},
      {"FailMember", [](Ledger* l) { return l->FailMember(1, 0); }, {S::kRunning}, S::kRunning},
      {"ReturnToIssued", [](Ledger* l) { return l->ReturnToIssued(1); }, {S::kRunning}, S::kIssued},
      {"Lease", [](Ledger* l) { return l->Lease(1, 1); }, {S::kReady}, S::kLeased},
      {"SetZeroAdvantage", [](Ledger* l) { return l->SetZeroAdvantage(1, true); }, {S::kReady}, S::kReady},
      {"Train", [](Ledger* l) { return l->Train(1); }, {S::kLeased}, S::kTrained},
      {"Filter", [](Ledger* l) { return l->Filter(1, 1); }, {S::kReady}, S::kFiltered},
      {"MarkStale", [](Ledger* l) { return l->MarkStale(1, 1); }, {S::kIssued, S::kRunning, S::kReady}, S::kStale},
      {"Fail", [](Ledger* l) { return l->Fail(1, 1); }, {S::kIssued, S::kRunning, S::kReady, S::kLeased}, S::kFailed},
      {"Cancel", [](Ledger* l) { return l->Cancel(1, 1); }, {S::kIssued, S::kRunning, S::kReady}, S::kCancelled},
      {"Rewind", [](Ledger* l) { return l->Rewind(1); }, {S::kIssued, S::kRunning, S::kReady, S::kLeased}, S::kRewound},
  };
  for (const Transition& transition : transitions) {
    for (int i = 1; i < kRowStates; ++i) {
      const S from = static_cast<S>(i);
      Ledger ledger = InState(from);
      const absl::Status status = transition.call(&ledger);
      const std::string where = absl::StrCat(transition.name, " from ", RowStateName(from));
      ASSERT_TRUE(ledger.CheckConservation().ok()) << where << ": " << ledger.CheckConservation();
      if (transition.from.count(from) == 1) {
        EXPECT_TRUE(status.ok()) << where << ": " << status;
        EXPECT_EQ(ledger.Find(1)->state, transition.to) << where;
      } else {
        EXPECT_EQ(status.code(),
                  from == S::kSettled ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition)
            << where;
        EXPECT_EQ(ledger.count(from), 1u) << where;
      }
    }
  }
}

TEST(LedgerTest, AGroupIsReadyWhenNoMemberIsMissingAndOneIsThere) {
  Ledger ledger(2);
  const uint64_t ticket = IssueRunning(&ledger);
  EXPECT_FALSE(ledger.MarkReady(ticket).ok());
  ASSERT_TRUE(ledger.FailMember(ticket, 1).ok());
  EXPECT_FALSE(ledger.MarkReady(ticket).ok());
  EXPECT_FALSE(ledger.Deliver(ticket, 1, Tokens(1, 1), 0.0, 1).ok());
  EXPECT_FALSE(ledger.Deliver(ticket, 2, Tokens(1, 1), 0.0, 1).ok());
  ASSERT_TRUE(ledger.Deliver(ticket, 0, Tokens(1, 2), 0.0, 1).ok());
  EXPECT_FALSE(ledger.FailMember(ticket, 0).ok());
  EXPECT_TRUE(ledger.MarkReady(ticket).ok());
  EXPECT_EQ(ledger.Find(ticket)->versions, Tokens(1, 2));

  const uint64_t hopeless = IssueRunning(&ledger);
  ASSERT_TRUE(ledger.FailMember(hopeless, 0).ok());
  ASSERT_TRUE(ledger.FailMember(hopeless, 1).ok());
  EXPECT_FALSE(ledger.MarkReady(hopeless).ok());
}

TEST(LedgerTest, ALostWorkersTicketKeepsMembersAndCountsAsTheSameRow) {
  Ledger ledger(2);
  const uint64_t ticket = IssueRunning(&ledger);
  ASSERT_TRUE(ledger.Deliver(ticket, 1, Tokens(1, 1), 1.0, 7).ok());
  ASSERT_TRUE(ledger.ReturnToIssued(ticket).ok());
  EXPECT_EQ(ledger.Find(ticket)->issue, 2u);
  EXPECT_EQ(ledger.Find(ticket)->members[1].state, MemberRecord::State::kDelivered);
  EXPECT_EQ(ledger.Find(ticket)->members[0].state, MemberRecord::State::kMissing);
  EXPECT_EQ(ledger.counts().issued_total(), 1u);
  EXPECT_EQ(*ledger.issued().begin(), ticket);
  ASSERT_TRUE(ledger.Start(ticket, At(4)).ok());
  EXPECT_EQ(ledger.Find(ticket)->issued_at.version(), 4u);
}

TEST(LedgerTest, RankCountsLiveTicketsAndRewoundOnesStayLive) {
  Ledger ledger(2);
  for (int i = 0; i < 6; ++i) IssueReady(&ledger);
  EXPECT_EQ(ledger.Rank(6), 6u);
  EXPECT_EQ(ledger.Rank(ledger.next_ticket()), 7u);
  ASSERT_TRUE(ledger.Fail(2, 1).ok());
  ASSERT_TRUE(ledger.Filter(4, 1).ok());
  EXPECT_EQ(ledger.Rank(1), 1u);
  EXPECT_EQ(ledger.Rank(3), 2u);
  EXPECT_EQ(ledger.Rank(6), 4u);
  EXPECT_EQ(ledger.Rank(ledger.next_ticket()), 5u);
  ASSERT_TRUE(ledger.Rewind(1).ok());
  EXPECT_EQ(ledger.Rank(6), 4u);
  EXPECT_EQ(*ledger.open().begin(), 1u);
}

TEST(LedgerTest, ARewoundTicketGoesBeforeNewOnesAsARowOfItsOwn) {
  Ledger ledger(2);
  for (int i = 0; i < 3; ++i) IssueReady(&ledger);
  ASSERT_TRUE(ledger.Rewind(2).ok());
  EXPECT_EQ(ledger.IssueNew(At(1)).status().code(), absl::StatusCode::kFailedPrecondition);
  const TicketRow* row = *ledger.Reissue(2, At(3));
  EXPECT_EQ(row->ticket, 2u);
  EXPECT_EQ(row->issue, 2u);
  EXPECT_EQ(row->CountMembers(MemberRecord::State::kMissing), 2u);
  EXPECT_TRUE(row->versions.empty());
  // Three tickets, four rows.
  EXPECT_EQ(ledger.counts().issued_total(), 4u);
  EXPECT_EQ(ledger.counts().rewound(), 1u);
  EXPECT_EQ(ledger.counts().issued(), 1u);
  EXPECT_EQ(ledger.counts().ready(), 2u);
  EXPECT_TRUE(ledger.CheckConservation().ok());
  EXPECT_EQ((*ledger.IssueNew(At(3)))->ticket, 4u);
}

TEST(LedgerTest, SettlingFoldsTrainedAndClosedRowsOfThoseSteps) {
  Ledger ledger(2);
  for (uint64_t step = 1; step <= 3; ++step) {
    IssueTrained(&ledger, step);
    IssueTrained(&ledger, step);
    const uint64_t failed = IssueRunning(&ledger, step);
    ASSERT_TRUE(ledger.Fail(failed, step).ok());
  }
  EXPECT_EQ(ledger.SettleThrough(2), (std::vector<uint64_t>{1, 2, 4, 5}));
  EXPECT_EQ(ledger.SettleThrough(2), std::vector<uint64_t>());
  for (uint64_t ticket = 1; ticket <= 6; ++ticket) EXPECT_EQ(ledger.Find(ticket), nullptr);
  EXPECT_NE(ledger.Find(7), nullptr);
  EXPECT_EQ(ledger.counts().settled(), 4u);
  EXPECT_EQ(ledger.counts().failed(), 3u);
  EXPECT_EQ(ledger.counts().trained(), 2u);
  EXPECT_EQ(ledger.settled_step(), 2u);
  EXPECT_TRUE(ledger.IsConsumed(4, 3));
  EXPECT_FALSE(ledger.IsConsumed(3, 3));
  EXPECT_FALSE(ledger.IsConsumed(7, 2));
  EXPECT_TRUE(ledger.IsConsumed(7, 3));
  EXPECT_EQ(ledger.Rank(9), 6u);
  EXPECT_TRUE(ledger.CheckConservation().ok()) << ledger.CheckConservation();
}

TEST(LedgerTest, ARestoreBringsBackWhatLaterStepsTookAndRewindsWhatIsVoid) {
  Ledger ledger(2);
  const uint64_t kept = IssueTrained(&ledger, 1);
  const uint64_t returned = IssueReady(&ledger, 2);  // tokens of version 2 = the end of step 1: they survive
  ASSERT_TRUE(ledger.Lease(returned, 2).ok());
  ASSERT_TRUE(ledger.Train(returned).ok());
  const uint64_t void_trained = IssueTrained(&ledger, 3);
  const uint64_t leased = IssueReady(&ledger, 2);
  ASSERT_TRUE(ledger.Lease(leased, 4).ok());
  const uint64_t mixed = IssueRunning(&ledger, 2);
  ASSERT_TRUE(ledger.Deliver(mixed, 0, Tokens(2, 3), 1.0, 1).ok());
  const uint64_t young_running = IssueRunning(&ledger, 3);
  const uint64_t old_running = IssueRunning(&ledger, 2);
  const uint64_t void_filtered = IssueReady(&ledger, 3);
  ASSERT_TRUE(ledger.Filter(void_filtered, 3).ok());
  const uint64_t old_failed = IssueRunning(&ledger, 1);
  ASSERT_TRUE(ledger.Fail(old_failed, 1).ok());

  LineageHistory history = History(4);
  ASSERT_TRUE(history.Restore(2, 1).ok());
  const Ledger::Restored restored = ledger.RestoreTo(1, history, nullptr);
  EXPECT_EQ(restored.ready, (std::vector<uint64_t>{returned, leased}));
  EXPECT_EQ(restored.rewound, (std::vector<uint64_t>{void_trained, mixed, young_running, void_filtered}));
  EXPECT_EQ(ledger.Find(kept)->state, RowState::kTrained);
  EXPECT_EQ(ledger.Find(returned)->state, RowState::kReady);
  EXPECT_EQ(ledger.Find(old_running)->state, RowState::kRunning);
  EXPECT_EQ(ledger.Find(old_failed)->state, RowState::kFailed);
  EXPECT_EQ(ledger.Find(mixed)->CountMembers(MemberRecord::State::kMissing), 2u);
  EXPECT_TRUE(ledger.CheckConservation().ok()) << ledger.CheckConservation();
  // The filtered ticket lives again: all but the failed one.
  EXPECT_EQ(ledger.Rank(ledger.next_ticket() - 1), ledger.next_ticket() - 2);
}

TEST(LedgerTest, ARestoreBelowASettledStepTakesThoseRowsBack) {
  for (const bool with_checkpoint : {false, true}) {
    Ledger ledger(2);
    for (uint64_t step = 1; step <= 4; ++step) {
      IssueTrained(&ledger, step);
      ASSERT_TRUE(ledger.Fail(IssueRunning(&ledger, step), step).ok());
    }
    v1::LedgerSnapshot saved;
    Ledger at_two(2);
    for (uint64_t step = 1; step <= 2; ++step) {
      IssueTrained(&at_two, step);
      ASSERT_TRUE(at_two.Fail(IssueRunning(&at_two, step), step).ok());
    }
    ASSERT_TRUE(at_two.IssueNew(At(3)).ok());
    ledger.SettleThrough(4);
    const uint64_t step = with_checkpoint ? 2 : 0;
    LineageHistory history = History(5);
    ASSERT_TRUE(history.Restore(2, step).ok());
    const Ledger::Restored restored = ledger.RestoreTo(step, history, with_checkpoint ? &at_two : nullptr);
    EXPECT_EQ(restored.rewound, with_checkpoint ? (std::vector<uint64_t>{5, 7}) : (std::vector<uint64_t>{1, 3, 5, 7}));
    EXPECT_EQ(ledger.settled_step(), step);
    EXPECT_EQ(ledger.counts().failed(), 4u);
    EXPECT_EQ(ledger.counts().rewound(), restored.rewound.size());
    EXPECT_TRUE(ledger.CheckConservation().ok()) << ledger.CheckConservation();
    // Issue numbers never repeat, although the rows were gone.
    for (uint64_t ticket : restored.rewound) EXPECT_EQ((*ledger.Reissue(ticket, At(step + 1, 2)))->issue, 2u);
    EXPECT_EQ((*ledger.IssueNew(At(step + 1, 2)))->ticket, 9u);
  }
}

TEST(LedgerTest, FoldedRangesMergeInAnyOrder) {
  Ledger ledger(2);
  const std::vector<uint64_t> step_of = {3, 1, 2, 1, 3, 2, 2, 1};  // by ticket - 1
  for (size_t i = 0; i < step_of.size(); ++i) IssueReady(&ledger, 1);
  for (uint64_t step = 1; step <= 3; ++step) {
    for (uint64_t ticket = 1; ticket <= step_of.size(); ++ticket) {
      if (step_of[ticket - 1] != step) continue;
      ASSERT_TRUE(ledger.Lease(ticket, step).ok());
      ASSERT_TRUE(ledger.Train(ticket).ok());
    }
    ledger.SettleThrough(step);
    ASSERT_TRUE(ledger.CheckConservation().ok()) << ledger.CheckConservation();
    for (uint64_t ticket = 1; ticket <= step_of.size(); ++ticket) {
      EXPECT_EQ(ledger.Find(ticket) == nullptr, step_of[ticket - 1] <= step);
    }
  }
  v1::LedgerSnapshot snapshot;
  ledger.Save(&snapshot);
  EXPECT_EQ(snapshot.folded_size(), 2);  // one range
  EXPECT_EQ(snapshot.rows_size(), 0);
}

TEST(LedgerTest, ASnapshotRestoresTheSameLedger) {
  Ledger ledger(2);
  for (uint64_t step = 1; step <= 3; ++step) IssueTrained(&ledger, step);
  ASSERT_TRUE(ledger.Fail(IssueRunning(&ledger, 1), 1).ok());
  ledger.SettleThrough(2);
  ASSERT_TRUE(ledger.Filter(IssueReady(&ledger, 3), 3).ok());
  ASSERT_TRUE(ledger.Rewind(IssueReady(&ledger, 3)).ok());
  ASSERT_TRUE(ledger.Reissue(6, At(3)).ok());
  IssueRunning(&ledger, 3);
  ASSERT_TRUE(ledger.ReturnToIssued(7).ok());
  IssueReady(&ledger, 3);
  v1::LedgerSnapshot first;
  ledger.Save(&first);
  const absl::StatusOr<Ledger> loaded = Ledger::Load(first, 2);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  v1::LedgerSnapshot second;
  loaded->Save(&second);
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
  EXPECT_EQ(loaded->counts().SerializeAsString(), ledger.counts().SerializeAsString());
  EXPECT_EQ(loaded->Rank(8), ledger.Rank(8));
  EXPECT_EQ(loaded->open(), ledger.open());
  EXPECT_EQ(loaded->Find(7)->issue, 2u);
  EXPECT_EQ(loaded->settled_step(), 2u);
}

TEST(LedgerTest, AContradictorySnapshotIsRefused) {
  Ledger ledger(2);
  for (uint64_t step = 1; step <= 3; ++step) IssueTrained(&ledger, step);
  ledger.SettleThrough(2);
  v1::LedgerSnapshot good;
  ledger.Save(&good);
  ASSERT_TRUE(Ledger::Load(good, 2).ok());
  const std::vector<std::function<void(v1::LedgerSnapshot*)>> damages = {
      [](v1::LedgerSnapshot* s) { s->mutable_counts()->set_issued_total(4); },
      [](v1::LedgerSnapshot* s) { s->mutable_counts()->set_trained(2); },
      // The sum is right, the rows are not.
      [](v1::LedgerSnapshot* s) {
        s->mutable_counts()->set_issued(s->counts().trained());
        s->mutable_counts()->clear_trained();
      },
      [](v1::LedgerSnapshot* s) { *s->add_rows() = s->rows(0); },
      [](v1::LedgerSnapshot* s) { s->set_next_ticket(5); },
      [](v1::LedgerSnapshot* s) { s->clear_rows(); },
      [](v1::LedgerSnapshot* s) { s->mutable_rows(0)->set_state(12); },
      [](v1::LedgerSnapshot* s) { s->mutable_rows(0)->set_ticket(2); },
      [](v1::LedgerSnapshot* s) { s->mutable_rows(0)->add_versions(1); },
      [](v1::LedgerSnapshot* s) { s->set_folded(1, 3); },
      [](v1::LedgerSnapshot* s) { s->add_folded(1); },
      [](v1::LedgerSnapshot* s) { s->add_folded_dead(3); },
      [](v1::LedgerSnapshot* s) { s->add_folded_dead(1); },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    v1::LedgerSnapshot damaged = good;
    damages[i](&damaged);
    EXPECT_EQ(Ledger::Load(damaged, 2).status().code(), absl::StatusCode::kDataLoss) << i;
  }
}

}  // namespace
}  // namespace leeway
