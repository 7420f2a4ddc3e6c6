// The store after its machine has lost power: a prefix of the writes is there, whole, and all that were reported.

#include <atomic>
#include <random>
#include <string>
#include <vector>

#include "queue/store/rocksdb_store.h"
#include "queue/store/store_test_driver.h"

namespace leeway {
namespace {

using Torn = FaultyStoreFileSystem::Torn;

// A store beside what it should hold after each of its writes.
class CheckedStore {
 public:
  CheckedStore(const std::string& directory, std::shared_ptr<FaultyStoreFileSystem> disk, StoreContent content)
      : disk_(std::move(disk)), states_{std::move(content)} {
    RocksDbStoreOptions options = SmallStore(directory, disk_);
    options.segment_bytes = 16 << 10;
    options.ballast_bytes = 32 << 10;
    options.bundle_bytes = 60;
    options.cached_bytes = 0;
    absl::StatusOr<std::unique_ptr<RocksDbStore>> store = RocksDbStore::Open(options);
    if (store.ok()) store_ = *std::move(store);
    // Only a crash may keep it from opening.
    EXPECT_TRUE(store.ok() || disk_->crashed()) << store.status();
    next_ = states_.back();
  }

  bool is_open() const { return store_ != nullptr; }
  RocksDbStore& store() { return *store_; }

  void Put(const PayloadKey& key, const std::string& bytes) {
    const absl::Status status = store_->Put(key, PayloadOf(bytes));
    if (status.ok()) next_[NameOf(key)] = bytes;
    EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
  }
  void Erase(const PayloadKey& key) {
    store_->Erase(key);
    next_.erase(NameOf(key));
  }
  uint64_t Write(std::vector<StoreRecord> records) {
    for (const StoreRecord& record : records) {
      if (record.value.has_value()) {
        next_[record.key] = *record.value;
      } else {
        next_.erase(record.key);
      }
    }
    states_.push_back(next_);
    const uint64_t number = store_->Write(std::move(records));
    EXPECT_EQ(number, states_.size() - 1);
    store_->WhenDurable(number, [reported = reported_, number] { EXPECT_EQ(reported->exchange(number) + 1, number); });
    return number;
  }
  bool holds(const PayloadKey& key) const { return next_.contains(NameOf(key)); }

  // False: it has crashed before.
  bool Await(uint64_t number) {
    return AwaitCondition([&] { return *reported_ >= number || disk_->crashed(); }) && !disk_->crashed();
  }

  // What a new process finds, which must be the state after some write that is not before the last reported one.
  StoreContent Reopened(const std::string& directory, const std::vector<PayloadKey>& keys) {
    store_.reset();
    const auto reopened = OpenStore(SmallStore(directory));
    if (reopened == nullptr) return {};
    const StoreContent content = ContentOf(*reopened, keys);
    for (size_t i = *reported_; i < states_.size(); ++i) {
      if (states_[i] == content) return content;
    }
    ADD_FAILURE() << "what is there is no state between write " << *reported_ << " (reported) and "
                  << states_.size() - 1;
    return content;
  }

