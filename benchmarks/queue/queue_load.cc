#include "benchmarks/queue/queue_load.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "benchmarks/queue/figures.h"
#include "benchmarks/queue/real_trajectory.h"
#include "queue/queue_server.h"
#include "rpc/address.h"

namespace leeway {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
// Of one producer; what comes later is not kept.
constexpr uint64_t kMostLatencies = 1 << 20;

double SecondsSince(MonotonicTime start) { return absl::ToDoubleSeconds(RealClock()->Now() - start); }

}  // namespace

// One rollout worker: takes tickets, pushes their members at once, keeps `depth` of them unanswered.
class QueueUnderLoad::Producer {
 public:
  Producer(const std::string& address, int number, const LoadShape& shape)
      : depth_(shape.depth),
        most_unanswered_(shape.lots * shape.depth),
        client_(Must(GrpcQueueWorkerClient::Create(
            {.target = address, .name = absl::StrCat("producer-", number), .max_unanswered_pushes = shape.depth}))),
        trajectory_(RealTrajectory(shape.payload_bytes, 1 + static_cast<uint64_t>(number))) {
    latencies_.reserve(std::min(shape.pushes, kMostLatencies));
    Must(client_->Register(absl::StrCat("rollout-", number), "", kPatience));
  }
  ~Producer() { Join(); }

  // Until `quota` (shared by all producers) is used up, or there are no more tickets.
  void Start(std::atomic<int64_t>* quota, uint32_t members_at_once) {
    thread_ = std::thread([this, quota, members_at_once] { Run(quota, members_at_once); });
  }
  void Join() {
    if (thread_.joinable()) thread_.join();
    MutexLock lock(&mutex_);
    while (unanswered_ > 0) changed_.WaitFor(&mutex_, absl::Seconds(1));
  }
  std::vector<double> TakeLatencies() {
    MutexLock lock(&mutex_);
    return std::exchange(latencies_, {});
  }
  uint64_t answered() const { return answered_.load(std::memory_order_relaxed); }
  std::string cause() const {
    MutexLock lock(&mutex_);
    return cause_;
  }

 private:
  void Run(std::atomic<int64_t>* quota, uint32_t members_at_once) {
    v1::WeightsVersion holds;
    while (quota->load(std::memory_order_relaxed) > 0) {
      const v1::AcquireTicketsResponse response =
          Must(client_->AcquireTickets(members_at_once, holds, absl::Milliseconds(200)));
      holds = response.committed();
      {
        MutexLock lock(&mutex_);
        cause_ = response.cause();
      }
      if (response.run_complete()) return;
      for (const v1::Ticket& ticket : response.tickets()) {
        for (uint32_t member : ticket.members()) Push(ticket, member);
        quota->fetch_sub(ticket.members_size(), std::memory_order_relaxed);
      }
    }
  }
  void Push(const v1::Ticket& ticket, uint32_t member) LEEWAY_EXCLUDES(mutex_) {
    SetKey(ticket, member, &trajectory_);
    {
      MutexLock lock(&mutex_);
      if (unanswered_ >= most_unanswered_) {
        waiting_ = true;
        while (unanswered_ > most_unanswered_ - depth_) changed_.WaitFor(&mutex_, absl::Seconds(1));
        waiting_ = false;
      }
      ++unanswered_;
    }
    const MonotonicTime pushed = RealClock()->Now();
    client_->PushKept(trajectory_, [this, pushed](absl::StatusOr<v1::PushAnswer> answer) {
      if (Must(std::move(answer)).result() != v1::ACCEPTED) {
        std::cerr << "a push was not accepted" << std::endl;
        std::exit(1);
      }
      const double seconds = absl::ToDoubleSeconds(RealClock()->Now() - pushed);
      answered_.fetch_add(1, std::memory_order_relaxed);
      MutexLock lock(&mutex_);
      if (latencies_.size() < kMostLatencies) latencies_.push_back(seconds);
      --unanswered_;
      if (unanswered_ == 0 || (waiting_ && unanswered_ <= most_unanswered_ - depth_)) changed_.NotifyAll();
    });
  }

  const uint64_t depth_;
  const uint64_t most_unanswered_;
  const std::unique_ptr<GrpcQueueWorkerClient> client_;
  v1::Trajectory trajectory_;
  std::thread thread_;
  std::atomic<uint64_t> answered_{0};
  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t unanswered_ LEEWAY_GUARDED_BY(mutex_) = 0;
  bool waiting_ LEEWAY_GUARDED_BY(mutex_) = false;
  std::vector<double> latencies_ LEEWAY_GUARDED_BY(mutex_);
  std::string cause_ LEEWAY_GUARDED_BY(mutex_);
};

