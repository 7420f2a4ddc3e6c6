// Random runs of QueueCore beside a model that knows only the words of the design: what a worker was given and told,
// what the trainer was leased, which restores happened. The model never looks at the ledger.

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "queue/core/queue_core.h"
#include "queue/store/fake_queue_store.h"
#include "queue/store/memory_store.h"

namespace leeway {
namespace {

// What the model remembers of the newest accepted trajectory of a member.
struct Accepted {
  std::string payload;
  VersionUse versions;
};

// A ticket in a worker's hands, as the worker sees it.
struct Held {
  v1::Ticket ticket;
  std::vector<uint32_t> missing;
  // Of the tokens that its missing members have so far: generation starts on the ticket's version or a later one, and
  // goes on on others.
  VersionUse versions;
};

struct SimulatedWorker {
  std::string name;
  v1::WorkerIdentity identity;
  uint64_t sequence = 0;
  uint64_t acquires = 0;
  std::vector<Held> held;
  std::vector<std::pair<uint64_t, std::string>> answers;  // sequence, serialised answer
};

struct Checkpoint {
  uint64_t step = 0;
  std::string snapshot;
};

class Simulation {
 public:
  // `is_tight`: order `ticket`, and bytes for little more than one batch. `is_durable`: the queue alone is killed again
  // and again, and goes on from its store.
  explicit Simulation(uint64_t seed, bool is_tight = false, bool is_durable = false)
      : random_(seed), is_durable_(is_durable) {
    StalenessOptions& staleness = options_.staleness;
    staleness.order =
        Pick({StalenessOrder::kTicket, StalenessOrder::kTicket, StalenessOrder::kOldest, StalenessOrder::kReady});
    staleness.breach = staleness.order == StalenessOrder::kTicket
                           ? Pick({StalenessBreach::kWait, StalenessBreach::kDrop, StalenessBreach::kMask})
                           : Pick({StalenessBreach::kDrop, StalenessBreach::kMask});
    staleness.mode = Below(4) == 0 ? StalenessMode::kSync : StalenessMode::kAsync;
    staleness.budget = Below(4);
    staleness.groups_per_step = 1 + Below(4);
    staleness.steps = 6 + Below(10);
    if (is_tight) {
      staleness.order = StalenessOrder::kTicket;
      staleness.breach = StalenessBreach::kWait;
      staleness.mode = StalenessMode::kAsync;
      staleness.budget = 3;
    }
    options_.group_size = 1 + Below(3);
    options_.max_groups = staleness.groups_per_step + (is_tight ? 3 * staleness.groups_per_step : Below(10));
    options_.max_trajectory_bytes = is_tight ? 1000 : 60;
    const uint64_t batch_bytes = staleness.groups_per_step * options_.group_size * options_.max_trajectory_bytes;
    // Checkpoints are made when the queue asks for them, so a little more than a batch has to be enough.
    options_.max_bytes = batch_bytes * (is_tight ? 1 : 1 + Below(3)) + Below(is_tight ? batch_bytes : 200);
    options_.short_group = Below(2) == 0 ? ShortGroupPolicy::kRefill : ShortGroupPolicy::kTrainShort;
    options_.min_group_size = 1 + Below(options_.group_size);
    options_.filter_zero_variance = options_.group_size > 1 && Below(2) == 0;
    options_.filter_max_refills = 0.5 * static_cast<double>(Below(4));
    options_.poison_losses = 4;
    options_.ticket_deadline = absl::Seconds(30);
    options_.task = "sort5";
    options_.train_seed = [](uint64_t index) { return index * 7; };
    options_.evaluation_seed = [](uint64_t index) { return index; };
    options_.evaluation.every = Below(2) * 3;
    options_.evaluation.episodes = 2;
    options_.evaluation.deadline = absl::Seconds(50);
    NewCore();
    const uint64_t workers = 1 + Below(3);
    for (uint64_t i = 0; i < workers; ++i) workers_.push_back(SimulatedWorker{absl::StrCat("worker-", i)});
    RegisterAll();
    StartTrainer(0, "");
  }

  // `chaos` random operations, then a fair schedule to the end.
  void Run(int chaos) {
    for (int i = 0; i < chaos && !::testing::Test::HasFatalFailure(); ++i) RandomOperation();
    for (int i = 0; i < 3000 && !core_->run_complete(); ++i) FairRound();
    ASSERT_TRUE(core_->run_complete()) << Describe();
    CheckEnd();
  }

