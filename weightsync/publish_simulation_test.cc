// Both state machines over a scripted network: publisher, workers, queue and trainer in one thread, with every order of
// events a choice. All orders of one publish with one fault are enumerated; long histories with many faults are drawn
// at random. Bytes and hashes are real.

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weightsync/manifest.h"
#include "weightsync/publish/publisher_state.h"
#include "weightsync/receive/double_buffer.h"
#include "weightsync/receive/subscriber_state.h"

namespace leeway {
namespace {

using VersionKey = std::pair<uint64_t, uint64_t>;

constexpr size_t kModelBytes = 17;

VersionKey Key(const v1::WeightsVersion& weights) { return {weights.lineage(), weights.version()}; }

v1::WeightsVersion Version(VersionKey key) {
  v1::WeightsVersion weights;
  weights.set_lineage(key.first);
  weights.set_version(key.second);
  return weights;
}

std::vector<TensorView> Views(const std::string& bytes) {
  const auto all = absl::MakeSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  return {{"a", {3}, "F32", all.subspan(0, 12)}, {"none", {0}, "F32", {}}, {"b", {5}, "U8", all.subspan(12)}};
}

std::string ModelBytes(uint64_t content) {
  std::string bytes(kModelBytes, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(content * 31 + i * 7);
  return bytes;
}

// Where the next event comes from.
class Chooser {
 public:
  virtual ~Chooser() = default;
  // Of `weights.size()` events with these weights; 0-based.
  virtual size_t Choose(const std::vector<int>& weights) = 0;
};

class RandomChooser : public Chooser {
 public:
  explicit RandomChooser(uint32_t seed) : random_(seed) {}
  size_t Choose(const std::vector<int>& weights) override {
    return std::discrete_distribution<size_t>(weights.begin(), weights.end())(random_);
  }

 private:
  std::mt19937 random_;
};

// Depth-first through all sequences of choices: follows a prefix, then takes the first event every time.
class EnumeratingChooser : public Chooser {
 public:
  size_t Choose(const std::vector<int>& weights) override {
    if (depth_ == choices_.size()) choices_.push_back({0, weights.size()});
    EXPECT_EQ(choices_[depth_].second, weights.size()) << "the simulation is not deterministic";
    return choices_[depth_++].first;
  }
  // Moves on to the next sequence; false after the last.
  bool Advance() {
    depth_ = 0;
    while (!choices_.empty() && choices_.back().first + 1 == choices_.back().second) choices_.pop_back();
    if (choices_.empty()) return false;
    ++choices_.back().first;
    return true;
  }

 private:
  std::vector<std::pair<size_t, size_t>> choices_;
  size_t depth_ = 0;
};

struct Worker {
  uint64_t producer = 0;
  uint64_t epoch = 1;
  std::unique_ptr<DoubleBuffer> buffers;
  std::unique_ptr<SubscriberState> state;
  // 0 = no connection. `is_cut`: broken, but this side has not noticed.
  uint64_t connection = 0;
  bool is_cut = false;
  bool is_stalled = false;
  std::deque<v1::ReceiverMessage> up;
  std::deque<v1::PublisherMessage> down;
  // The load being carried out, and its next bucket.
  std::optional<SubscriberState::Load> load;
  uint64_t offset = 0;
  bool corrupts_next_bucket = false;
  // What the engine generates from, and the one before while its turns end.
  CommittedWeights active;
  CommittedWeights finishing;
};

class Simulation {
 public:
  Simulation(Chooser* chooser, int workers) : chooser_(chooser) {
    RestartPublisher();
    for (int i = 0; i < workers; ++i) {
      workers_.emplace_back();
      workers_.back().producer = i + 1;
      StartProcess(&workers_.back());
    }
  }
  ~Simulation() {
    // Handles before their buffers' owners.
    for (Worker& worker : workers_) ForgetProcess(&worker);
  }

  // ---- what may happen ----
  struct Event {
    std::string name;
    int weight = 1;
    std::function<void()> run;
  };

  std::vector<Event> EnabledEvents() {
    std::vector<Event> events;
    for (Worker& worker : workers_) AddWorkerEvents(&worker, &events);
    AddTrainerEvents(&events);
    if (faults_left > 0) AddFaults(&events);
    if (events.empty() || lets_time_pass) events.push_back({"time", 1, [this] { AdvanceTime(); }});
    return events;
  }

  void Step(Chooser* chooser) {
    std::vector<Event> events = EnabledEvents();
    std::vector<int> weights;
    for (const Event& event : events) weights.push_back(event.weight);
    const Event& event = events[chooser->Choose(weights)];
    history_.push_back(event.name);
    event.run();
    CheckAlways();
  }
  void Step() { Step(chooser_); }

  // First of what may happen, until `done`; false if it takes too long.
  bool RunInOrder(const std::function<bool()>& done) {
    EnumeratingChooser first;
    for (int i = 0; i < 2000 && !done(); ++i) Step(&first);
    return done();
  }

  bool AllHoldTheNewest() const {
    return std::all_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
      return worker.active.bytes != nullptr && Key(worker.active.weights) == newest_;
    });
  }
  bool is_idle() const { return trainer_ == Trainer::kIdle; }
  bool is_preparing() const { return trainer_ == Trainer::kPreparing; }
  std::string history() const { return absl::StrJoin(history_, ", "); }

