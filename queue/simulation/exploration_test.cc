// Every order of events of small queues: no bound broken in any state that can be reached, and from every one of them a
// fair schedule comes to the end of the run. States are found by replaying their shortest history.

#include <deque>
#include <set>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "queue/core/queue_core.h"
#include "queue/store/memory_store.h"

namespace leeway {
namespace {

struct Shape {
  uint64_t groups_per_step;
  uint32_t group_size;
  uint64_t budget;
  uint64_t max_groups;
  int workers;
  StalenessOrder order;
  // Failed episodes, killed workers, killed trainers in one history, at most.
  int misfortunes;
  // Groups for which there are bytes, all their trajectories as large as they may be; 0 = more than enough, small ones.
  uint64_t room = 0;
  StalenessBreach breach = order == StalenessOrder::kTicket ? StalenessBreach::kWait : StalenessBreach::kDrop;
  StalenessMode mode = StalenessMode::kAsync;
  // Zero-variance groups are replaced, at most one batch of them a step.
  bool filters = false;
  ShortGroupPolicy short_group = ShortGroupPolicy::kRefill;
};

// What may happen next.
constexpr uint64_t kSteps = 2;
constexpr uint64_t kLargest = 10;  // bytes of a trajectory

enum class Event {
  kAcquire,
  kPushFirst,
  kPushLast,
  kPushDull,
  kPushFailure,
  kKillWorker,
  kLease,
  kCommit,
  kKillTrainer,
  kSettle
};

struct Action {
  Event event;
  int worker = 0;
};

class World {
 public:
  explicit World(const Shape& shape) : shape_(shape) {
    QueueCoreOptions options;
    options.staleness.groups_per_step = shape.groups_per_step;
    options.staleness.budget = shape.budget;
    options.staleness.steps = kSteps;
    options.staleness.order = shape.order;
    options.staleness.breach = shape.breach;
    options.staleness.mode = shape.mode;
    options.filter_zero_variance = shape.filters;
    options.short_group = shape.short_group;
    options.group_size = shape.group_size;
    options.max_groups = shape.max_groups;
    options.max_trajectory_bytes = kLargest;
    const uint64_t room = shape.room > 0 ? shape.room : shape.max_groups + 2 * shape.groups_per_step;
    options.max_bytes = kLargest * shape.group_size * room;
    options.task = "t";
    options.train_seed = options.evaluation_seed = [](uint64_t index) { return index; };
    core_ = *QueueCore::Create(options, std::make_unique<MemoryStore>());
    workers_.resize(shape.workers);
    for (int i = 0; i < shape.workers; ++i) Register(i);
    StartTrainer(0);
  }

  // False: the action is not possible here.
  bool Apply(const Action& action) {
    Worker& worker = workers_[action.worker];
    switch (action.event) {
      case Event::kAcquire: {
        v1::AcquireTicketsRequest request;
        *request.mutable_identity() = worker.identity;
        request.set_sequence(++worker.acquires);
        request.set_max_members(1);
        *request.mutable_holds() = core_->committed();
        EXPECT_TRUE(core_->BeginAcquire(request, now_).ok());
        const auto response = core_->AcquireTickets(worker.identity, worker.acquires, now_);
        if (response->tickets().empty()) return false;
        for (const v1::Ticket& ticket : response->tickets()) {
          for (uint32_t member : ticket.members()) worker.work.push_back({ticket, member});
        }
        return true;
      }
      case Event::kPushFirst:
        return Push(&worker, 0, Episode::kGood);
      case Event::kPushLast:
        return worker.work.size() > 1 && Push(&worker, worker.work.size() - 1, Episode::kGood);
      case Event::kPushDull:
        return shape_.filters && Push(&worker, 0, Episode::kDull);
      case Event::kPushFailure:
        return misfortunes_ < shape_.misfortunes && Push(&worker, 0, Episode::kFailed) && ++misfortunes_ > 0;
      case Event::kKillWorker:
        if (misfortunes_ == shape_.misfortunes || worker.work.empty()) return false;
        ++misfortunes_;
        Register(action.worker);
        return true;
      case Event::kLease: {
        if (step_ > 2 || !leased_.empty()) return false;
        const auto lease = core_->Lease(lineage_, step_, now_);
        for (const LeasedGroup& group : lease->groups) leased_.push_back(group.ticket);
        // In mode `sync` the asking itself lets tickets go out.
        const bool is_asked_first = std::exchange(asked_step_, step_) != step_;
        return !leased_.empty() || (shape_.mode == StalenessMode::kSync && is_asked_first);
      }
      case Event::kCommit: {
        if (leased_.empty()) return false;
        ++step_;
        Commit(false);
        return true;
      }
      case Event::kKillTrainer:
        if (misfortunes_ == shape_.misfortunes) return false;
        ++misfortunes_;
        StartTrainer(settled_);
        return true;
      case Event::kSettle:
        if (settled_ == step_ - 1) return false;
        settled_ = step_ - 1;
        EXPECT_TRUE(core_->Settle(lineage_, settled_).ok());
        return true;
    }
    return false;
  }