  uint64_t largest_lag() const { return largest_lag_; }
  int restarts() const { return restarts_; }
  const QueueCoreOptions& options() const { return options_; }

 private:
  template <typename T>
  T Pick(std::initializer_list<T> choices) {
    return *(choices.begin() + Below(choices.size()));
  }
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  uint64_t B() const { return options_.staleness.groups_per_step; }

  std::string Describe() const {
    return absl::StrCat("order ", static_cast<int>(options_.staleness.order), " breach ",
                        static_cast<int>(options_.staleness.breach), " mode ",
                        static_cast<int>(options_.staleness.mode), " S ", options_.staleness.budget, " B ", B(), " G ",
                        options_.group_size, " max_groups ", options_.max_groups, " step ", step_, "/",
                        options_.staleness.steps, " ", core_->counts().ShortDebugString());
  }

  void Check() {
    const absl::Status holds = core_->CheckInvariants();
    ASSERT_TRUE(holds.ok()) << holds << "\n" << Describe();
  }

  // ---- processes ----

  void NewCore() {
    options_.last_lineage = lineage_;
    if (is_durable_) {
      core_ = *QueueCore::Create(options_, std::make_unique<FakeQueueStore>(), now_);
      return;
    }
    core_ = *QueueCore::Create(options_, std::make_unique<MemoryStore>());
  }

  FakeQueueStore* store() { return static_cast<FakeQueueStore*>(core_->store()); }

  // What happened so far reaches the disk.
  void Save() {
    if (!is_durable_) return;
    core_->WriteChanges();
    store()->MakeAllDurable();
  }

  // The queue is killed: a new one knows what is on the disk, and nothing else.
  void RestartQueue() {
    auto core = QueueCore::Create(options_, store()->Crash(), now_);
    ASSERT_TRUE(core.ok()) << core.status() << "\n" << Describe();
    core_ = *std::move(core);
    ++restarts_;
    Check();
  }

  std::map<std::string, std::string> DiskRecords() {
    std::map<std::string, std::string> records;
    const absl::Status read = store()->Recover([&](absl::string_view key, absl::string_view value) {
      records[std::string(key)] = std::string(value);
      return absl::OkStatus();
    });
    EXPECT_TRUE(read.ok()) << read;
    return records;
  }

  // What changed was written: writing everything again makes no difference.
  void CheckDisk() {
    const std::map<std::string, std::string> before = DiskRecords();
    core_->MarkAllChanged();
    Save();
    for (const auto& [key, value] : DiskRecords()) {
      const auto found = before.find(key);
      ASSERT_TRUE(found != before.end() && found->second == value) << "record " << key[0] << " was not written";
    }
  }

  // Everything that a queue tells, but for what depends on the time.
  std::string Observe() {
    v1::StatusResponse status;
    core_->FillStatus(now_, &status);
    status.clear_waits();
    status.clear_histograms();  // of this process
    for (v1::WorkerStatus& worker : *status.mutable_workers()) {
      worker.clear_seconds_since_heartbeat();
      worker.clear_report();
    }
    const auto snapshot = core_->Snapshot(lineage_);
    std::string text = status.ShortDebugString() + (snapshot.ok() ? *snapshot : snapshot.status().ToString());
    for (const SimulatedWorker& worker : workers_) {
      for (const auto& [sequence, expected] : worker.answers) {
        const auto answer = core_->RememberedAnswer(worker.identity, sequence);
        text += answer.has_value() ? answer->SerializeAsString() : "-";
      }
    }
    return text;
  }

  // A call that a client repeats when it hears no answer: sometimes the queue dies before it is durable, sometimes
  // after it. `same` compares what the two were told in the second case.
  template <typename Call, typename Same>
  auto Repeatable(Call call, Same same) {
    auto result = call();
    if (is_durable_ && Below(12) == 0) {
      const bool is_answer_lost = Below(2) == 0;
      is_answer_lost ? Save() : static_cast<void>(core_->WriteChanges());
      RestartQueue();
      auto again = call();
      EXPECT_TRUE(!is_answer_lost || same(result, again)) << Describe();
      result = std::move(again);
    }
    Save();
    return result;
  }

  void RegisterAll() {
    for (SimulatedWorker& worker : workers_) Register(&worker);
  }

  void Register(SimulatedWorker* worker) {
    worker->identity = core_->RegisterWorker(worker->name, now_);
    worker->sequence = 0;
    worker->held.clear();
    worker->answers.clear();
    Save();
  }