  // ---- script ----
  size_t bucket_bytes = 8;
  int publishes_left = 0;
  int faults_left = 0;
  bool may_abandon = false;
  bool may_restart_publisher = false;
  bool may_publish_new = true;
  bool may_relabel = false;
  bool lets_time_pass = false;
  // Workers hear of commits from the queue too.
  bool tells_queue_news = false;
  // Faults hit this worker only (0 = any).
  uint64_t victim = 0;
  std::deque<Worker>& workers() { return workers_; }
  VersionKey newest() const { return newest_; }
  void Heal() {
    faults_left = 0;
    may_abandon = false;
    lets_time_pass = false;
    tells_queue_news = false;
    for (Worker& worker : workers_) {
      worker.is_stalled = false;
      worker.corrupts_next_bucket = false;
    }
  }

 private:
  enum class Trainer { kIdle, kPreparing, kCommittedInQueue };

  // ---- workers ----
  void StartProcess(Worker* worker) {
    worker->buffers = *DoubleBuffer::Create(kModelBytes);
    worker->state = std::make_unique<SubscriberState>(*MakeLayout(Views(ModelBytes(0))), worker->buffers.get());
    SetIdentity(worker);
  }
  void ForgetProcess(Worker* worker) {
    worker->load.reset();
    worker->active = worker->finishing = CommittedWeights();
    worker->state.reset();
    worker->buffers.reset();
    worker->up.clear();
    worker->down.clear();
  }
  void SetIdentity(Worker* worker) {
    v1::WorkerIdentity identity;
    identity.set_producer_id(worker->producer);
    identity.set_epoch(worker->epoch);
    worker->state->SetIdentity(identity);
  }
  void Collect(Worker* worker) {
    for (v1::ReceiverMessage& message : worker->state->TakeOutgoing()) {
      // Nobody may claim what it does not hold: the bytes behind every claim are looked at when they are taken, and a
      // load was proved.
      if (worker->connection != 0 && !worker->is_cut) worker->up.push_back(std::move(message));
    }
  }
  void CloseAtWorker(Worker* worker) {
    worker->connection = 0;
    worker->is_cut = false;
    worker->up.clear();
    worker->down.clear();
    worker->state->OnDisconnected();
  }

