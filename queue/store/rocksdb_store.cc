#include "queue/store/rocksdb_store.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/logging.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "queue/store/disk/disk_writer.h"
#include "queue/store/disk/io_status.h"
#include "queue/store/disk/pending_writes.h"
#include "queue/store/faulty_file_system.h"
#include "queue/store/store_lock.h"
#include "rocksdb/file_system.h"

namespace leeway {
namespace {

// Callers' records: what starts with a small letter.
constexpr absl::string_view kRecordsBegin = "a";
constexpr absl::string_view kRecordsEnd = "{";

}  // namespace

class RocksDbStore::Implementation {
 public:
  Implementation(const RocksDbStoreOptions& options, std::shared_ptr<rocksdb::FileSystem> file_system)
      : options_(options),
        file_system_(file_system),
        disk_(options, std::move(file_system)),
        pending_({options.group_bytes, options.cached_bytes, options.inline_bytes}) {}

  ~Implementation() {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.NotifyAll();
      handed_over_.NotifyAll();
    }
    if (writer_.joinable()) writer_.join();
    if (deliverer_.joinable()) deliverer_.join();
  }

  absl::Status Open();

  absl::Status Put(const PayloadKey& key, Payload payload) {
    MutexLock lock(&mutex_);
    const std::string refusal = Refusal();
    if (!refusal.empty()) return absl::ResourceExhaustedError(refusal);
    return pending_.Put(key, std::move(payload));
  }

  absl::StatusOr<std::shared_ptr<const StoredPayload>> Get(const PayloadKey& key) const {
    MutexLock lock(&mutex_);
    LEEWAY_ASSIGN_OR_RETURN(PendingWrites::Found found, pending_.Get(key));
    if (found.in_memory != nullptr) return std::make_shared<const PayloadInMemory>(std::move(found.in_memory));
    // Opened under the lock, so that it does not go in between.
    return disk_.ReadPayload(key, found.place);
  }

  void Erase(const PayloadKey& key) {
    MutexLock lock(&mutex_);
    pending_.Erase(key);
  }

  uint64_t payloads() const {
    MutexLock lock(&mutex_);
    return pending_.payloads();
  }

  uint64_t bytes() const {
    MutexLock lock(&mutex_);
    return pending_.bytes();
  }

  uint64_t Write(std::vector<StoreRecord> records) {
    for (const StoreRecord& record : records) {
      LEEWAY_CHECK(!record.key.empty() && record.key[0] >= 'a' && record.key[0] <= 'z') << "record " << record.key;
    }
    MutexLock lock(&mutex_);
    const uint64_t number = pending_.EndWrite(std::move(records));
    if (writer_waits_) changed_.NotifyAll();
    return number;
  }

  void WhenDurable(uint64_t number, std::function<void()> done) {
    {
      MutexLock lock(&mutex_);
      LEEWAY_CHECK(number <= pending_.last_write()) << "write " << number << " was never made";
      // While earlier callbacks are being run this one has to wait for its turn.
      if (number > durable_ || (delivering_ && number > 0)) {
        auto place = waiting_.end();
        while (place != waiting_.begin() && std::prev(place)->number > number) --place;
        waiting_.insert(place, {number, std::move(done)});
        return;
      }
    }
    done();
  }

  std::string refusal() const {
    MutexLock lock(&mutex_);
    return Refusal();
  }

  absl::Status Recover(const RecordVisitor& visit) const { return disk_.Scan(kRecordsBegin, kRecordsEnd, visit); }

  StoreStatistics Statistics() const {
    StoreStatistics statistics;
    {
      MutexLock lock(&mutex_);
      statistics = statistics_;
      statistics.waiting_bytes = pending_.held_bytes();
    }
    disk_.AddSyncTimes(&statistics);
    return statistics;
  }