  void StartTrainer(uint64_t step, const std::string& snapshot) {
    v1::WeightsVersion committed;
    lineage_ = core_->AllocateLineage(&committed);
    const absl::Status restored = core_->Restore(lineage_, step, snapshot, now_);
    ASSERT_TRUE(restored.ok()) << restored << "\n" << Describe();
    Save();
    restores_.push_back({lineage_, step});
    while (!history_.empty() && history_.rbegin()->first > step) history_.erase(std::prev(history_.end()));
    step_ = step + 1;
    leased_.clear();
    Commit(true);
  }

  void Commit(bool initial) {
    v1::CommitRequest request;
    request.set_lineage(lineage_);
    request.set_version(initial ? step_ : step_ + 1);
    request.set_digest(absl::StrCat("digest ", request.version()));
    request.set_initial(initial);
    for (const SimulatedWorker& worker : workers_) *request.add_members() = worker.identity;
    for (uint64_t ticket : leased_) request.add_tickets(ticket);
    const absl::Status committed =
        Repeatable([&] { return core_->Commit(request, now_); }, [](const auto& a, const auto& b) { return a == b; });
    ASSERT_TRUE(committed.ok()) << committed << "\n" << Describe();
    if (Below(3) == 0) {
      ASSERT_TRUE(core_->Commit(request, now_).ok());
    }
    if (initial) return;
    // The surviving history trains a ticket once.
    for (const auto& [step, tickets] : history_) {
      for (uint64_t ticket : leased_)
        ASSERT_EQ(tickets.count(ticket), 0u) << "ticket " << ticket << " again in step " << step_;
    }
    history_[step_] = std::set<uint64_t>(leased_.begin(), leased_.end());
    leased_.clear();
    ++step_;
    if (core_->checkpoint_wanted()) TakeCheckpoint();
  }

  void TakeCheckpoint() {
    checkpoints_.push_back({step_ - 1, *core_->Snapshot(lineage_)});
    // All but the newest settle what they cover.
    if (checkpoints_.size() > 1) {
      ASSERT_TRUE(core_->Settle(lineage_, checkpoints_[checkpoints_.size() - 2].step).ok());
    }
    Check();
  }

  // A checkpoint that still exists in this history, or none: step 0.
  Checkpoint ChooseCheckpoint() {
    // The two newest are kept; the newest may be unreadable.
    Checkpoint chosen;
    if (!checkpoints_.empty() && Below(4) == 0) checkpoints_.pop_back();
    if (!checkpoints_.empty()) chosen = checkpoints_.back();
    if (Below(12) == 0) {
      checkpoints_.clear();
      chosen = Checkpoint();
    }
    return chosen;
  }

  // ---- the trainer's view ----

  bool Exists(const LineageUse& use) const {
    uint64_t limit = std::numeric_limits<uint64_t>::max();
    for (const auto& [lineage, step] : restores_) {
      if (lineage > use.lineage) limit = std::min(limit, step + 1);
    }
    return use.newest <= limit;
  }

  bool TryLease() {
    if (step_ > options_.staleness.steps) return false;
    const absl::StatusOr<LeaseResult> lease = Repeatable(
        [&] { return core_->Lease(lineage_, step_, now_); },
        [](const auto& a, const auto& b) { return a.ok() && b.ok() && a->groups.size() == b->groups.size(); });
    EXPECT_TRUE(lease.ok()) << lease.status() << "\n" << Describe();
    Check();
    if (!lease.ok()) return false;
    if (lease->groups.empty()) {
      EXPECT_NE(lease->cause, "");
      if (lease->cause == "queue_needs_checkpoint") {
        TakeCheckpoint();
        TakeCheckpoint();
      }
      return false;
    }
    EXPECT_EQ(lease->groups.size(), B());
    std::vector<uint64_t> tickets;
    for (const LeasedGroup& group : lease->groups) {
      tickets.push_back(group.ticket);
      CheckGroup(group);
    }
    EXPECT_TRUE(std::is_sorted(tickets.begin(), tickets.end()));
    leased_ = tickets;
    return true;
  }