  void AddWorkerEvents(Worker* worker, std::vector<Event>* events) {
    const std::string name = absl::StrCat("w", worker->producer, ".");
    if (worker->is_stalled) {
      // Where time does not pass by chance, it stays stalled until all deadlines are over.
      if (lets_time_pass) events->push_back({name + "wakes", 1, [worker] { worker->is_stalled = false; }});
      return;
    }
    if (worker->connection == 0 && !worker->state->is_fenced())
      events->push_back({name + "dials", 5, [this, worker] { Dial(worker); }});
    if (worker->state->is_fenced()) {
      events->push_back({name + "registers", 5, [this, worker] {
                           ++worker->epoch;
                           SetIdentity(worker);
                         }});
    }
    // What the publisher wrote before it closed arrives first.
    if (worker->connection != 0 && worker->is_cut && worker->down.empty())
      events->push_back({name + "notices", 5, [this, worker] { CloseAtWorker(worker); }});
    if (!worker->up.empty() && !worker->is_cut)
      events->push_back({name + "up", 10, [this, worker] { DeliverUp(worker); }});
    if (!worker->down.empty()) events->push_back({name + "down", 10, [this, worker] { DeliverDown(worker); }});
    if (worker->load.has_value() || worker->state->has_load())
      events->push_back({name + "loads", 10, [this, worker] { LoadBucket(worker); }});
    if (worker->finishing.bytes != nullptr)
      events->push_back({name + "releases", 10, [this, worker] { Release(worker); }});
    if (worker->state->has_newer() && worker->finishing.bytes == nullptr)
      events->push_back({name + "takes", 10, [this, worker] { Take(worker); }});
    if (newest_.first > 0 && tells_queue_news) {
      events->push_back({name + "hears", 2, [this, worker] {
                           worker->state->NoteCommitted(Version(newest_), committed_[newest_]);
                           Collect(worker);
                         }});
    }
  }

  void Dial(Worker* worker) {
    worker->connection = next_connection_++;
    publisher_->OnOpened(now_, worker->connection);
    worker->state->OnConnected();
    v1::ReceiverMessage hello;
    hello.mutable_hello()->mutable_identity()->set_producer_id(worker->producer);
    hello.mutable_hello()->mutable_identity()->set_epoch(worker->epoch);
    hello.mutable_hello()->set_name(absl::StrCat("w", worker->producer));
    hello.mutable_hello()->set_transport(worker->producer % 2 == 0 ? "grpc" : "shared_memory");
    worker->up.push_back(hello);
  }
  void DeliverUp(Worker* worker) {
    const v1::ReceiverMessage message = worker->up.front();
    worker->up.pop_front();
    publisher_->OnMessage(now_, worker->connection, message);
    Route();
  }
  void DeliverDown(Worker* worker) {
    const v1::PublisherMessage message = worker->down.front();
    worker->down.pop_front();
    worker->state->OnMessage(now_, message);
    Collect(worker);
    if (worker->state->is_fenced()) CloseAtWorker(worker);
  }
  void LoadBucket(Worker* worker) {
    if (!worker->load.has_value()) {
      worker->load = worker->state->TakeLoad();
      worker->offset = 0;
    }
    SubscriberState::Load& load = *worker->load;
    if (!worker->state->IsWanted(load.id)) {
      worker->load.reset();
      worker->state->OnBufferReleased();
      return;
    }
    const size_t size = std::min<size_t>(bucket_bytes, kModelBytes - worker->offset);
    const std::string& source = memory_[slots_[Key(load.manifest.weights())]];
    std::memcpy(load.buffer.get() + worker->offset, source.data() + worker->offset, size);
    if (worker->corrupts_next_bucket) load.buffer.get()[worker->offset] ^= std::byte{4};
    worker->corrupts_next_bucket = false;
    worker->offset += size;
    if (worker->offset < kModelBytes) return;
    const absl::Status proved = VerifyBytes(load.manifest, absl::MakeSpan(load.buffer.get(), kModelBytes));
    worker->state->OnLoadFinished(load.id, proved);
    worker->load.reset();
    worker->state->OnBufferReleased();
    Collect(worker);
  }
  void Take(Worker* worker) {
    const std::optional<CommittedWeights> taken = worker->state->TakeNewer();
    ASSERT_TRUE(taken.has_value());
    const auto found = committed_.find(Key(taken->weights));
    ASSERT_NE(found, committed_.end()) << VersionName(taken->weights) << " was never committed\n" << history();
    EXPECT_EQ(Digest128(taken->bytes.get(), kModelBytes), found->second) << history();
    EXPECT_TRUE(worker->active.bytes == nullptr || IsNewerVersion(taken->weights, worker->active.weights)) << history();
    worker->finishing = std::exchange(worker->active, *taken);
    worker->state->ReportSwapped(taken->weights, absl::Milliseconds(1));
    Collect(worker);
  }
  void Release(Worker* worker) {
    worker->finishing = CommittedWeights();
    worker->state->OnBufferReleased();
  }

