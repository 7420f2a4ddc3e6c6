// What the queue costs: whole steps of a run (tickets out, trajectories in, batch out, commit) through the real server
// and clients over a unix socket, all in this process, so that the CPU time is that of both sides together.
//
//   steps/BYTES/PER_SECOND   steps of 48 groups of 8 trajectories of about BYTES; pushes as fast as they go (0) or at a
//   fixed rate, as episodes
//                            end in a run. Counters: pushes/s, CPU microseconds a push (without the pacing itself),
//                            share of one CPU.

#include <malloc.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/logging.h"
#include "benchmark/benchmark.h"
#include "queue/fake_trajectory.h"
#include "queue/queue_grpc_client.h"
#include "queue/queue_server.h"

namespace leeway {
namespace {

constexpr uint64_t kGroups = 48;
constexpr uint32_t kGroupSize = 8;
constexpr absl::Duration kPatience = absl::Seconds(60);

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double ThreadCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class T>
T Must(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::cerr << value.status() << std::endl;
  std::exit(1);
}

void MustBeAccepted(const absl::StatusOr<v1::PushAnswer>& answer) {
  if (answer.ok() && answer->result() == v1::ACCEPTED) return;
  std::cerr << "not accepted: " << (answer.ok() ? answer->ShortDebugString() : answer.status().ToString()) << std::endl;
  std::exit(1);
}

// A server with its two clients.
class Run {
 public:
  Run() {
    char folder[] = "/tmp/leeway-queue-benchmark-XXXXXX";
    folder_ = mkdtemp(folder);
    QueueOptions options;
    options.address = absl::StrCat("unix:", folder_, "/socket");
    options.vocabulary_size = kFakeVocabulary;
    options.core.staleness.groups_per_step = kGroups;
    options.core.staleness.steps = uint64_t{1} << 40;
    options.core.group_size = kGroupSize;
    options.core.max_groups = 4 * kGroups;
    options.core.max_trajectory_bytes = 1 << 20;
    options.core.max_bytes = uint64_t{1} << 40;
    options.core.task = "none";
    options.core.train_seed = [](uint64_t index) { return index; };
    options.core.evaluation_seed = [](uint64_t index) { return index; };
    server_ = Must(QueueServer::Start(options));
    worker_ = Must(GrpcQueueWorkerClient::Create({.target = options.address, .name = "worker"}));
    trainer_ = Must(GrpcQueueTrainerClient::Create({.target = options.address, .name = "trainer"}));
    Must(worker_->Register("rollout-0", "", kPatience));
    lineage_ = Must(trainer_->AllocateLineage(kPatience)).lineage();
    Must(trainer_->Restore(lineage_, 0, "", kPatience));
    Commit({});
  }
  ~Run() {
    // The last answers may still be on their way, and a client that goes answers what is open with an error.
    while (worker_->unanswered_pushes() > 0) std::this_thread::yield();
    worker_.reset();
    trainer_.reset();
    server_.reset();
    RealFileSystem()->RemoveAll(folder_).IgnoreError();
  }

  // One step; `pause` is called before each push. Returns the CPU seconds that the pauses took.
  template <class Pause>
  double Step(int sampled, Pause pause) {
    double paused = 0;
    uint64_t pushed = 0;
    while (pushed < kGroups * kGroupSize) {
      const v1::AcquireTicketsResponse response = Must(worker_->AcquireTickets(256, {}, kPatience));
      for (const v1::Ticket& ticket : response.tickets()) {
        for (uint32_t member : ticket.members()) {
          const double before = ThreadCpuSeconds();
          pause();
          v1::Trajectory trajectory = FakeTrajectory(ticket, member, sampled);
          paused += ThreadCpuSeconds() - before;
          worker_->Push(std::move(trajectory), MustBeAccepted);
          ++pushed;
        }
      }
    }
    const LeasedBatch batch = Must(trainer_->LeaseBatch(lineage_, version_, kPatience));
    std::vector<uint64_t> tickets;
    for (const BatchGroup& group : batch.groups) tickets.push_back(group.ticket);
    Commit(tickets);
    if (version_ > 3) Must(trainer_->Settle(lineage_, version_ - 2, kPatience));
    return paused;
  }

 private:
  void Commit(const std::vector<uint64_t>& tickets) {
    v1::CommitRequest request;
    request.set_lineage(lineage_);
    request.set_version(++version_);
    request.set_digest("d");
    request.set_initial(tickets.empty());
    for (uint64_t ticket : tickets) request.add_tickets(ticket);
    Must(trainer_->Commit(request, kPatience));
  }

  std::string folder_;
  std::unique_ptr<QueueServer> server_;
  std::unique_ptr<GrpcQueueWorkerClient> worker_;
  std::unique_ptr<GrpcQueueTrainerClient> trainer_;
  uint64_t lineage_ = 0;
  uint64_t version_ = 0;
};

void Steps(benchmark::State& state) {
  const int sampled = static_cast<int>(state.range(0)) / 5;  // id and log-probability
  const int64_t per_second = state.range(1);
  Run run;
  run.Step(sampled, [] {});
  double paused = 0;
  const double cpu = CpuSeconds();
  const MonotonicTime start = RealClock()->Now();
  MonotonicTime next = start;
  for (auto _ : state) {
    paused += run.Step(sampled, [&] {
      if (per_second == 0) return;
      next = next + absl::Seconds(1) / per_second;
      const absl::Duration wait = next - RealClock()->Now();
      if (wait <= absl::ZeroDuration()) return;
      const timespec time = absl::ToTimespec(wait);
      nanosleep(&time, nullptr);
    });
  }
  const double pushes = static_cast<double>(state.iterations() * kGroups * kGroupSize);
  const double used = CpuSeconds() - cpu - paused;
  const double wall = absl::ToDoubleSeconds(RealClock()->Now() - start);
  state.counters["pushes_per_s"] = pushes / wall;
  state.counters["cpu_us_per_push"] = 1e6 * used / pushes;
  state.counters["cpu_share"] = used / wall;
}
BENCHMARK(Steps)
    ->ArgNames({"bytes", "per_second"})
    ->Args({150, 0})
    ->Args({1 << 10, 0})
    ->Args({64 << 10, 0})
    ->Args({150, 3000})
    ->Args({1 << 10, 3000})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond)
    ->MinTime(2.0);

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  // As the role binaries do: freed memory is kept, large buffers are not mapped anew each time.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  spdlog::set_level(spdlog::level::warn);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