  void CheckGroup(const LeasedGroup& group) {
    uint64_t oldest = 0;
    uint64_t found = 0;
    for (uint32_t member = 0; member < options_.group_size; ++member) {
      const auto accepted = accepted_.find({group.ticket, member});
      if (accepted == accepted_.end() || found == group.members.size() ||
          **group.members[found]->Load() != accepted->second.payload)
        continue;
      ++found;
      for (const LineageUse& use : accepted->second.versions) {
        EXPECT_TRUE(Exists(use)) << "ticket " << group.ticket << " carries void version " << use.newest << " of "
                                 << use.lineage;
        oldest = oldest == 0 ? use.oldest : std::min(oldest, use.oldest);
      }
    }
    ASSERT_EQ(found, group.members.size()) << "ticket " << group.ticket << ": payloads are not those accepted last";
    ASSERT_GE(found, options_.short_group == ShortGroupPolicy::kRefill ? options_.group_size : options_.min_group_size);
    const uint64_t lag = step_ - oldest;
    const uint64_t limit = options_.staleness.mode == StalenessMode::kSync ? 0 : options_.staleness.budget;
    if (options_.staleness.order == StalenessOrder::kTicket || options_.staleness.breach == StalenessBreach::kDrop) {
      ASSERT_LE(lag, limit) << Describe();
    }
    largest_lag_ = std::max(largest_lag_, lag);
  }

  // ---- the workers' view ----

  void Acquire(SimulatedWorker* worker, uint32_t slots) {
    v1::AcquireTicketsRequest request;
    *request.mutable_identity() = worker->identity;
    request.set_sequence(++worker->acquires);
    request.set_max_members(slots);
    *request.mutable_holds() = core_->committed();
    const auto call = [&] {
      core_->BeginAcquire(request, now_).IgnoreError();
      return core_->AcquireTickets(worker->identity, worker->acquires, now_);
    };
    const auto response = Repeatable(call, [](const auto& a, const auto& b) {
      // Who was given nothing may be given something now; who was given something is given the same.
      return a.ok() == b.ok() && (!a.ok() || a->tickets().empty() || a->SerializeAsString() == b->SerializeAsString());
    });
    if (!response.ok()) {
      ASSERT_EQ(response.status().code(), absl::StatusCode::kAborted);
      Register(worker);
      return;
    }
    Check();
    if (response->tickets().empty()) {
      ASSERT_NE(response->cause(), "");
    }
    for (const v1::Ticket& ticket : response->tickets()) {
      ASSERT_EQ(ticket.weights().version(), step_);
      if (!ticket.evaluation()) {
        ASSERT_EQ(ticket.seed(), (ticket.id() - 1) * 7);
        ASSERT_TRUE(issues_.insert({ticket.id(), ticket.issue(), core_generation_}).second) << "the same issue twice";
        const uint64_t ahead = options_.staleness.mode == StalenessMode::kSync ? 0 : options_.staleness.budget;
        // Not counting the dead: a lower bound on the pacing rule that needs no knowledge of who died.
        const v1::LedgerCounts counts = core_->counts();
        const uint64_t dead = counts.filtered() + counts.stale() + counts.failed() + counts.cancelled();
        ASSERT_LE(ticket.id(), std::min(step_ + ahead, options_.staleness.steps) * B() + dead) << Describe();
      }
      Held held{ticket, {ticket.members().begin(), ticket.members().end()}, {}};
      AddVersion(ticket.weights().lineage(), ticket.weights().version(), &held.versions);
      worker->held.push_back(held);
    }
  }

  void PushOne(SimulatedWorker* worker, bool may_fail) {
    if (worker->held.empty()) return;
    Held& held = worker->held[Below(worker->held.size())];
    if (held.missing.empty()) {
      worker->held.erase(worker->held.begin() + (&held - worker->held.data()));
      return;
    }
    const size_t index = Below(held.missing.size());
    const uint32_t member = held.missing[index];
    held.missing.erase(held.missing.begin() + index);

    PushedTrajectory pushed;
    TrajectorySummary& summary = pushed.summary;
    summary.key.set_ticket(held.ticket.id());
    summary.key.set_issue(held.ticket.issue());
    summary.key.set_member(member);
    summary.evaluation = held.ticket.evaluation();
    const bool fails = may_fail && Below(12) == 0;
    summary.completed = !fails;
    if (fails) summary.failure_code = "step_timeout";
    if (may_fail && Below(30) == 0) pushed.reject_reason = "made_up: for the test";
    // Rewards from a small set, so that some groups have no variance.
    if (!fails) summary.reward = static_cast<double>(Below(2));
    summary.versions = held.versions;
    pushed.payload = absl::StrCat("t", held.ticket.id(), "m", member, "#", ++payloads_);
    // Some as large as they may be, some small.
    if (Below(2) == 0) pushed.payload.resize(options_.max_trajectory_bytes - Below(5), '.');
    const Accepted record{pushed.payload, summary.versions};
    const std::pair<uint64_t, uint32_t> key{held.ticket.id(), member};
    const auto call = [&] {
      PushedTrajectory sent = pushed;
      return core_->Push(worker->identity, worker->sequence + 1, &sent, now_);
    };
    const auto answer = Repeatable(call, [](const auto& a, const auto& b) {
      return a.ok() == b.ok() && (!a.ok() || a->SerializeAsString() == b->SerializeAsString());
    });
    if (!answer.ok()) {
      ASSERT_EQ(answer.status().code(), absl::StatusCode::kAborted) << answer.status();
      Register(worker);
      return;
    }
    Check();
    ++worker->sequence;
    worker->answers.push_back({worker->sequence, answer->SerializeAsString()});
    if (answer->result() == v1::ACCEPTED && summary.completed && !summary.evaluation) {
      accepted_[key] = record;
      ++accepted_count_;
    }
    ASSERT_NE(answer->result(), v1::FULL);
    if (answer->result() == v1::REJECTED) {
      ASSERT_NE(pushed.reject_reason, "") << answer->reason();
    }
  }