 private:
  std::string Refusal() const LEEWAY_REQUIRES(mutex_) {
    if (!trouble_.empty()) return trouble_;
    if (pending_.held_bytes() >= options_.waiting_bytes) {
      return absl::StrCat("the disk is behind: ", pending_.held_bytes(), " bytes wait to be written");
    }
    // What is for the log must fit into the ballast, or on a full disk nothing behind it could be written. Of large
    // payloads more may wait than their segments have room for: refusing these would cost throughput.
    if (options_.ballast_bytes > 0 && 2 * pending_.held_small_bytes() >= options_.ballast_bytes) {
      return absl::StrCat("the disk is behind: ", pending_.held_small_bytes(),
                          " bytes of small payloads and records wait to be written");
    }
    return "";
  }

  // ---- the writer's thread ------------------------------------------------------------------------------------------

  void Run();
  // Waits for something to write; false: the store is being destroyed.
  bool AwaitWork();
  bool Pause(absl::Duration pause);
  absl::Status Step();
  void PrepareRewriting();
  void SetTrouble(const absl::Status& status);

  // ---- answers ------------------------------------------------------------------------------------------------------

  // Runs what waits for writes that are durable, by whoever has set delivering_. The writer does so at once, but leaves
  // it to the deliverer as soon as there is something to write.
  void Deliver(bool is_writer);
  void HandOver() LEEWAY_REQUIRES(mutex_);
  // The deliverer's thread.
  void RunDeliverer();

  struct Waiting {
    uint64_t number = 0;
    std::function<void()> done;
  };

  const RocksDbStoreOptions options_;
  const std::shared_ptr<rocksdb::FileSystem> file_system_;
  std::unique_ptr<StoreLock> lock_;
  // The writer's, ReadPayload excepted.
  DiskWriter disk_;
  // What is being written, again and again until it is durable. The writer's.
  WriteGroup group_;
  bool rewrote_last_ = false;
  MonotonicTime trouble_since_;

  mutable Mutex mutex_;
  CondVar changed_;
  PendingWrites pending_ LEEWAY_GUARDED_BY(mutex_);
  // Ascending by number, equal ones in the order of the calls.
  std::deque<Waiting> waiting_ LEEWAY_GUARDED_BY(mutex_);
  uint64_t durable_ LEEWAY_GUARDED_BY(mutex_) = 0;
  // Somebody runs callbacks, or the deliverer is about to.
  bool delivering_ LEEWAY_GUARDED_BY(mutex_) = false;
  bool is_handed_over_ LEEWAY_GUARDED_BY(mutex_) = false;
  CondVar handed_over_;
  bool writer_waits_ LEEWAY_GUARDED_BY(mutex_) = false;
  bool stopping_ LEEWAY_GUARDED_BY(mutex_) = false;
  // Why the disk takes nothing new; empty = it does.
  std::string trouble_ LEEWAY_GUARDED_BY(mutex_);
  StoreStatistics statistics_ LEEWAY_GUARDED_BY(mutex_);
  std::thread writer_;
  std::thread deliverer_;
};

absl::Status RocksDbStore::Implementation::Open() {
  if (!options_.read_only) {
    LEEWAY_RETURN_IF_ERROR(RealFileSystem()->CreateDirectory(options_.directory));
    LEEWAY_ASSIGN_OR_RETURN(lock_, StoreLock::Take(file_system_, options_.directory));
  }
  MutexLock lock(&mutex_);
  const absl::Status opened = disk_.Open(&pending_);
  if (options_.read_only && absl::IsNotFound(opened)) {
    return absl::NotFoundError(absl::StrCat(options_.directory, " holds no queue store (", opened.message(), ")"));
  }
  LEEWAY_RETURN_IF_ERROR(opened);
  statistics_ = disk_.Statistics();
  if (options_.read_only) {
    trouble_ = "the store is open for reading only";
    return absl::OkStatus();
  }
  trouble_ = disk_.full_reason();
  if (!trouble_.empty()) LEEWAY_LOG_ERROR("queue store {}: {}; pushes are refused", options_.directory, trouble_);
  trouble_since_ = options_.clock->Now();
  writer_ = std::thread([this] { Run(); });
  deliverer_ = std::thread([this] { RunDeliverer(); });
  return absl::OkStatus();
}

