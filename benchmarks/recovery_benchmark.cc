// How long a queue needs to go on from its store: live groups are read one by one, settled ones are ranges.
//
//   recovery_benchmark [--live N] [--settled N] [--members G] [--payload-bytes N] [--repeats N] [--directory DIR]
//
// Makes two stores through QueueCore itself (issue, push, lease, commit, settle), one with and one without settled
// tickets, and opens each several times. Exits with 1 when a target is missed.

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "fmt/format.h"
#include "queue/core/queue_core.h"
#include "queue/store/rocksdb_store.h"

namespace leeway {
namespace {

constexpr uint64_t kGroupsPerStep = 10'000;
constexpr double kTargetSeconds = 5.0;

struct Arguments {
  uint64_t live = 100'000;
  uint64_t settled = 10'000'000;
  uint32_t members = 8;
  uint64_t payload_bytes = 1024;
  int repeats = 5;
  std::string directory = "/tmp/leeway-recovery";
};

QueueCoreOptions CoreOptions(const Arguments& arguments) {
  QueueCoreOptions options;
  options.staleness.groups_per_step = kGroupsPerStep;
  options.staleness.budget = arguments.live / kGroupsPerStep + 1;
  options.staleness.steps = 1'000'000;
  options.group_size = arguments.members;
  options.max_groups = arguments.live + 2 * kGroupsPerStep;
  options.max_trajectory_bytes = arguments.payload_bytes;
  options.max_bytes = uint64_t{1} << 40;
  options.task = "recovery";
  options.train_seed = [](uint64_t index) { return index; };
  options.evaluation_seed = [](uint64_t index) { return index; };
  return options;
}

std::unique_ptr<RocksDbStore> OpenStore(const std::string& directory) {
  RocksDbStoreOptions options;
  options.directory = directory;
  absl::StatusOr<std::unique_ptr<RocksDbStore>> store = RocksDbStore::Open(options);
  LEEWAY_CHECK(store.ok()) << store.status();
  return *std::move(store);
}

// Drives a queue as one worker and one trainer, without the network.
class Filler {
 public:
  Filler(const Arguments& arguments, const std::string& directory) : arguments_(arguments) {
    core_ = *QueueCore::Create(CoreOptions(arguments), OpenStore(directory), now_);
    v1::WeightsVersion committed;
    lineage_ = core_->AllocateLineage(&committed);
    LEEWAY_CHECK(core_->Restore(lineage_, 0, "", now_).ok());
    Commit(1, true, {});
    worker_ = core_->RegisterWorker("filler", now_);
  }

  void Settle(uint64_t groups) {
    for (uint64_t step = 1; step <= groups / kGroupsPerStep; ++step) {
      Complete(kGroupsPerStep);
      const absl::StatusOr<LeaseResult> lease = core_->Lease(lineage_, step, now_);
      LEEWAY_CHECK(lease.ok() && lease->groups.size() == kGroupsPerStep);
      Commit(step + 1, false, lease->groups);
      LEEWAY_CHECK(core_->Settle(lineage_, step).ok());
      Save();
      if (step % 100 == 0) fmt::print(stderr, "  {} tickets settled\n", step * kGroupsPerStep);
    }
  }

  // Issues and completes so many groups.
  void Complete(uint64_t groups) {
    while (groups > 0) {
      v1::AcquireTicketsRequest request;
      *request.mutable_identity() = worker_;
      request.set_sequence(++acquires_);
      request.set_max_members(static_cast<uint32_t>(std::min<uint64_t>(groups, 1000) * arguments_.members));
      LEEWAY_CHECK(core_->BeginAcquire(request, now_).ok());
      const auto response = core_->AcquireTickets(worker_, acquires_, now_);
      LEEWAY_CHECK(response.ok() && !response->tickets().empty());
      for (const v1::Ticket& ticket : response->tickets()) Push(ticket);
      groups -= std::min<uint64_t>(groups, response->tickets().size());
      Save();
    }
  }

  // Everything so far is on disk.
  void Save() {
    Gate gate;
    core_->store()->WhenDurable(core_->WriteChanges(), [&gate] {
      MutexLock lock(&gate.mutex);
      gate.is_open = true;
      gate.opened.NotifyAll();
    });
    MutexLock lock(&gate.mutex);
    while (!gate.is_open) gate.opened.WaitFor(&gate.mutex, absl::Seconds(1));
  }

 private:
  struct Gate {
    Mutex mutex;
    CondVar opened;
    bool is_open LEEWAY_GUARDED_BY(mutex) = false;
  };