  // ---- publisher, trainer and queue ----
  void RestartPublisher() {
    PublisherState::Options options;
    publisher_ = std::make_unique<PublisherState>(options);
    trainer_ = Trainer::kIdle;
    ++lineage_;
    // What it fenced is the queue's to remember; here such a worker starts with a full load, like everybody.
    fenced_.clear();
    for (Worker& worker : workers_) {
      worker.up.clear();
      worker.down.clear();
      if (worker.connection != 0) worker.is_cut = true;
    }
  }
  void Route() {
    for (PublisherState::Outgoing& out : publisher_->TakeOutgoing()) {
      for (Worker& worker : workers_) {
        if (worker.connection != out.connection || worker.is_cut) continue;
        if (out.message.has_value()) worker.down.push_back(*out.message);
        if (out.closes) {
          worker.is_cut = true;
          worker.up.clear();
        }
      }
    }
  }

  void AddTrainerEvents(std::vector<Event>* events) {
    switch (trainer_) {
      case Trainer::kIdle:
        if (publishes_left > 0) {
          if (may_publish_new) events->push_back({"publish", 4, [this] { StartPublish(/*relabels=*/false); }});
          if (may_relabel && newest_.first == lineage_)
            events->push_back({"relabel", 2, [this] { StartPublish(/*relabels=*/true); }});
        }
        break;
      case Trainer::kPreparing:
        if (!publisher_->is_prepared()) break;
        events->push_back({"queue commits", 8, [this] { CommitInQueue(); }});
        if (may_abandon) {
          events->push_back({"abandon", 2, [this] {
                               EXPECT_TRUE(publisher_->Abandon(now_, Version(publishing_), "the queue refused"));
                               trainer_ = Trainer::kIdle;
                               Route();
                             }});
        }
        break;
      case Trainer::kCommittedInQueue:
        events->push_back({"publisher commits", 8, [this] {
                             EXPECT_TRUE(publisher_->Commit(now_, Version(publishing_)));
                             committed_slot_ = slots_[publishing_];
                             trainer_ = Trainer::kIdle;
                             Route();
                           }});
        break;
    }
  }

  void StartPublish(bool relabels) {
    --publishes_left;
    if (!relabels) ++content_;
    // After a restart the version may be lower than what was committed in the lineage before.
    const uint64_t next = newest_.first == lineage_ ? newest_.second + 1 : std::max<uint64_t>(1, newest_.second / 2);
    // An abandoned version is void, and its number is not used again in the lineage.
    publishing_ = {lineage_, std::max(next, publishing_.first == lineage_ ? publishing_.second + 1 : 1)};
    // Publishers write two buffers in turn: a late reader meets the bytes of another version.
    slots_[publishing_] = 1 - committed_slot_;
    memory_[1 - committed_slot_] = ModelBytes(content_);
    absl::StatusOr<v1::Manifest> manifest = MakeManifest(Version(publishing_), Views(ModelBytes(content_)));
    ASSERT_TRUE(manifest.ok());
    publish_deadline_ = now_ + absl::Seconds(30);
    const absl::StatusOr<bool> started =
        publisher_->StartPublish(now_, *std::move(manifest), {"/object", true}, publish_deadline_);
    ASSERT_TRUE(started.ok()) << started.status() << "\n" << history();
    EXPECT_TRUE(*started);
    trainer_ = Trainer::kPreparing;
    Route();
  }
  void CommitInQueue() {
    const PreparedPublish& prepared = publisher_->prepared();
    for (const v1::WorkerIdentity& member : prepared.members) {
      EXPECT_EQ(fenced_.count({member.producer_id(), member.epoch()}), 0u)
          << "producer " << member.producer_id() << " is a member although it was fenced\n"
          << history();
    }
    for (const PreparedPublish::Fenced& fenced : prepared.fenced)
      fenced_.insert({fenced.identity.producer_id(), fenced.identity.epoch()});
    newest_ = publishing_;
    committed_[newest_] = prepared.manifest.digest();
    trainer_ = Trainer::kCommittedInQueue;
  }