void RocksDbStore::Implementation::Run() {
  absl::Duration pause = options_.first_pause;
  while (true) {
    if (!AwaitWork()) return;
    const absl::Status status = Step();
    SetTrouble(status);
    if (status.ok()) {
      pause = options_.first_pause;
      continue;
    }
    if (!Pause(pause)) return;
    pause = std::min(2 * pause, options_.longest_pause);
  }
}

bool RocksDbStore::Implementation::AwaitWork() {
  PendingWrites::Gathered gathered;
  {
    MutexLock lock(&mutex_);
    if (stopping_) return false;
    if (!group_.empty()) return true;
    if (!pending_.has_ended_writes()) {
      writer_waits_ = true;
      // A full disk is looked at now and then, also while nothing is written.
      const Deadline deadline = trouble_.empty() ? Deadline::Infinite() : Deadline::After(options_.longest_pause);
      while (!stopping_ && !pending_.has_ended_writes() && !deadline.HasPassed()) changed_.WaitUntil(&mutex_, deadline);
      writer_waits_ = false;
    }
    if (stopping_) return false;
    gathered = pending_.TakeGathered();
  }
  group_ = PendingWrites::MakeGroup(std::move(gathered));
  return true;
}

bool RocksDbStore::Implementation::Pause(absl::Duration pause) {
  MutexLock lock(&mutex_);
  const Deadline deadline = Deadline::After(pause);
  while (!stopping_ && !deadline.HasPassed()) changed_.WaitUntil(&mutex_, deadline);
  return !stopping_;
}

absl::Status RocksDbStore::Implementation::Step() {
  if (!group_.empty()) {
    const absl::Status written = disk_.Write(&group_);
    if (!written.ok()) {
      // Tidying up must not keep what matters from being written, unless it may be written already.
      if (group_.last_write == 0 && !group_.is_placed) {
        MutexLock lock(&mutex_);
        pending_.OnGivenUp(group_);
        group_ = WriteGroup();
      }
      return written;
    }
    bool delivers = false;
    {
      MutexLock lock(&mutex_);
      pending_.OnDurable(group_);
      statistics_ = disk_.Statistics();
      durable_ = std::max(durable_, group_.last_write);
      // Whoever delivers already goes on with these.
      delivers = !delivering_ && !waiting_.empty() && waiting_.front().number <= durable_;
      if (delivers) delivering_ = true;
    }
    if (delivers) Deliver(/*is_writer=*/true);
    disk_.OnDurable(group_);
    rewrote_last_ = group_.last_write == 0;
    group_ = WriteGroup();
  }
  LEEWAY_RETURN_IF_ERROR(disk_.Housekeep());
  bool idle = false;
  {
    MutexLock lock(&mutex_);
    idle = !pending_.has_ended_writes();
    statistics_ = disk_.Statistics();
  }
  // Under load every second group is the user's.
  if (idle || !rewrote_last_) PrepareRewriting();
  rewrote_last_ = false;
  return absl::OkStatus();
}

void RocksDbStore::Implementation::HandOver() {
  is_handed_over_ = true;
  handed_over_.NotifyOne();
}

void RocksDbStore::Implementation::Deliver(bool is_writer) {
  while (true) {
    std::vector<std::function<void()>> ready;
    {
      MutexLock lock(&mutex_);
      if (is_writer && pending_.has_ended_writes()) {
        HandOver();
        return;
      }
      while (!waiting_.empty() && waiting_.front().number <= durable_ && (ready.empty() || !is_writer)) {
        ready.push_back(std::move(waiting_.front().done));
        waiting_.pop_front();
      }
      delivering_ = !ready.empty();
      if (ready.empty()) return;
    }
    for (const std::function<void()>& done : ready) done();
  }
}

void RocksDbStore::Implementation::RunDeliverer() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && !is_handed_over_) handed_over_.WaitUntil(&mutex_, Deadline::Infinite());
      if (stopping_) return;
      is_handed_over_ = false;
    }
    Deliver(/*is_writer=*/false);
  }
}