  // Everything that matters for what can happen next.
  std::string State() const {
    std::string state = absl::StrCat(misfortunes_, " ", settled_, " ", step_, "|", *core_->Snapshot(lineage_));
    if (shape_.mode == StalenessMode::kSync) absl::StrAppend(&state, "|", asked_step_);
    for (const Worker& worker : workers_) {
      absl::StrAppend(&state, "|");
      for (const auto& [ticket, member] : worker.work)
        absl::StrAppend(&state, ticket.id(), ".", ticket.issue(), ".", member, ",");
    }
    absl::StrAppend(&state, "|", core_->bytes(), "|");
    for (uint64_t ticket : leased_) absl::StrAppend(&state, ticket, ",");
    for (const std::string& dull : dull_) absl::StrAppend(&state, " dull ", dull);
    if (shape_.order != StalenessOrder::kReady) return state;
    for (uint64_t ticket : completed_) absl::StrAppend(&state, " ", ticket);
    return state;
  }

  absl::Status Check() const { return core_->CheckInvariants(); }

  // A schedule in which everybody does its work.
  bool RunsToTheEnd() {
    for (int round = 0; round < 60; ++round) {
      if (core_->run_complete()) return true;
      now_ = now_ + absl::Milliseconds(200);  // longer than shares are kept for others
      for (int i = 0; i < shape_.workers; ++i) {
        core_->Tick(now_);
        Apply({Event::kAcquire, i});
        while (Apply({Event::kPushFirst, i})) {
        }
      }
      Apply({Event::kLease});
      Apply({Event::kCommit});
      // The trainer writes a checkpoint when the queue asks for one.
      if (step_ > kSteps || core_->checkpoint_wanted()) Apply({Event::kSettle});
    }
    return core_->run_complete();
  }

 private:
  struct Worker {
    v1::WorkerIdentity identity;
    uint64_t sequence = 0;
    uint64_t acquires = 0;
    std::vector<std::pair<v1::Ticket, uint32_t>> work;
  };

  void Register(int i) {
    workers_[i] = Worker();
    workers_[i].identity = core_->RegisterWorker(absl::StrCat("w", i), now_);
  }

  void StartTrainer(uint64_t step) {
    v1::WeightsVersion committed;
    lineage_ = core_->AllocateLineage(&committed);
    EXPECT_TRUE(core_->Restore(lineage_, step, "", now_).ok());
    step_ = step + 1;
    asked_step_ = 0;
    leased_.clear();
    Commit(true);
  }

  void Commit(bool initial) {
    v1::CommitRequest request;
    request.set_lineage(lineage_);
    request.set_version(step_);
    request.set_digest("d");
    request.set_initial(initial);
    for (uint64_t ticket : leased_) request.add_tickets(ticket);
    const absl::Status committed = core_->Commit(request, now_);
    EXPECT_TRUE(committed.ok()) << committed;
    leased_.clear();
  }

