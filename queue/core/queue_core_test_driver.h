#ifndef LEEWAY_QUEUE_CORE_QUEUE_CORE_TEST_DRIVER_H_
#define LEEWAY_QUEUE_CORE_QUEUE_CORE_TEST_DRIVER_H_

// Drives a QueueCore in tests: short calls for workers and trainer, time by hand, every invariant checked after every
// call.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "queue/core/queue_core.h"
#include "queue/store/memory_store.h"

namespace leeway {

inline QueueCoreOptions DriverOptions(uint64_t groups_per_step, uint32_t group_size, uint64_t budget, uint64_t steps) {
  QueueCoreOptions options;
  options.staleness.groups_per_step = groups_per_step;
  options.staleness.budget = budget;
  options.staleness.steps = steps;
  options.group_size = group_size;
  options.max_groups = 1000;
  options.max_trajectory_bytes = 100;
  options.max_bytes = 1'000'000;
  options.task = "sort5";
  options.train_seed = [](uint64_t index) { return 1000 + index; };
  options.evaluation_seed = [](uint64_t index) { return 5000 + index; };
  return options;
}

class CoreDriver {
 public:
  explicit CoreDriver(const QueueCoreOptions& options,
                      std::unique_ptr<QueueStore> store = std::make_unique<MemoryStore>())
      : options_(options) {
    auto created = QueueCore::Create(options, std::move(store));
    EXPECT_TRUE(created.ok()) << created.status();
    core_ = *std::move(created);
  }

  QueueCore& core() { return *core_; }
  MonotonicTime now() const { return now_; }
  uint64_t lineage() const { return lineage_; }
  void Advance(absl::Duration by) { now_ = now_ + by; }
  v1::LedgerCounts counts() const { return core_->counts(); }
  void Check() const {
    const absl::Status holds = core_->CheckInvariants();
    ASSERT_TRUE(holds.ok()) << holds;
  }

  // ---- trainer ----

  // A trainer's life begins: allocate, restore the end of `step`, publish version step + 1.
  void StartTrainer(uint64_t step = 0, const std::string& snapshot = "") {
    v1::WeightsVersion committed;
    lineage_ = core_->AllocateLineage(&committed);
    const absl::Status restored = core_->Restore(lineage_, step, snapshot, now_);
    ASSERT_TRUE(restored.ok()) << restored;
    Check();
    const absl::Status initial = Commit(step + 1, {}, true);
    ASSERT_TRUE(initial.ok()) << initial;
  }
  absl::Status Commit(uint64_t version, const std::vector<uint64_t>& tickets, bool initial = false) {
    v1::CommitRequest request;
    request.set_lineage(lineage_);
    request.set_version(version);
    request.set_digest("digest of " + std::to_string(version));
    request.set_initial(initial);
    for (uint64_t ticket : tickets) request.add_tickets(ticket);
    for (const v1::WorkerIdentity& member : members_) *request.add_members() = member;
    const absl::Status status = core_->Commit(request, now_);
    Check();
    return status;
  }
  LeaseResult Lease(uint64_t step) {
    absl::StatusOr<LeaseResult> lease = core_->Lease(lineage_, step, now_);
    EXPECT_TRUE(lease.ok()) << lease.status();
    Check();
    return lease.ok() ? *std::move(lease) : LeaseResult();
  }
  // Leases and commits `step`; the tickets trained, none if the batch is not there yet.
  std::vector<uint64_t> Train(uint64_t step) {
    std::vector<uint64_t> tickets;
    for (const LeasedGroup& group : Lease(step).groups) tickets.push_back(group.ticket);
    if (tickets.empty()) return tickets;
    const absl::Status committed = Commit(step + 1, tickets);
    EXPECT_TRUE(committed.ok()) << committed;
    return tickets;
  }

  // ---- workers ----

  v1::WorkerIdentity Register(const std::string& name) {
    const v1::WorkerIdentity identity = core_->RegisterWorker(name, now_);
    sequence_[identity.producer_id()] = 0;
    members_.push_back(identity);
    Check();
    return identity;
  }
  v1::AcquireTicketsResponse Acquire(const v1::WorkerIdentity& worker, uint32_t slots) {
    v1::AcquireTicketsRequest request;
    *request.mutable_identity() = worker;
    request.set_sequence(++acquires_);
    request.set_max_members(slots);
    *request.mutable_holds() = core_->committed();
    const absl::Status begun = core_->BeginAcquire(request, now_);
    EXPECT_TRUE(begun.ok()) << begun;
    auto response = core_->AcquireTickets(worker, acquires_, now_);
    EXPECT_TRUE(response.ok()) << response.status();
    Check();
    return response.ok() ? *std::move(response) : v1::AcquireTicketsResponse();
  }
  // A completed trajectory of `member` whose tokens are of the ticket's version, or of `version` in the ticket's
  // lineage.
  static PushedTrajectory Completed(const v1::Ticket& ticket, uint32_t member, double reward, uint64_t version = 0) {
    PushedTrajectory pushed;
    pushed.summary.key.set_ticket(ticket.id());
    pushed.summary.key.set_issue(ticket.issue());
    pushed.summary.key.set_member(member);
    pushed.summary.key.set_attempt(1);
    pushed.summary.evaluation = ticket.evaluation();
    pushed.summary.completed = true;
    pushed.summary.reward = reward;
    pushed.summary.sampled_tokens = 5;
    AddVersion(ticket.weights().lineage(), version == 0 ? ticket.weights().version() : version,
               &pushed.summary.versions);
    pushed.payload = "ticket " + std::to_string(ticket.id()) + " member " + std::to_string(member);
    return pushed;
  }
  static PushedTrajectory Failed(const v1::Ticket& ticket, uint32_t member, const std::string& code) {
    PushedTrajectory pushed = Completed(ticket, member, 0.0);
    pushed.summary.completed = false;
    pushed.summary.reward.reset();
    pushed.summary.versions.clear();
    pushed.summary.failure_code = code;
    return pushed;
  }
  v1::PushAnswer Push(const v1::WorkerIdentity& worker, PushedTrajectory pushed) {
    auto answer = core_->Push(worker, ++sequence_[worker.producer_id()], &pushed, now_);
    EXPECT_TRUE(answer.ok()) << answer.status();
    Check();
    return answer.ok() ? *std::move(answer) : v1::PushAnswer();
  }
  // All members that the ticket asks for, with rewards that differ.
  void Complete(const v1::WorkerIdentity& worker, const v1::Ticket& ticket, uint64_t version = 0) {
    for (uint32_t member : ticket.members()) {
      EXPECT_EQ(Push(worker, Completed(ticket, member, member * 0.25, version)).result(), v1::ACCEPTED);
    }
  }
  // Takes and completes tickets until there are none; how many.
  int RunAll(const v1::WorkerIdentity& worker) {
    int tickets = 0;
    while (true) {
      const v1::AcquireTicketsResponse response = Acquire(worker, 1000);
      if (response.tickets().empty()) return tickets;
      for (const v1::Ticket& ticket : response.tickets()) {
        Complete(worker, ticket);
        ++tickets;
      }
    }
  }

 private:
  const QueueCoreOptions options_;
  std::unique_ptr<QueueCore> core_;
  MonotonicTime now_{absl::Seconds(1000)};
  uint64_t lineage_ = 0;
  // The number of the last request for tickets, of any worker.
  uint64_t acquires_ = 0;
  std::map<uint64_t, uint64_t> sequence_;
  std::vector<v1::WorkerIdentity> members_;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_CORE_QUEUE_CORE_TEST_DRIVER_H_
