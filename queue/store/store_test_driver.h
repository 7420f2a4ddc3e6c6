#ifndef LEEWAY_QUEUE_STORE_STORE_TEST_DRIVER_H_
#define LEEWAY_QUEUE_STORE_STORE_TEST_DRIVER_H_

// What the tests of the store on disk share. Only for tests.

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "queue/store/faulty_file_system.h"
#include "queue/store/rocksdb_store.h"

namespace leeway {

// An own directory, removed at the end; in memory where there is room, because these tests open hundreds of stores.
class StoreDirectory {
 public:
  StoreDirectory() {
    std::error_code error;
    const std::filesystem::path memory = "/dev/shm";
    const auto space = std::filesystem::space(memory, error);
    const bool fits = !error && space.available >= (512u << 20);
    std::string pattern = (fits ? memory : std::filesystem::path(::testing::TempDir())) / "leeway_store_XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~StoreDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline Payload PayloadOf(std::string bytes) { return std::make_shared<const std::string>(std::move(bytes)); }

// Small numbers, so that a test sees many segments and quick attempts.
inline RocksDbStoreOptions SmallStore(const std::string& directory,
                                      std::shared_ptr<rocksdb::FileSystem> disk = nullptr) {
  RocksDbStoreOptions options;
  options.directory = directory;
  options.file_system = std::move(disk);
  options.inline_bytes = 100;
  options.bundle_bytes = 400;
  options.segment_bytes = 64 << 10;
  options.ballast_bytes = 256 << 10;
  options.first_pause = absl::Milliseconds(1);
  options.longest_pause = absl::Milliseconds(5);
  return options;
}

inline std::unique_ptr<RocksDbStore> OpenStore(const RocksDbStoreOptions& options) {
  absl::StatusOr<std::unique_ptr<RocksDbStore>> store = RocksDbStore::Open(options);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

// Waits for something that another thread does; false after a minute.
class Signal {
 public:
  void Give() {
    MutexLock lock(&mutex_);
    given_ = true;
    changed_.NotifyAll();
  }
  bool Await() {
    MutexLock lock(&mutex_);
    const Deadline deadline = Deadline::After(absl::Minutes(1));
    while (!given_ && !deadline.HasPassed()) changed_.WaitUntil(&mutex_, deadline);
    return given_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool given_ LEEWAY_GUARDED_BY(mutex_) = false;
};

inline bool AwaitDurable(RocksDbStore* store, uint64_t number) {
  auto signal = std::make_shared<Signal>();
  store->WhenDurable(number, [signal] { signal->Give(); });
  return signal->Await();
}

// Waits until `condition` holds, for things that no callback tells; false after a minute.
template <typename Condition>
bool AwaitCondition(const Condition& condition) {
  Mutex mutex;
  CondVar never;
  const Deadline deadline = Deadline::After(absl::Minutes(1));
  while (!condition()) {
    if (deadline.HasPassed()) return false;
    MutexLock lock(&mutex);
    never.WaitFor(&mutex, absl::Milliseconds(1));
  }
  return true;
}

// Everything that a store holds: records, and payloads under "ticket/member".
using StoreContent = std::map<std::string, std::string>;

inline std::string NameOf(const PayloadKey& key) { return absl::StrCat(key.ticket, "/", key.member); }

// The payloads of `keys` that exist, and all records.
template <typename Keys>
StoreContent ContentOf(const QueueStore& store, const Keys& keys) {
  StoreContent content;
  EXPECT_TRUE(store
                  .Recover([&](absl::string_view key, absl::string_view value) {
                    content[std::string(key)] = std::string(value);
                    return absl::OkStatus();
                  })
                  .ok());
  uint64_t payloads = 0;
  uint64_t bytes = 0;
  for (const PayloadKey& key : keys) {
    const auto stored = store.Get(key);
    if (!stored.ok()) {
      EXPECT_EQ(stored.status().code(), absl::StatusCode::kNotFound);
      continue;
    }
    const absl::StatusOr<Payload> payload = (*stored)->Load();
    EXPECT_TRUE(payload.ok()) << payload.status();
    if (!payload.ok()) continue;
    content[NameOf(key)] = **payload;
    ++payloads;
    bytes += (*payload)->size();
  }
  EXPECT_EQ(store.payloads(), payloads);
  EXPECT_EQ(store.bytes(), bytes);
  return content;
}

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_STORE_TEST_DRIVER_H_