namespace {

std::atomic<int64_t>* Quota() {
  static std::atomic<int64_t> quota{0};
  return &quota;
}

}  // namespace

QueueUnderLoad::QueueUnderLoad(Options options) : options_(std::move(options)) {
  const LoadShape& shape = options_.shape;
  address_ = absl::StrCat("unix:", options_.folder, "/socket");
  process_ = std::make_unique<ChildProcess>(Must(ChildProcess::Start(
      {options_.program, "serve", address_, absl::StrCat(shape.groups_per_step), absl::StrCat(shape.group_size),
       absl::StrCat(options_.max_groups), absl::StrCat(options_.steps), absl::StrCat(options_.budget),
       absl::StrCat(2 * shape.payload_bytes + 4096), shape.is_durable ? options_.folder + "/store" : "memory"},
      options_.folder + "/queue.log")));
  // A client that comes before its server waits longer than it must.
  for (int i = 0; i < 2000 && !IsSocketServed(options_.folder + "/socket"); ++i) usleep(5'000);
  trainer_ =
      Must(GrpcQueueTrainerClient::Create({.target = address_, .name = "trainer", .retry_for = absl::Seconds(20)}));
  lineage_ = Must(trainer_->AllocateLineage(kPatience)).lineage();
  Must(trainer_->Restore(lineage_, 0, "", kPatience));
  Commit({});
  for (int i = 0; i < shape.producers; ++i) producers_.push_back(std::make_unique<Producer>(address_, i, shape));
}

QueueUnderLoad::~QueueUnderLoad() = default;

void QueueUnderLoad::Put(uint64_t pushes) {
  StartProducers(pushes);
  JoinProducers();
}

void QueueUnderLoad::StartProducers(uint64_t pushes) {
  Quota()->store(static_cast<int64_t>(pushes));
  // Tickets for a few round trips, and no producer takes so many that others have none.
  const uint64_t share = options_.max_groups * options_.shape.group_size / (2 * producers_.size());
  const uint64_t members = std::max<uint64_t>(options_.shape.group_size, std::min<uint64_t>(256, share));
  for (auto& producer : producers_) producer->Start(Quota(), static_cast<uint32_t>(members));
}

void QueueUnderLoad::JoinProducers() {
  for (auto& producer : producers_) producer->Join();
}

void QueueUnderLoad::StopProducers() {
  Quota()->store(0);
  JoinProducers();
}

uint64_t QueueUnderLoad::Step() {
  const LeasedBatch batch = Must(trainer_->LeaseBatch(lineage_, version_, kPatience));
  if (batch.groups.empty()) MustSucceed(absl::DeadlineExceededError("no batch: " + batch.cause));
  std::vector<uint64_t> tickets;
  uint64_t trajectories = 0;
  for (const BatchGroup& group : batch.groups) {
    tickets.push_back(group.ticket);
    trajectories += group.members.size();
    for (const v1::Trajectory& member : group.members) {
      if (member.key().ticket() == group.ticket && member.spans_size() == 2) continue;
      MustSucceed(absl::DataLossError("the batch holds another trajectory than was pushed"));
    }
  }
  Commit(tickets);
  if (version_ > 3) Must(trainer_->Settle(lineage_, version_ - 2, kPatience));
  return trajectories;
}

void QueueUnderLoad::Commit(const std::vector<uint64_t>& tickets) {
  v1::CommitRequest request;
  request.set_lineage(lineage_);
  request.set_version(++version_);
  request.set_digest("0123456789abcdef0123456789abcdef");
  request.set_initial(tickets.empty());
  request.mutable_tickets()->Add(tickets.begin(), tickets.end());
  Must(trainer_->Commit(request, kPatience));
}

std::vector<double> QueueUnderLoad::TakeLatencies() {
  std::vector<double> all;
  for (auto& producer : producers_) {
    const std::vector<double> some = producer->TakeLatencies();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

uint64_t QueueUnderLoad::answered() const {
  uint64_t sum = 0;
  for (uint64_t answered : answered_by_producer()) sum += answered;
  return sum;
}

std::vector<uint64_t> QueueUnderLoad::answered_by_producer() const {
  std::vector<uint64_t> answered;
  for (const auto& producer : producers_) answered.push_back(producer->answered());
  return answered;
}

std::vector<std::string> QueueUnderLoad::causes() const {
  std::vector<std::string> causes;
  for (const auto& producer : producers_) causes.push_back(producer->cause());
  return causes;
}

v1::StatusResponse QueueUnderLoad::Status() { return Must(trainer_->GetStatus(kPatience)); }

uint64_t QueueUnderLoad::store_bytes() const { return DirectoryBytes(options_.folder + "/store"); }

namespace {

// Room for all pushes of the shape, in a run of `rounds` times as many and some that producers take beyond them.
QueueUnderLoad::Options RoomForAll(const LoadShape& shape, uint64_t rounds, const std::string& folder) {
  return {.shape = shape,
          .max_groups = shape.steps() * shape.groups_per_step + 64,
          .steps = rounds * shape.steps() + 64,
          .budget = rounds * shape.steps() + 64,
          .folder = folder};
}

void Fill(QueueUnderLoad* queue, const LoadShape& shape, LoadResult* result) {
  const MonotonicTime start = RealClock()->Now();
  queue->Put(shape.pushes);
  result->put = static_cast<double>(shape.pushes) / SecondsSince(start);
  std::vector<double> latencies = queue->TakeLatencies();
  result->latency_p50 = Quantile(&latencies, 0.5);
  result->latency_p99 = Quantile(&latencies, 0.99);
}

void Drain(QueueUnderLoad* queue, const LoadShape& shape, LoadResult* result) {
  const MonotonicTime start = RealClock()->Now();
  for (uint64_t got = 0; got < shape.pushes;) got += queue->Step();
  result->get = static_cast<double>(shape.pushes) / SecondsSince(start);
}

}  // namespace

LoadResult MeasurePut(const LoadShape& shape, const std::string& folder) {
  LoadResult result;
  TemporaryFolder own(folder);
  QueueUnderLoad queue(RoomForAll(shape, 1, own.path()));
  Fill(&queue, shape, &result);
  return result;
}

LoadResult MeasureQueue(const LoadShape& shape, const std::string& folder) {
  LoadResult result;
  const double pushes = static_cast<double>(shape.pushes);
  {
    TemporaryFolder own(folder);
    // Filled and emptied once before it counts: a page that is touched for the first time costs more than all else that
    // is done to it, and a queue that runs uses its memory again and again.
    QueueUnderLoad queue(RoomForAll(shape, 2, own.path()));
    for (int round = 0; round < 2; ++round) {
      Fill(&queue, shape, &result);
      Drain(&queue, shape, &result);
    }
  }
  TemporaryFolder own(folder);
  QueueUnderLoad queue({.shape = shape,
                        .max_groups = (shape.steps_ahead + 1) * shape.groups_per_step,
                        .steps = shape.steps(),
                        .budget = shape.steps_ahead,
                        .folder = own.path()});
  const double queue_cpu = ProcessCpuSeconds(queue.pid());
  const double own_cpu = ProcessCpuSeconds(0);
  const MonotonicTime start = RealClock()->Now();
  queue.StartProducers(shape.pushes);
  for (uint64_t got = 0; got < shape.pushes;) got += queue.Step();
  result.flow = pushes / SecondsSince(start);
  queue.JoinProducers();
  result.queue_cpu = (ProcessCpuSeconds(queue.pid()) - queue_cpu) / pushes;
  result.clients_cpu = (ProcessCpuSeconds(0) - own_cpu) / pushes;
  return result;
}

int ServeQueue(int argc, char** argv) {
  if (argc != 10) {
    std::cerr
        << "serve: ADDRESS GROUPS_PER_STEP GROUP_SIZE MAX_GROUPS STEPS BUDGET MAX_TRAJECTORY_BYTES STORE_FOLDER\n";
    return 2;
  }
  const auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
  QueueOptions options;
  options.address = argv[2];
  options.vocabulary_size = kBenchmarkVocabulary;
  options.core.staleness.groups_per_step = number(3);
  options.core.group_size = static_cast<uint32_t>(number(4));
  options.core.max_groups = number(5);
  options.core.staleness.steps = number(6);
  options.core.staleness.budget = number(7);
  options.core.max_trajectory_bytes = number(8);
  options.core.max_bytes = uint64_t{1} << 40;
  if (std::string(argv[9]) != "memory") options.store_directory = argv[9];
  options.core.worker_lease = absl::Hours(1);
  options.core.task = "none";
  options.core.train_seed = [](uint64_t index) { return index; };
  options.core.evaluation_seed = [](uint64_t index) { return index; };
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  const std::unique_ptr<QueueServer> server = Must(QueueServer::Start(options));
  int signal = 0;
  sigwait(&stop, &signal);
  server->Shutdown(absl::Seconds(1));
  return 0;
}

}  // namespace leeway