  // Of a group whose episodes are all dull nothing can be learnt; two good ones of a group differ.
  enum class Episode { kGood, kDull, kFailed };

  bool Push(Worker* worker, size_t index, Episode episode) {
    if (worker->work.empty()) return false;
    const auto [ticket, member] = worker->work[index];
    worker->work.erase(worker->work.begin() + index);
    PushedTrajectory pushed;
    pushed.summary.key.set_ticket(ticket.id());
    pushed.summary.key.set_issue(ticket.issue());
    pushed.summary.key.set_member(member);
    pushed.summary.completed = episode != Episode::kFailed;
    if (pushed.summary.completed) pushed.summary.reward = episode == Episode::kDull ? 0 : member;
    if (episode == Episode::kDull) dull_.insert(absl::StrCat(ticket.id(), ".", ticket.issue(), ".", member));
    AddVersion(ticket.weights().lineage(), ticket.weights().version(), &pushed.summary.versions);
    pushed.payload = std::string(shape_.room > 0 ? kLargest : 1, 'x');
    const uint64_t before = core_->counts().ready();
    const auto answer = core_->Push(worker->identity, ++worker->sequence, &pushed, now_);
    EXPECT_TRUE(answer.ok());
    if (core_->counts().ready() > before) completed_.push_back(ticket.id());
    return true;
  }