  // ---- faults ----
  void AddFaults(std::vector<Event>* events) {
    for (Worker& each : workers_) {
      Worker* worker = &each;
      if (worker->is_stalled || (victim != 0 && worker->producer != victim)) continue;
      const std::string name = absl::StrCat("w", worker->producer, ".");
      events->push_back({name + "KILLED", 1, [this, worker] {
                           --faults_left;
                           CutAtPublisher(worker);
                           ForgetProcess(worker);
                           worker->connection = 0;
                           worker->is_cut = false;
                           ++worker->epoch;
                           StartProcess(worker);
                         }});
      events->push_back({name + "STALLED", 1, [this, worker] {
                           --faults_left;
                           worker->is_stalled = true;
                         }});
      if (worker->connection != 0 && !worker->is_cut) {
        events->push_back({name + "CUT", 1, [this, worker] {
                             --faults_left;
                             CutAtPublisher(worker);
                           }});
      }
      if ((worker->load.has_value() || worker->state->has_load()) && !worker->corrupts_next_bucket) {
        events->push_back({name + "CORRUPTED", 1, [this, worker] {
                             --faults_left;
                             worker->corrupts_next_bucket = true;
                           }});
      }
    }
    if (may_restart_publisher) {
      events->push_back({"PUBLISHER KILLED", 1, [this] {
                           --faults_left;
                           RestartPublisher();
                         }});
    }
  }
  void CutAtPublisher(Worker* worker) {
    if (worker->connection == 0 || worker->is_cut) return;
    worker->is_cut = true;
    worker->up.clear();
    worker->down.clear();
    publisher_->OnClosed(now_, worker->connection, "cut");
    Route();
  }

  // ---- time ----
  void AdvanceTime() {
    MonotonicTime next = std::min(publisher_->next_deadline(), now_ + absl::Seconds(5));
    for (Worker& worker : workers_) {
      if (!worker.is_stalled) next = std::min(next, worker.state->next_deadline());
    }
    now_ = std::max(next, now_ + absl::Milliseconds(1));
    for (Worker& worker : workers_) {
      if (worker.is_stalled || worker.is_cut || worker.connection == 0) continue;
      v1::ReceiverMessage alive;
      alive.mutable_alive();
      // Not before its hello.
      if (worker.up.empty() || !worker.up.front().has_hello()) publisher_->OnMessage(now_, worker.connection, alive);
      worker.state->OnTime(now_);
      Collect(&worker);
    }
    publisher_->OnTime(now_);
    Route();
  }

  void CheckAlways() {
    EXPECT_TRUE(trainer_ != Trainer::kPreparing || now_ < publish_deadline_ || publisher_->is_prepared())
        << "a publish outlived its deadline\n"
        << history();
    for (const Worker& worker : workers_) {
      for (const CommittedWeights* held : {&worker.active, &worker.finishing}) {
        if (held->bytes == nullptr) continue;
        EXPECT_EQ(Digest128(held->bytes.get(), kModelBytes), held->digest)
            << "the bytes of " << VersionName(held->weights) << " changed under the engine\n"
            << history();
      }
    }
  }

  Chooser* const chooser_;
  MonotonicTime now_{absl::Seconds(1000)};
  std::deque<Worker> workers_;
  std::unique_ptr<PublisherState> publisher_;
  uint64_t next_connection_ = 1;
  std::string memory_[2] = {ModelBytes(0), ModelBytes(0)};
  int committed_slot_ = 0;
  std::map<VersionKey, int> slots_;