void RocksDbStore::Implementation::PrepareRewriting() {
  const std::vector<PayloadKey> keys = disk_.WantRewriting();
  if (keys.empty()) return;
  WriteGroup group;
  uint64_t bytes = 0;
  for (const PayloadKey& key : keys) {
    IndexedPayload* indexed = nullptr;
    {
      MutexLock lock(&mutex_);
      indexed = pending_.FindDurable(key);
    }
    LEEWAY_CHECK(indexed != nullptr) << DescribePayload(key) << " is listed and not durable";
    const PayloadPlace& place = indexed->place;
    bytes += place.size_bytes;
    if (!group.puts.empty() && bytes > options_.group_bytes) break;
    absl::StatusOr<Payload> payload = disk_.ReadPayload(key, place)->Load();
    if (!payload.ok()) {
      // What cannot be read stays where it is, for whoever asks for it.
      LEEWAY_LOG_ERROR("queue store: {}", payload.status().ToString());
      disk_.OnDamaged(place);
      return;
    }
    group.puts.push_back({indexed, *std::move(payload), {}});
    group.erased.push_back({indexed, place});
  }
  SortByPlace(&group.erased);
  {
    MutexLock lock(&mutex_);
    pending_.OnRewriting(group);
  }
  group_ = std::move(group);
}

void RocksDbStore::Implementation::SetTrouble(const absl::Status& status) {
  const std::string trouble = status.ok() ? disk_.full_reason() : DescribeDiskTrouble(status);
  bool began = false;
  bool ended = false;
  {
    MutexLock lock(&mutex_);
    began = trouble_.empty() && !trouble.empty();
    ended = !trouble_.empty() && trouble.empty();
    trouble_ = trouble;
    if (!status.ok()) statistics_ = disk_.Statistics();
  }
  const MonotonicTime now = options_.clock->Now();
  if (began) {
    trouble_since_ = now;
    LEEWAY_LOG_ERROR("queue store {}: {}; pushes are refused until it works again", options_.directory, trouble);
  }
  if (ended) {
    LEEWAY_LOG_INFO("queue store {}: works again after {:.1f} s", options_.directory,
                    absl::ToDoubleSeconds(now - trouble_since_));
  }
}

// ---- the store ------------------------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<RocksDbStore>> RocksDbStore::Open(const RocksDbStoreOptions& options) {
  std::shared_ptr<rocksdb::FileSystem> file_system = options.file_system;
  if (file_system == nullptr) {
    LEEWAY_ASSIGN_OR_RETURN(file_system, StoreFileSystemOfEnvironment());
  }
  auto implementation = std::make_unique<Implementation>(options, std::move(file_system));
  LEEWAY_RETURN_IF_ERROR(implementation->Open());
  return std::unique_ptr<RocksDbStore>(new RocksDbStore(std::move(implementation)));
}

RocksDbStore::RocksDbStore(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
RocksDbStore::~RocksDbStore() = default;

absl::Status RocksDbStore::Put(const PayloadKey& key, Payload payload) {
  return implementation_->Put(key, std::move(payload));
}
absl::StatusOr<std::shared_ptr<const StoredPayload>> RocksDbStore::Get(const PayloadKey& key) const {
  return implementation_->Get(key);
}
void RocksDbStore::Erase(const PayloadKey& key) { implementation_->Erase(key); }
uint64_t RocksDbStore::payloads() const { return implementation_->payloads(); }
uint64_t RocksDbStore::bytes() const { return implementation_->bytes(); }
uint64_t RocksDbStore::Write(std::vector<StoreRecord> records) { return implementation_->Write(std::move(records)); }
void RocksDbStore::WhenDurable(uint64_t number, std::function<void()> done) {
  implementation_->WhenDurable(number, std::move(done));
}
std::string RocksDbStore::refusal() const { return implementation_->refusal(); }
absl::Status RocksDbStore::Recover(const RecordVisitor& visit) const { return implementation_->Recover(visit); }
StoreStatistics RocksDbStore::Statistics() const { return implementation_->Statistics(); }

}  // namespace leeway