  // The worker swaps in the committed weights and generates on: but for evaluation, which is pinned.
  void Generate(SimulatedWorker* worker) {
    const v1::WeightsVersion& committed = core_->committed();
    for (Held& held : worker->held) {
      if (!held.ticket.evaluation() && Below(2) == 0)
        AddVersion(committed.lineage(), committed.version(), &held.versions);
    }
  }

  void PushAgain(SimulatedWorker* worker) {
    if (worker->answers.empty()) return;
    const auto& [sequence, expected] = worker->answers[Below(worker->answers.size())];
    PushedTrajectory anything;
    const auto answer = core_->Push(worker->identity, sequence, &anything, now_);
    if (!answer.ok()) return;  // fenced in the meantime
    ASSERT_EQ(answer->SerializeAsString(), expected);
    anything = PushedTrajectory();
    ASSERT_EQ(core_->Push(worker->identity, worker->sequence + 2, &anything, now_).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }

  // A sign of life, from a worker that may hold the committed version or nothing yet.
  void Beat(const SimulatedWorker& worker) {
    v1::HeartbeatRequest request;
    *request.mutable_identity() = worker.identity;
    if (Below(2) == 0) *request.mutable_holds() = core_->committed();
    const auto response = core_->Heartbeat(request, now_);
    ASSERT_TRUE(response.ok() || absl::IsAborted(response.status())) << response.status();
  }

  // ---- schedules ----

  void RandomOperation() {
    SimulatedWorker& worker = workers_[Below(workers_.size())];
    const uint64_t dice = Below(1000);
    if (dice < 250) {
      Acquire(&worker, 1 + Below(8));
    } else if (dice < 300) {
      Generate(&worker);
    } else if (dice < 320) {
      Beat(worker);
    } else if (dice < 750) {
      PushOne(&worker, true);
    } else if (dice < 780) {
      PushAgain(&worker);
    } else if (dice < 900) {
      if (TryLease() && Below(2) == 0) Commit(false);
    } else if (dice < 930) {
      Register(&worker);  // it was killed
    } else if (dice < 950) {
      if (step_ > 1) TakeCheckpoint();
    } else if (dice < 960) {
      if (!leased_.empty()) {
        ASSERT_TRUE(core_->RetireGroup(lineage_, step_, leased_[Below(leased_.size())], "logprob_mismatch").ok());
        leased_.clear();
      }
    } else if (dice < 970) {
      ASSERT_TRUE(core_->FenceWorker(lineage_, worker.identity, "stalled", now_).ok());
    } else if (dice < 985) {
      now_ = now_ + absl::Seconds(Below(9));
      core_->Tick(now_);
    } else if (dice < 990 && is_durable_) {
      Save();
      CheckDisk();
      const std::string before = Observe();
      RestartQueue();
      ASSERT_EQ(Observe(), before);
    } else if (dice < 994) {
      const Checkpoint checkpoint = ChooseCheckpoint();
      StartTrainer(checkpoint.step, checkpoint.snapshot);  // it was killed
    } else {
      // The queue was killed, and with it the job.
      const Checkpoint checkpoint = ChooseCheckpoint();
      NewCore();
      ++core_generation_;
      RegisterAll();
      StartTrainer(checkpoint.step, checkpoint.snapshot);
    }
    Check();
    Save();
  }

  void FairRound() {
    now_ = now_ + absl::Milliseconds(50);
    core_->Tick(now_);
    for (SimulatedWorker& worker : workers_) {
      Acquire(&worker, 4);
      for (int i = 0; i < 20 && !worker.held.empty(); ++i) PushOne(&worker, false);
    }
    if (TryLease()) Commit(false);
    if (step_ > options_.staleness.steps) {
      ASSERT_TRUE(core_->Settle(lineage_, options_.staleness.steps).ok());
    }
    Check();
    Save();
  }

  // Every ticket that was ever issued was trained exactly once in the surviving history, or is dead.
  void CheckEnd() {
    ASSERT_EQ(history_.size(), options_.staleness.steps);
    std::set<uint64_t> trained;
    for (const auto& [step, tickets] : history_) {
      ASSERT_EQ(tickets.size(), B());
      trained.insert(tickets.begin(), tickets.end());
    }
    ASSERT_EQ(trained.size(), B() * options_.staleness.steps);
    const v1::LedgerCounts counts = core_->counts();
    ASSERT_EQ(counts.trained() + counts.settled(), trained.size());
    const uint64_t dead = counts.filtered() + counts.stale() + counts.failed() + counts.cancelled();
    v1::StatusResponse status;
    core_->FillStatus(now_, &status);
    ASSERT_TRUE(status.conservation_holds());
    const uint64_t unfinished = counts.issued() + counts.running() + counts.ready() + counts.leased();
    // A restore may bring a dead ticket back to life beside its replacement: then the last ones wait for a step that
    // never comes.
    const uint64_t surplus = status.next_ticket() - 1 - trained.size() - dead - unfinished;
    ASSERT_EQ(surplus > 0 && restores_.size() == 1, false);
    ASSERT_LE(surplus, counts.rewound());
    // No ticket beyond what the steps consume.
    ASSERT_EQ(unfinished, 0u) << Describe();
    if (options_.staleness.order == StalenessOrder::kTicket) {
      // Strictly by id.
      uint64_t last = 0;
      for (const auto& [step, tickets] : history_) {
        ASSERT_GT(*tickets.begin(), last);
        last = *tickets.rbegin();
      }
      ASSERT_EQ(counts.stale(), 0u);
    }
  }

  std::mt19937_64 random_;
  const bool is_durable_;
  int restarts_ = 0;
  QueueCoreOptions options_;
  std::unique_ptr<QueueCore> core_;
  MonotonicTime now_{absl::Seconds(1)};
  std::vector<SimulatedWorker> workers_;
  uint64_t lineage_ = 0;
  uint64_t step_ = 1;
  std::vector<uint64_t> leased_;
  std::vector<Checkpoint> checkpoints_;
  std::vector<std::pair<uint64_t, uint64_t>> restores_;
  std::map<uint64_t, std::set<uint64_t>> history_;
  std::map<std::pair<uint64_t, uint32_t>, Accepted> accepted_;
  std::set<std::tuple<uint64_t, uint32_t, int>> issues_;
  int core_generation_ = 0;
  uint64_t payloads_ = 0;
  uint64_t accepted_count_ = 0;
  uint64_t largest_lag_ = 0;
};

TEST(QueueCorePropertyTest, RandomRunsKeepEveryPromise) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation simulation(seed);
    simulation.Run(/*chaos=*/400);
    if (HasFailure()) return;
  }
}

TEST(QueueCorePropertyTest, ADurableQueueGoesOnWhereItWasKilled) {
  int restarts = 0;
  for (uint64_t seed = 3000; seed < 3150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation simulation(seed, /*is_tight=*/seed % 3 == 0, /*is_durable=*/true);
    simulation.Run(/*chaos=*/300);
    restarts += simulation.restarts();
    if (HasFailure()) return;
  }
  EXPECT_GT(restarts, 1000);
}

TEST(QueueCorePropertyTest, RunsWithHardlyAnyRoomKeepEveryPromise) {
  for (uint64_t seed = 2000; seed < 2600; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation simulation(seed, /*is_tight=*/true);
    simulation.Run(/*chaos=*/200);
    if (HasFailure()) return;
  }
}

TEST(QueueCorePropertyTest, LongRunsKeepEveryPromise) {
  for (uint64_t seed = 1000; seed < 1010; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation simulation(seed);
    simulation.Run(/*chaos=*/5000);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace leeway