  Trainer trainer_ = Trainer::kIdle;
  uint64_t lineage_ = 0;
  uint64_t content_ = 0;
  VersionKey publishing_{0, 0};
  MonotonicTime publish_deadline_;
  // The queue: what was committed, and the newest of it.
  std::map<VersionKey, std::string> committed_;
  VersionKey newest_{0, 0};
  std::set<VersionKey> fenced_;
  std::vector<std::string> history_;
};

// ---- all orders of one publish ----

struct EnumerationCase {
  size_t bucket_bytes;
  int faults;
  bool relabels;
};

// From two workers at version 1: every order in which the messages of the publish of version 2 can arrive, with no
// fault or with one fault of worker 1 at every point. The publish ends by its deadline, worker 2 reaches version 2
// whatever happens to worker 1, and in the end both do.
int EnumeratePublish(const EnumerationCase& test) {
  EnumeratingChooser chooser;
  int runs = 0;
  do {
    ++runs;
    Simulation simulation(&chooser, /*workers=*/2);
    simulation.publishes_left = 1;
    simulation.bucket_bytes = test.bucket_bytes;
    EXPECT_TRUE(
        simulation.RunInOrder([&] { return simulation.AllHoldTheNewest() && simulation.newest().second == 1; }));
    // Both have told so, and released nothing.
    EXPECT_TRUE(simulation.RunInOrder([&] {
      return simulation.is_idle() && simulation.workers()[0].up.empty() && simulation.workers()[1].up.empty();
    }));
    simulation.may_relabel = test.relabels;
    simulation.may_publish_new = !test.relabels;
    simulation.publishes_left = 1;
    simulation.faults_left = test.faults;
    simulation.victim = 1;
    const VersionKey before = simulation.newest();
    // After the fault, one order.
    while (simulation.newest() == before && (test.faults == 0 || simulation.faults_left > 0)) simulation.Step();
    EXPECT_TRUE(simulation.RunInOrder([&] { return simulation.newest() != before; })) << simulation.history();
    const bool second_arrives = simulation.RunInOrder(
        [&] { return Key(simulation.workers()[1].active.weights) == simulation.newest() && simulation.is_idle(); });
    EXPECT_TRUE(second_arrives) << simulation.history();
    simulation.Heal();
    EXPECT_TRUE(simulation.RunInOrder([&] { return simulation.AllHoldTheNewest(); })) << simulation.history();
    if (::testing::Test::HasFailure()) break;
  } while (chooser.Advance());
  return runs;
}

TEST(PublishSimulationTest, EveryOrderWithoutFaults) {
  // Announce, ready, transfer, two buckets and verified on each side: 12 events, C(12, 6) orders.
  EXPECT_EQ(EnumeratePublish({.bucket_bytes = 9, .faults = 0, .relabels = false}), 924);
}

TEST(PublishSimulationTest, EveryOrderOfARelabel) {
  // Announce, ready, transfer and verified on each side: C(8, 4) orders.
  EXPECT_EQ(EnumeratePublish({.bucket_bytes = 8, .faults = 0, .relabels = true}), 70);
}

TEST(PublishSimulationTest, EveryFaultAtEveryPointOfAPublish) {
  EXPECT_GT(EnumeratePublish({.bucket_bytes = kModelBytes, .faults = 1, .relabels = false}), 2000);
}

TEST(PublishSimulationTest, EveryFaultAtEveryPointOfARelabel) {
  EXPECT_GT(EnumeratePublish({.bucket_bytes = kModelBytes, .faults = 1, .relabels = true}), 500);
}

// ---- long random histories ----

TEST(PublishSimulationTest, RandomHistoriesWithManyFaults) {
  for (uint32_t seed = 1; seed <= 1500; ++seed) {
    RandomChooser chooser(seed);
    Simulation simulation(&chooser, /*workers=*/1 + seed % 4);
    simulation.publishes_left = 6;
    simulation.faults_left = static_cast<int>(seed % 7);
    simulation.may_abandon = seed % 3 == 0;
    simulation.may_restart_publisher = seed % 2 == 0;
    simulation.may_relabel = true;
    simulation.lets_time_pass = true;
    simulation.tells_queue_news = seed % 5 != 0;
    for (int step = 0; step < 300; ++step) simulation.Step();
    // All is well again: one more version reaches everybody.
    simulation.Heal();
    ASSERT_TRUE(simulation.RunInOrder([&] { return simulation.is_idle(); }))
        << "seed " << seed << ": " << simulation.history();
    const VersionKey before = simulation.newest();
    simulation.publishes_left = 1;
    simulation.may_relabel = false;
    ASSERT_TRUE(simulation.RunInOrder([&] { return simulation.newest() != before && simulation.AllHoldTheNewest(); }))
        << "seed " << seed << ": " << simulation.history();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace leeway
