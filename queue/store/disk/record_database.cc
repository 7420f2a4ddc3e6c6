#include "queue/store/disk/record_database.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "queue/store/disk/io_status.h"
#include "queue/store/disk/wal_check.h"
#include "rocksdb/cache.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/slice_transform.h"
#include "rocksdb/table.h"
#include "rocksdb/utilities/table_properties_collectors.h"
#include "rocksdb/write_batch.h"

namespace leeway {
namespace {

constexpr uint64_t kMebibyte = 1 << 20;
constexpr char kBundleFamily[] = "bundles";

// More than all logs and a ballast hold: a buffer of this size never fills.
constexpr uint64_t kUnflushedBytes = 512 * kMebibyte;

// A batch up to this size is used again.
constexpr size_t kKeptBatchBytes = 2 * kMebibyte;

// A reader beside a running queue may meet a file that has just been replaced.
constexpr int kReadOnlyAttempts = 5;

rocksdb::DBOptions DatabaseOptions(rocksdb::Env* env) {
  rocksdb::DBOptions options;
  options.env = env;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.max_background_jobs = 2;  // one flush, one compaction
  options.max_subcompactions = 1;
  options.allow_concurrent_memtable_write = false;  // one thread writes
  // Recovery reads at most this much log, and a flush is never far.
  options.max_total_wal_size = 64 * kMebibyte;
  // What lies in the log is safe; closing does not have to write it again.
  options.avoid_flush_during_shutdown = true;
  // Torn logs are told from damaged ones by wal_check.h. Reusing log files would be quicker on some disks, but their
  // ends cannot be told from damage.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.recycle_log_file_num = 0;
  // A failed write ends the database's use here; nothing is to be retried behind the store's back.
  options.max_bgerror_resume_count = 0;
  options.max_open_files = 256;
  options.max_manifest_file_size = 16 * kMebibyte;
  options.bytes_per_sync = kMebibyte;
  // A log takes its space as it grows: reserved ahead it would leave a small disk no room for the ballast, and syncs
  // would be no quicker.
  options.allow_fallocate = false;
  // Its own log, in its directory: two files of 4 MiB.
  options.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  options.max_log_file_size = 4 * kMebibyte;
  options.keep_log_file_num = 2;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.skip_stats_update_on_db_open = true;
  return options;
}

std::vector<rocksdb::ColumnFamilyDescriptor> Families(bool flushes) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(2 * kMebibyte);
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.cache_index_and_filter_blocks = true;
  // Debian's RocksDB computes CRC-32C without the processor's instruction for it.
  table.checksum = rocksdb::kXXH3;
  rocksdb::ColumnFamilyOptions family;
  family.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  family.compression = rocksdb::kNoCompression;
  family.max_write_buffer_number = 2;
  // Batches are sorted: within one kind of key, an insertion begins where the one before ended.
  family.memtable_insert_with_hint_prefix_extractor.reset(rocksdb::NewFixedPrefixTransform(1));
  // A queue deletes what it wrote: files full of deletions are compacted early, or scans would wade through them.
  family.table_properties_collector_factories = {rocksdb::NewCompactOnDeletionCollectorFactory(8192, 4096)};
  family.disable_auto_compactions = !flushes;
  rocksdb::ColumnFamilyOptions records = family;
  records.write_buffer_size = flushes ? 8 * kMebibyte : kUnflushedBytes;
  rocksdb::ColumnFamilyOptions payloads = family;
  payloads.write_buffer_size = flushes ? 16 * kMebibyte : kUnflushedBytes;
  // Bundles have many sizes; cut from blocks of one size, their memory comes back as it went.
  payloads.arena_block_size = 4 * kMebibyte;
  // Bundles are written again when files are merged: seldom, and most of them have ended by then.
  payloads.level0_file_num_compaction_trigger = 8;
  return {{rocksdb::kDefaultColumnFamilyName, records}, {kBundleFamily, payloads}};
}

}  // namespace

// A database and its handles, closed when the last user lets go.
struct RecordDatabase::Opened {
  std::unique_ptr<rocksdb::DB> database;
  rocksdb::ColumnFamilyHandle* records = nullptr;
  rocksdb::ColumnFamilyHandle* bundles = nullptr;
  bool flushes = true;

  ~Opened() {
    if (database == nullptr) return;
    database->DestroyColumnFamilyHandle(records).PermitUncheckedError();
    database->DestroyColumnFamilyHandle(bundles).PermitUncheckedError();
    database->Close().PermitUncheckedError();
  }
};

RecordDatabase::RecordDatabase(const Options& options)
    : options_(options),
      env_(rocksdb::NewCompositeEnv(options.file_system)),
      batch_(std::make_unique<rocksdb::WriteBatch>(kKeptBatchBytes)) {}