  void Push(const v1::Ticket& ticket) {
    for (uint32_t member = 0; member < arguments_.members; ++member) {
      PushedTrajectory pushed;
      pushed.summary.key.set_ticket(ticket.id());
      pushed.summary.key.set_issue(ticket.issue());
      pushed.summary.key.set_member(member);
      pushed.summary.completed = true;
      pushed.summary.reward = 0.5;
      AddVersion(ticket.weights().lineage(), ticket.weights().version(), &pushed.summary.versions);
      pushed.payload.assign(arguments_.payload_bytes, 'x');
      const auto answer = core_->Push(worker_, ++sequence_, &pushed, now_);
      LEEWAY_CHECK(answer.ok() && answer->result() == v1::ACCEPTED);
    }
  }

  void Commit(uint64_t version, bool is_initial, const std::vector<LeasedGroup>& groups) {
    v1::CommitRequest request;
    request.set_lineage(lineage_);
    request.set_version(version);
    request.set_digest("digest");
    request.set_initial(is_initial);
    for (const LeasedGroup& group : groups) request.add_tickets(group.ticket);
    LEEWAY_CHECK(core_->Commit(request, now_).ok());
  }

  const Arguments arguments_;
  const MonotonicTime now_{absl::Seconds(1)};
  std::unique_ptr<QueueCore> core_;
  uint64_t lineage_ = 0;
  v1::WorkerIdentity worker_;
  uint64_t acquires_ = 0;
  uint64_t sequence_ = 0;
};

// Least seconds from nothing to a queue that can answer: what a busy machine adds is not the store's.
double Recover(const Arguments& arguments, const std::string& directory, uint64_t expected_issued) {
  std::vector<double> seconds;
  for (int i = 0; i < arguments.repeats; ++i) {
    const MonotonicTime begin = RealClock()->Now();
    std::unique_ptr<RocksDbStore> store = OpenStore(directory);
    const MonotonicTime opened = RealClock()->Now();
    const auto core = QueueCore::Create(CoreOptions(arguments), std::move(store), begin);
    const MonotonicTime end = RealClock()->Now();
    seconds.push_back(absl::ToDoubleSeconds(end - begin));
    fmt::print(stderr, "  store opened in {:.2f} s, queue made of it in {:.2f} s\n",
               absl::ToDoubleSeconds(opened - begin), absl::ToDoubleSeconds(end - opened));
    LEEWAY_CHECK(core.ok()) << core.status();
    LEEWAY_CHECK((*core)->counts().issued_total() == expected_issued);
    LEEWAY_CHECK((*core)->counts().ready() == arguments.live);
  }
  return *std::min_element(seconds.begin(), seconds.end());
}

int Run(const Arguments& arguments) {
  std::vector<double> seconds;
  for (const uint64_t settled : {uint64_t{0}, arguments.settled}) {
    const std::string directory = JoinPath(arguments.directory, fmt::format("settled-{}", settled));
    LEEWAY_CHECK(RealFileSystem()->RemoveAll(directory).ok());
    fmt::print(stderr, "filling a store with {} settled and {} live groups\n", settled, arguments.live);
    {
      Filler filler(arguments, directory);
      filler.Settle(settled);
      filler.Complete(arguments.live);
    }
    seconds.push_back(Recover(arguments, directory, settled + arguments.live));
    fmt::print("{:>10} settled, {} live groups of {} x {} bytes: recovered in {:.2f} s (least of {})\n", settled,
               arguments.live, arguments.members, arguments.payload_bytes, seconds.back(), arguments.repeats);
    fflush(stdout);
    LEEWAY_CHECK(RealFileSystem()->RemoveAll(directory).ok());
  }
  const double slower = seconds[1] / seconds[0];
  const bool holds = seconds[0] < kTargetSeconds && seconds[1] < kTargetSeconds && slower < 1.2;
  fmt::print("with settled tickets {:.2f} times as long; targets: below {} s, not slower (1.2): {}\n", slower,
             kTargetSeconds, holds ? "hold" : "MISSED");
  return holds ? 0 : 1;
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  leeway::Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--live") {
      arguments.live = std::stoull(value);
    } else if (name == "--settled") {
      arguments.settled = std::stoull(value);
    } else if (name == "--members") {
      arguments.members = static_cast<uint32_t>(std::stoul(value));
    } else if (name == "--payload-bytes") {
      arguments.payload_bytes = std::stoull(value);
    } else if (name == "--repeats") {
      arguments.repeats = std::stoi(value);
    } else if (name == "--directory") {
      arguments.directory = value;
    } else {
      fmt::print(stderr, "unknown argument {}\n", name);
      return 2;
    }
  }
  return leeway::Run(arguments);
}