  const Shape shape_;
  std::unique_ptr<QueueCore> core_;
  MonotonicTime now_{absl::Seconds(1)};
  std::vector<Worker> workers_;
  uint64_t lineage_ = 0;
  uint64_t step_ = 1;
  uint64_t settled_ = 0;
  // The newest step that this trainer asked a batch for.
  uint64_t asked_step_ = 0;
  std::vector<uint64_t> leased_;
  // In the order in which they became ready.
  std::vector<uint64_t> completed_;
  // Episodes that were pushed as dull ones: the filter remembers.
  std::set<std::string> dull_;
  int misfortunes_ = 0;
};

// Number of states.
size_t Explore(const Shape& shape) {
  const auto replay = [&](const std::vector<Action>& history) {
    auto world = std::make_unique<World>(shape);
    for (const Action& action : history) EXPECT_TRUE(world->Apply(action));
    return world;
  };
  std::set<std::string> seen{World(shape).State()};
  std::deque<std::vector<Action>> frontier{{}};
  while (!frontier.empty()) {
    const std::vector<Action> history = frontier.front();
    frontier.pop_front();
    EXPECT_TRUE(replay(history)->RunsToTheEnd()) << "stuck after " << history.size() << " events";
    for (int kind = 0; kind <= static_cast<int>(Event::kSettle); ++kind) {
      const Event event = static_cast<Event>(kind);
      const bool is_trainers =
          event == Event::kLease || event == Event::kCommit || event == Event::kKillTrainer || event == Event::kSettle;
      for (int worker = 0; worker < (is_trainers ? 1 : shape.workers); ++worker) {
        auto world = replay(history);
        if (!world->Apply({event, worker})) continue;
        const absl::Status holds = world->Check();
        EXPECT_TRUE(holds.ok()) << holds;
        if (!seen.insert(world->State()).second) continue;
        frontier.push_back(history);
        frontier.back().push_back({event, worker});
      }
    }
    if (::testing::Test::HasFailure()) break;
  }
  return seen.size();
}

size_t ExploreAndCheck(const Shape& shape) {
  SCOPED_TRACE(absl::StrCat("B ", shape.groups_per_step, " G ", shape.group_size, " S ", shape.budget, " max_groups ",
                            shape.max_groups, " workers ", shape.workers, " order ", static_cast<int>(shape.order),
                            " room ", shape.room, " breach ", static_cast<int>(shape.breach), " mode ",
                            static_cast<int>(shape.mode), " filter ", shape.filters, " short ",
                            static_cast<int>(shape.short_group)));
  const size_t found = Explore(shape);
  EXPECT_GT(found, 20u);
  return found;
}

TEST(QueueCoreExplorationTest, SmallQueuesHaveNoDeadEndAndBreakNoBound) {
  size_t states = 0;
  for (const Shape& shape : {
           Shape{1, 1, 0, 1, 1, StalenessOrder::kTicket, 2},
           Shape{1, 1, 1, 1, 2, StalenessOrder::kTicket, 2},
           Shape{1, 1, 1, 2, 2, StalenessOrder::kTicket, 1},
           Shape{1, 2, 1, 2, 1, StalenessOrder::kTicket, 1},
           Shape{2, 1, 0, 2, 2, StalenessOrder::kTicket, 1},
           Shape{2, 1, 1, 3, 1, StalenessOrder::kTicket, 1},
           Shape{1, 1, 0, 1, 2, StalenessOrder::kReady, 2},
           Shape{1, 1, 1, 2, 2, StalenessOrder::kReady, 1},
           Shape{1, 1, 1, 2, 1, StalenessOrder::kOldest, 1},
       }) {
    states += ExploreAndCheck(shape);
    if (HasFailure()) return;
  }
  RecordProperty("states", static_cast<int>(states));
}

// Three workers, no more room than one batch, every breach, the synchronous mode, the filter, short groups.
TEST(QueueCoreExplorationTest, EveryPolicyWithHardlyAnyRoomHasNoDeadEndAndBreaksNoBound) {
  const auto with = [](Shape shape, auto change) {
    change(&shape);
    return shape;
  };
  const Shape ticket{1, 1, 1, 2, 2, StalenessOrder::kTicket, 1};
  const Shape ready{1, 1, 1, 2, 2, StalenessOrder::kReady, 1};
  const Shape pair{1, 2, 1, 2, 1, StalenessOrder::kTicket, 1};
  size_t states = 0;
  for (const Shape& shape : {
           Shape{1, 1, 1, 2, 3, StalenessOrder::kTicket, 0},
           Shape{1, 1, 0, 1, 3, StalenessOrder::kReady, 1},
           with(ticket, [](Shape* s) { s->room = 1; }),
           with(ready, [](Shape* s) { s->room = 1; }),
           with(pair, [](Shape* s) { s->room = 1; }),
           with(ticket, [](Shape* s) { s->room = 2; }),
           Shape{2, 1, 1, 2, 1, StalenessOrder::kTicket, 1, 2},
           Shape{2, 1, 1, 3, 1, StalenessOrder::kReady, 1, 2},
           with(ticket, [](Shape* s) { s->breach = StalenessBreach::kDrop; }),
           with(ticket, [](Shape* s) { s->breach = StalenessBreach::kMask; }),
           with(ready, [](Shape* s) { s->breach = StalenessBreach::kMask; }),
           with(ticket, [](Shape* s) { s->mode = StalenessMode::kSync, s->budget = 0, s->workers = 1; }),
           with(ready, [](Shape* s) { s->mode = StalenessMode::kSync, s->budget = 0, s->workers = 1; }),
           with(pair, [](Shape* s) { s->filters = true, s->misfortunes = 0, s->budget = 0; }),
           with(pair, [](Shape* s) { s->filters = true, s->misfortunes = 0, s->room = 1; }),
           with(pair,
                [](Shape* s) {
                  s->filters = true, s->misfortunes = 0, s->budget = 0, s->order = StalenessOrder::kReady,
                  s->breach = StalenessBreach::kDrop;
                }),
           with(pair, [](Shape* s) { s->short_group = ShortGroupPolicy::kTrainShort; }),
       }) {
    states += ExploreAndCheck(shape);
    if (HasFailure()) return;
  }
  RecordProperty("states", static_cast<int>(states));
}

}  // namespace
}  // namespace leeway