RecordDatabase::~RecordDatabase() { Close(); }

absl::StatusOr<std::unique_ptr<RecordDatabase>> RecordDatabase::Open(const Options& options) {
  std::unique_ptr<RecordDatabase> database(new RecordDatabase(options));
  if (options.read_only) {
    const std::string current = absl::StrCat(options.directory, "/CURRENT");
    LEEWAY_RETURN_IF_ERROR(
        FromRocksDb(options.file_system->FileExists(current, rocksdb::IOOptions(), nullptr), current));
    absl::StatusOr<std::shared_ptr<Opened>> opened;
    for (int attempt = 0; attempt < kReadOnlyAttempts; ++attempt) {
      opened = database->OpenIn(Mode::kRead);
      if (opened.ok()) break;
    }
    if (!opened.ok()) return opened.status();
    database->Exchange(*std::move(opened));
    return database;
  }
  LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<Opened> opened, database->OpenForWriting(/*flushes=*/true));
  database->Exchange(std::move(opened));
  return database;
}

absl::StatusOr<std::shared_ptr<RecordDatabase::Opened>> RecordDatabase::OpenIn(Mode mode) const {
  rocksdb::DBOptions options = DatabaseOptions(env_.get());
  const bool flushes = mode != Mode::kWriteWithoutFlush;
  if (!flushes) {
    // Nothing but the log grows, and that by no more than what is written.
    options.avoid_flush_during_recovery = true;
    options.max_total_wal_size = 0;
  }
  const auto attempt = [&](rocksdb::WALRecoveryMode wal_mode, std::shared_ptr<Opened>* opened) {
    options.wal_recovery_mode = wal_mode;
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* database = nullptr;
    const rocksdb::Status status =
        mode == Mode::kRead
            ? rocksdb::DB::OpenForReadOnly(options, options_.directory, Families(flushes), &handles, &database)
            : rocksdb::DB::Open(options, options_.directory, Families(flushes), &handles, &database);
    if (status.ok()) {
      *opened = std::make_shared<Opened>();
      (*opened)->database.reset(database);
      (*opened)->records = handles[0];
      (*opened)->bundles = handles[1];
      (*opened)->flushes = flushes;
    }
    return FromRocksDb(status, absl::StrCat("open ", options_.directory));
  };
  std::shared_ptr<Opened> opened;
  absl::Status status = attempt(rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords, &opened);
  if (absl::IsDataLoss(status)) {
    LEEWAY_ASSIGN_OR_RETURN(const WalState state, CheckWals(options_.file_system.get(), options_.directory));
    if (state == WalState::kTornTail) {
      LEEWAY_LOG_WARNING("{}: the last write of the log was never completed; it is dropped", options_.directory);
      status = attempt(rocksdb::WALRecoveryMode::kPointInTimeRecovery, &opened);
    }
  }
  if (!status.ok()) return status;
  return opened;
}

std::shared_ptr<RecordDatabase::Opened> RecordDatabase::current() const {
  MutexLock lock(&mutex_);
  return current_;
}

void RecordDatabase::Exchange(std::shared_ptr<Opened> opened) {
  {
    MutexLock lock(&mutex_);
    std::swap(current_, opened);
    // Once it is exchanged, users only go.
    while (opened != nullptr && opened.use_count() > 1) read_.WaitFor(&mutex_, absl::Seconds(1));
  }
}

absl::Status RecordDatabase::Write(const WriteGroup& group) {
  const std::shared_ptr<Opened> opened = current();
  rocksdb::WriteBatch& batch = *batch_;
  batch.Clear();
  for (const WriteGroup::EndedList& list : group.ended_lists) {
    if (!list.ended.empty()) {
      batch.Put(opened->records, EndedKey(list.number), list.ended).PermitUncheckedError();
      continue;
    }
    batch.Delete(opened->records, ListKey(list.number)).PermitUncheckedError();
    batch.Delete(opened->records, EndedKey(list.number)).PermitUncheckedError();
    if (list.is_bundle) batch.Delete(opened->bundles, BundleKey(list.number)).PermitUncheckedError();
  }
  std::vector<rocksdb::Slice> parts;
  for (const WriteGroup::List& list : group.lists) {
    ListEncoder encoder(list.segment, list.offset);
    parts.clear();
    for (size_t i = list.begin; i < list.end; ++i) {
      const WriteGroup::Put& put = group.puts[i];
      encoder.Add(put.indexed->key, put.place.size_bytes, put.place.hash);
      parts.emplace_back(*put.payload);
    }
    batch.Put(opened->records, ListKey(list.number), encoder.bytes()).PermitUncheckedError();
    if (list.segment != 0) continue;
    const std::string key = BundleKey(list.number);
    const rocksdb::Slice key_slice(key);
    batch
        .Put(opened->bundles, rocksdb::SliceParts(&key_slice, 1),
             rocksdb::SliceParts(parts.data(), static_cast<int>(parts.size())))
        .PermitUncheckedError();
  }
  for (const StoreRecord& record : group.records) {
    if (record.value.has_value()) {
      batch.Put(opened->records, record.key, *record.value).PermitUncheckedError();
    } else {
      batch.Delete(opened->records, record.key).PermitUncheckedError();
    }
  }
  rocksdb::WriteOptions options;
  options.sync = true;
  logged_bytes_ += batch.GetDataSize();
  const absl::Status written =
      FromRocksDb(opened->database->Write(options, &batch), absl::StrCat("write to ", options_.directory));
  if (batch.GetDataSize() > kKeptBatchBytes) batch_ = std::make_unique<rocksdb::WriteBatch>();
  return written;
}