 private:
  const std::shared_ptr<FaultyStoreFileSystem> disk_;
  std::unique_ptr<RocksDbStore> store_;
  // After write i.
  std::vector<StoreContent> states_;
  StoreContent next_;
  const std::shared_ptr<std::atomic<uint64_t>> reported_ = std::make_shared<std::atomic<uint64_t>>(0);
};

std::string BytesOf(uint32_t seed, size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>('a' + (seed * 31 + i * i + i / 7) % 26);
  return bytes;
}

std::vector<PayloadKey> AllKeys(uint32_t tickets) {
  std::vector<PayloadKey> keys;
  for (uint32_t i = 0; i < tickets; ++i) keys.push_back({i, i % 3});
  return keys;
}

// Small and large payloads, erasures, records that come, change and go; more than one segment is filled, emptied and
// rewritten. False: crashed.
bool RunWorkload(CheckedStore* checked) {
  for (uint32_t i = 0; i < 24; ++i) {
    checked->Put({i, i % 3}, BytesOf(i, i % 2 == 0 ? 4000 : 50));
    if (i >= 4 && i % 4 != 0) checked->Erase({i - 4, (i - 4) % 3});
    std::vector<StoreRecord> records = {{absl::StrCat("t", i), absl::StrCat("state ", i)}, {"n", absl::StrCat(i)}};
    if (i >= 3) records.push_back({absl::StrCat("t", i - 3), std::nullopt});
    const uint64_t number = checked->Write(std::move(records));
    if (i % 3 == 2 && !checked->Await(number)) return false;
  }
  return checked->Await(24);
}

class CrashTest : public ::testing::TestWithParam<Torn> {};

TEST_P(CrashTest, AtEveryChangeOfTheDisk) {
  const std::vector<PayloadKey> keys = AllKeys(24);
  uint64_t crash_at = 1;
  for (bool done = false; !done; ++crash_at) {
    StoreDirectory directory;
    const auto disk = std::make_shared<FaultyStoreFileSystem>();
    disk->LoseUnsynced();
    disk->CrashAt(crash_at, GetParam());
    CheckedStore checked(directory.path(), disk, {});
    done = checked.is_open() && RunWorkload(&checked);
    disk->Crash(GetParam());
    checked.Reopened(directory.path(), keys);
    ASSERT_FALSE(HasFailure()) << "crash at change " << crash_at;
  }
  // The workload does enough for this to mean something.
  EXPECT_GT(crash_at, 80u);
}

TEST_P(CrashTest, WhileItRecovers) {
  const std::vector<PayloadKey> keys = AllKeys(24);
  StoreDirectory directory;
  StoreContent content;
  {
    const auto disk = std::make_shared<FaultyStoreFileSystem>();
    disk->LoseUnsynced();
    CheckedStore checked(directory.path(), disk, {});
    ASSERT_TRUE(RunWorkload(&checked));
    disk->Crash(GetParam());
    content = checked.Reopened(directory.path(), keys);
  }
  uint64_t crash_at = 1;
  for (bool done = false; !done; ++crash_at) {
    const auto disk = std::make_shared<FaultyStoreFileSystem>();
    disk->LoseUnsynced();
    disk->CrashAt(crash_at, GetParam());
    CheckedStore checked(directory.path(), disk, content);
    done = checked.is_open() && !disk->crashed();
    disk->Crash(GetParam());
    EXPECT_EQ(checked.Reopened(directory.path(), keys), content) << "crash at change " << crash_at;
  }
  EXPECT_GT(crash_at, 10u);
}

// Small payloads only: several bundles a group, of which some end in part, some whole, and some are rewritten.
TEST_P(CrashTest, OfBundlesAtEveryChangeOfTheDisk) {
  constexpr uint32_t kTickets = 144;
  const std::vector<PayloadKey> keys = AllKeys(kTickets);
  uint64_t crash_at = 1;
  uint64_t rewritten_bytes = 0;
  for (bool done = false; !done; ++crash_at) {
    StoreDirectory directory;
    const auto disk = std::make_shared<FaultyStoreFileSystem>();
    disk->LoseUnsynced();
    disk->CrashAt(crash_at, GetParam());
    CheckedStore checked(directory.path(), disk, {});
    done = checked.is_open();
    for (uint32_t round = 0; done && round < 4; ++round) {
      for (uint32_t i = round * 36; i < (round + 1) * 36; ++i) checked.Put(keys[i], BytesOf(i, 12));
      // A bundle has five. Of the older ones one ends each round; the first ones go.
      for (uint32_t i = 0; i < round * 36; ++i) {
        if (checked.holds(keys[i]) && (i < 10 || i % 5 == round)) checked.Erase(keys[i]);
      }
      done = checked.Await(checked.Write({{"round", absl::StrCat(round)}}));
    }
    for (uint32_t i = 0; done && i < kTickets; ++i) {
      if (i % 5 != 0 && checked.holds(keys[i])) checked.Erase(keys[i]);
    }
    done = done && checked.Await(checked.Write({}));
    for (int i = 0; done && i < 8; ++i) done = checked.Await(checked.Write({{"idle", absl::StrCat(i)}}));
    if (checked.is_open()) rewritten_bytes += checked.store().Statistics().rewritten_bundle_bytes;
    disk->Crash(GetParam());
    checked.Reopened(directory.path(), keys);
    ASSERT_FALSE(HasFailure()) << "crash at change " << crash_at;
  }
  EXPECT_GT(crash_at, 30u);
  EXPECT_GT(rewritten_bytes, 0u);
}

std::string NameOfTorn(const ::testing::TestParamInfo<Torn>& info) {
  if (info.param == Torn::kNothing) return "NothingUnsynced";
  return info.param == Torn::kHalf ? "HalfOfIt" : "HalfAndZeros";
}

INSTANTIATE_TEST_SUITE_P(AllKinds, CrashTest, ::testing::Values(Torn::kNothing, Torn::kHalf, Torn::kHalfAndZeros),
                         NameOfTorn);

TEST(CrashPropertyTest, RandomLivesWithFaultsKeepAPrefix) {
  constexpr uint32_t kTickets = 480;
  const std::vector<PayloadKey> keys = AllKeys(kTickets);
  StoreDirectory directory;
  StoreContent content;
  uint64_t rewritten_bytes = 0;
  uint64_t rewritten_bundle_bytes = 0;
  for (uint32_t life = 0; life < 25; ++life) {
    std::mt19937 random(life);
    const auto disk = std::make_shared<FaultyStoreFileSystem>();
    disk->LoseUnsynced();
    const Torn torn = static_cast<Torn>(random() % 3);
    if (random() % 2 == 0) disk->CrashAt(20 + random() % 300, torn);
    CheckedStore checked(directory.path(), disk, content);
    if (checked.is_open()) {
      for (int i = 0; i < 300 && !disk->crashed(); ++i) {
        const PayloadKey key = keys[random() % keys.size()];
        if (!checked.holds(key)) {
          checked.Put(key, BytesOf(random(), random() % 2 == 0 ? random() % 100 : 100 + random() % 6000));
        } else if (random() % 3 != 0) {
          checked.Erase(key);
        }
        if (random() % 3 == 0) {
          const std::string record = absl::StrCat("r", random() % 10);
          const uint64_t number =
              checked.Write({random() % 4 == 0 ? StoreRecord{record, std::nullopt}
                                               : StoreRecord{record, BytesOf(random(), random() % 200)}});
          if (random() % 8 == 0) checked.Await(number);
        }
        // Fills many segments and bundles, and leaves them nearly empty.
        if (random() % 60 == 0) {
          for (const PayloadKey& any : keys) {
            if (!checked.holds(any)) checked.Put(any, BytesOf(random(), random() % (random() % 3 != 0 ? 20 : 4000)));
          }
          checked.Await(checked.Write({}));
        }
        if (random() % 60 == 0) {
          for (const PayloadKey& any : keys) {
            if (checked.holds(any) && random() % 6 != 0) checked.Erase(any);
          }
        }
        if (random() % 40 == 0) {
          FaultyStoreFileSystem::Rule rule;
          rule.fault =
              random() % 2 == 0 ? FaultyStoreFileSystem::Fault::kNoSpace : FaultyStoreFileSystem::Fault::kInputOutput;
          rule.times = 1 + random() % 4;
          disk->AddRule(rule);
        }
      }
      rewritten_bytes += checked.store().Statistics().rewritten_bytes;
      rewritten_bundle_bytes += checked.store().Statistics().rewritten_bundle_bytes;
    }
    disk->Crash(torn);
    content = checked.Reopened(directory.path(), keys);
    ASSERT_FALSE(HasFailure()) << "life " << life;
  }
  EXPECT_GT(rewritten_bytes, 0u);
  EXPECT_GT(rewritten_bundle_bytes, 0u);
}

}  // namespace
}  // namespace leeway