absl::Status RecordDatabase::StopWriting() {
  LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<Opened> for_reading, OpenIn(Mode::kRead));
  Exchange(std::move(for_reading));
  return absl::OkStatus();
}

absl::Status RecordDatabase::Reopen(bool flushes) {
  // While the database is closed, readers use one opened for reading only.
  LEEWAY_RETURN_IF_ERROR(StopWriting());
  LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<Opened> reopened, OpenForWriting(flushes));
  Exchange(std::move(reopened));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<RecordDatabase::Opened>> RecordDatabase::OpenForWriting(bool flushes) const {
  if (flushes) {
    absl::StatusOr<std::shared_ptr<Opened>> opened = OpenIn(Mode::kWrite);
    if (!absl::IsResourceExhausted(opened.status())) return opened;
  }
  LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<Opened> opened, OpenIn(Mode::kWriteWithoutFlush));
  RemoveStrayTables(opened->database.get());
  return opened;
}

void RecordDatabase::RemoveStrayTables(rocksdb::DB* database) const {
  std::vector<rocksdb::LiveFileMetaData> live;
  database->GetLiveFilesMetaData(&live);
  const rocksdb::IOOptions io;
  std::vector<std::string> names;
  options_.file_system->GetChildren(options_.directory, io, &names, nullptr).PermitUncheckedError();
  for (const std::string& name : names) {
    const bool is_live = std::any_of(live.begin(), live.end(), [&](const rocksdb::LiveFileMetaData& file) {
      return absl::StripPrefix(file.name, "/") == name;
    });
    if (is_live || !absl::EndsWith(name, ".sst")) continue;
    options_.file_system->DeleteFile(absl::StrCat(options_.directory, "/", name), io, nullptr).PermitUncheckedError();
  }
}

bool RecordDatabase::only_logs() const { return !current()->flushes; }

absl::StatusOr<std::string> RecordDatabase::ReadBundle(uint64_t list) const {
  std::shared_ptr<Opened> opened = current();
  if (opened == nullptr) return absl::FailedPreconditionError(absl::StrCat(options_.directory, " was closed"));
  std::string bytes;
  rocksdb::ReadOptions options;
  // Every payload has its own hash; and a lease does not read a bundle twice.
  options.verify_checksums = false;
  options.fill_cache = false;
  const absl::Status status = FromRocksDb(opened->database->Get(options, opened->bundles, BundleKey(list), &bytes),
                                          absl::StrCat("read bundle ", list, " from ", options_.directory));
  {
    MutexLock lock(&mutex_);
    opened.reset();
    read_.NotifyAll();
  }
  if (absl::IsNotFound(status)) return absl::DataLossError(status.message());
  if (!status.ok()) return status;
  return bytes;
}

absl::Status RecordDatabase::Scan(absl::string_view begin, absl::string_view end, const Visitor& visit) const {
  const std::shared_ptr<Opened> opened = current();
  const rocksdb::Slice upper(end.data(), end.size());
  rocksdb::ReadOptions options;
  options.iterate_upper_bound = &upper;
  options.fill_cache = false;
  options.readahead_size = kMebibyte;
  const std::unique_ptr<rocksdb::Iterator> place(opened->database->NewIterator(options, opened->records));
  for (place->Seek(rocksdb::Slice(begin.data(), begin.size())); place->Valid(); place->Next()) {
    LEEWAY_RETURN_IF_ERROR(visit(absl::string_view(place->key().data(), place->key().size()),
                                 absl::string_view(place->value().data(), place->value().size())));
  }
  return FromRocksDb(place->status(), absl::StrCat("read records of ", options_.directory));
}

}  // namespace leeway
