#include "queue/store/disk/disk_writer.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "queue/store/disk/io_status.h"

namespace leeway {
namespace {

// The store's own record: capital letters are not the callers'.
constexpr char kFormatKey[] = "Format";
constexpr char kFormat[] = "1";

constexpr size_t kRememberedSyncs = 1024;

// Far below the ballast, which is given up for it.
constexpr uint64_t kSpaceToOpen = 4 << 20;

// A small payload as it was read, or why it cannot be.
class InlinePayload final : public StoredPayload {
 public:
  InlinePayload(uint64_t size_bytes, absl::StatusOr<Payload> payload)
      : size_bytes_(size_bytes), payload_(std::move(payload)) {}
  uint64_t size_bytes() const override { return size_bytes_; }
  absl::StatusOr<Payload> Load() const override { return payload_; }

 private:
  const uint64_t size_bytes_;
  const absl::StatusOr<Payload> payload_;
};

class SegmentPayload final : public StoredPayload {
 public:
  SegmentPayload(const PayloadKey& key, const PayloadPlace& place,
                 absl::StatusOr<std::shared_ptr<const SegmentReader>> reader)
      : key_(key), place_(place), reader_(std::move(reader)) {}
  uint64_t size_bytes() const override { return place_.size_bytes; }
  absl::StatusOr<Payload> Load() const override {
    if (!reader_.ok()) return reader_.status();
    return (*reader_)->Read(key_, place_);
  }

 private:
  const PayloadKey key_;
  const PayloadPlace place_;
  const absl::StatusOr<std::shared_ptr<const SegmentReader>> reader_;
};

}  // namespace

DiskWriter::DiskWriter(const RocksDbStoreOptions& options, std::shared_ptr<rocksdb::FileSystem> file_system)
    : options_(options),
      file_system_(std::move(file_system)),
      readers_(file_system_, SegmentDirectory()),
      table_(options.segment_bytes),
      ballast_(file_system_.get(), absl::StrCat(options.directory, "/ballast"), options.ballast_bytes) {}

// ---- opening --------------------------------------------------------------------------------------------------------

absl::Status DiskWriter::Open(PendingWrites* index) {
  if (!options_.read_only) {
    LEEWAY_RETURN_IF_ERROR(
        FromRocksDb(file_system_->CreateDirIfMissing(SegmentDirectory(), rocksdb::IOOptions(), nullptr),
                    absl::StrCat("create ", SegmentDirectory())));
  }
  RecordDatabase::Options database;
  database.directory = absl::StrCat(options_.directory, "/records");
  database.file_system = file_system_;
  database.read_only = options_.read_only;
  if (!options_.read_only) {
    if (!CheckSpace().ok()) ballast_.GiveUp();
    LEEWAY_RETURN_IF_ERROR(CheckSpace());
  }
  absl::StatusOr<std::unique_ptr<RecordDatabase>> opened = RecordDatabase::Open(database);
  if (absl::IsResourceExhausted(opened.status()) && !options_.read_only && ballast_.GiveUp()) {
    opened = RecordDatabase::Open(database);
  }
  if (!opened.ok()) return opened.status();
  database_ = *std::move(opened);
  LEEWAY_RETURN_IF_ERROR(OpenFormat());
  LEEWAY_RETURN_IF_ERROR(OpenSegments(index));
  if (options_.read_only) return absl::OkStatus();
  const absl::Status ballast = ballast_.Take();
  return absl::IsResourceExhausted(NoteIfFull(ballast)) ? absl::OkStatus() : ballast;
}

absl::Status DiskWriter::CheckSpace() const {
  uint64_t free_bytes = 0;
  const rocksdb::IOStatus asked =
      file_system_->GetFreeSpace(options_.directory, rocksdb::IOOptions(), &free_bytes, nullptr);
  if (!asked.ok() || free_bytes >= kSpaceToOpen) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("disk full: ", free_bytes, " bytes are free in ", options_.directory,
                                                   ", opening the store takes ", kSpaceToOpen));
}

absl::Status DiskWriter::ReopenDatabase() {
  LEEWAY_RETURN_IF_ERROR(CheckSpace());
  return database_->Reopen();
}

absl::Status DiskWriter::OpenFormat() {
  std::string format;
  LEEWAY_RETURN_IF_ERROR(
      database_->Scan(kFormatKey, absl::StrCat(kFormatKey, "z"), [&](absl::string_view, absl::string_view value) {
        format = std::string(value);
        return absl::OkStatus();
      }));
  if (format == kFormat) return absl::OkStatus();
  if (!format.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(options_.directory, " holds a queue store of format ", format,
                                                      "; this program reads format ", kFormat));
  }
  if (options_.read_only) return absl::OkStatus();  // made a moment ago
  // Segments and ballast are made after the format was written: there was a database, and it is gone.
  std::vector<std::string> names;
  file_system_->GetChildren(SegmentDirectory(), rocksdb::IOOptions(), &names, nullptr).PermitUncheckedError();
  const bool has_segments =
      std::any_of(names.begin(), names.end(), [](const auto& name) { return SegmentNumberOfName(name) != 0; });
  if (has_segments || ballast_.exists()) {
    return absl::DataLossError(absl::StrCat(options_.directory,
                                            " has lost the database of its records (its folder "
                                            "`records`): bring it back, or move the whole store away to go on from "
                                            "the newest checkpoint"));
  }
  WriteGroup group;
  group.records = {{kFormatKey, kFormat}};
  return database_->Write(group);
}

absl::Status DiskWriter::OpenSegments(PendingWrites* index) {
  std::vector<std::string> names;
  const rocksdb::IOOptions io;
  const rocksdb::IOStatus listed = file_system_->GetChildren(SegmentDirectory(), io, &names, nullptr);
  if (!options_.read_only) {
    LEEWAY_RETURN_IF_ERROR(FromRocksDb(listed, absl::StrCat("list ", SegmentDirectory())));
  }
  absl::flat_hash_map<uint64_t, uint64_t> file_sizes;
  for (const std::string& name : names) {
    const uint64_t number = SegmentNumberOfName(name);
    if (number == 0) continue;
    const std::string path = SegmentPath(SegmentDirectory(), number);
    uint64_t size_bytes = 0;
    const absl::Status status =
        FromRocksDb(file_system_->GetFileSize(path, io, &size_bytes, nullptr), absl::StrCat("size of ", path));
    if (!status.ok() && !options_.read_only) return status;
    file_sizes[number] = size_bytes;
    next_segment_ = std::max(next_segment_, number + 1);
  }
  LEEWAY_RETURN_IF_ERROR(
      database_->Scan(kPlaceKeysBegin, kPlaceKeysEnd, [&](absl::string_view key_bytes, absl::string_view place_bytes) {
        LEEWAY_ASSIGN_OR_RETURN(const PayloadKey key, DecodePlaceKey(key_bytes));
        LEEWAY_ASSIGN_OR_RETURN(const PayloadPlace place, DecodePlace(place_bytes));
        index->OnRecovered(key, place);
        if (place.is_inline()) return absl::OkStatus();
        const auto file = file_sizes.find(place.segment);
        const uint64_t file_bytes = file == file_sizes.end() ? 0 : file->second;
        if (place.offset + place.size_bytes > file_bytes && !options_.read_only) {
          return absl::DataLossError(
              absl::StrCat(SegmentPath(SegmentDirectory(), place.segment),
                           file == file_sizes.end() ? " is missing" : " is cut off", ": ", DescribePayload(key),
                           " lies in it. Bring the file back, or start with an empty ", options_.directory));
        }
        if (!table_.Contains(place.segment)) table_.OnCreated(place.segment, file_bytes);
        table_.OnReferred(place.segment, key, place.size_bytes);
        return absl::OkStatus();
      }));
  if (options_.read_only) return absl::OkStatus();
  for (const auto& [number, size_bytes] : file_sizes) {
    const std::string path = SegmentPath(SegmentDirectory(), number);
    if (!table_.Contains(number)) {
      LEEWAY_RETURN_IF_ERROR(FromRocksDb(file_system_->DeleteFile(path, io, nullptr), absl::StrCat("remove ", path)));
      continue;
    }
    // Gives back what an interrupted writer had reserved.
    file_system_->Truncate(path, size_bytes, io, nullptr).PermitUncheckedError();
    table_.OnSealed(number, size_bytes);
  }
  return absl::OkStatus();
}

// ---- writing --------------------------------------------------------------------------------------------------------

absl::Status DiskWriter::Write(WriteGroup* group) {
  absl::Status status = WriteOnce(group);
  if (absl::IsResourceExhausted(status) && ballast_.GiveUp()) status = WriteOnce(group);
  if (!status.ok()) ++counters_.failures;
  return status;
}

absl::Status DiskWriter::WriteOnce(WriteGroup* group) {
  if (database_failed_) {
    const absl::Status reopened = ReopenDatabase();
    if (!reopened.ok()) return NoteIfFull(reopened);
    database_failed_ = false;
  }
  if (!group->payloads_are_placed) {
    const absl::Status placed = PlacePayloads(group);
    if (!placed.ok()) {
      // After a failed sync nothing appended since the one before may be trusted, even if a later sync is fine.
      SealActive();
      RemoveGarbage();
      return NoteIfFull(placed);
    }
    group->payloads_are_placed = true;
  }
  LEEWAY_FAILPOINT("queue_store_before_log_write");
  const MonotonicTime start = options_.clock->Now();
  const absl::Status written = database_->Write(*group);
  LEEWAY_FAILPOINT("queue_store_after_log_write");
  if (!written.ok()) {
    database_failed_ = true;
    return NoteIfFull(written);
  }
  NoteSync(options_.clock->Now() - start);
  ++counters_.log_syncs;
  ++counters_.groups;
  return absl::OkStatus();
}

absl::Status DiskWriter::PlacePayloads(WriteGroup* group) {
  uint64_t large_bytes = 0;
  for (const WriteGroup::Put& put : group->puts) {
    if (put.payload->size() > options_.inline_bytes) large_bytes += put.payload->size();
  }
  for (WriteGroup::Put& put : group->puts) {
    const std::string& bytes = *put.payload;
    put.place = PayloadPlace{0, 0, bytes.size(), Hash64(bytes.data(), bytes.size())};
    if (bytes.size() <= options_.inline_bytes) continue;
    LEEWAY_RETURN_IF_ERROR(EnsureRoom(bytes.size(), large_bytes));
    put.place.segment = active_->number();
    put.place.offset = active_->size_bytes();
    LEEWAY_RETURN_IF_ERROR(active_->Append(bytes));
    large_bytes -= bytes.size();
    // A group of the store's own moves what was written before.
    (group->last_write == 0 ? counters_.rewritten_bytes : counters_.segment_bytes_written) += bytes.size();
  }
  return SyncActive();
}

absl::Status DiskWriter::EnsureRoom(uint64_t size_bytes, uint64_t size_of_all_bytes) {
  if (active_ != nullptr && active_->room_bytes() >= size_bytes) return absl::OkStatus();
  LEEWAY_RETURN_IF_ERROR(SyncActive());
  SealActive();
  if (spare_ != nullptr && spare_->room_bytes() >= size_bytes) {
    active_ = std::move(spare_);
    return absl::OkStatus();
  }
  // On a full disk no more than what is needed now.
  const uint64_t capacity_bytes =
      is_full() ? size_of_all_bytes : std::max<uint64_t>(options_.segment_bytes, size_bytes);
  LEEWAY_ASSIGN_OR_RETURN(active_, CreateSegment(capacity_bytes));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SegmentWriter>> DiskWriter::CreateSegment(uint64_t capacity_bytes) {
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<SegmentWriter> created,
                          SegmentWriter::Create(file_system_.get(), SegmentDirectory(), next_segment_, capacity_bytes));
  ++next_segment_;
  table_.OnCreated(created->number(), capacity_bytes);
  return created;
}

absl::Status DiskWriter::SyncActive() {
  if (active_ == nullptr || active_->is_synced()) return absl::OkStatus();
  LEEWAY_FAILPOINT("queue_store_before_segment_sync");
  const MonotonicTime start = options_.clock->Now();
  LEEWAY_RETURN_IF_ERROR(active_->Sync());
  NoteSync(options_.clock->Now() - start);
  ++counters_.segment_syncs;
  return absl::OkStatus();
}

void DiskWriter::SealActive() {
  if (active_ == nullptr) return;
  active_->Seal();
  table_.OnSealed(active_->number(), active_->synced_bytes());
  active_.reset();
}

void DiskWriter::OnDurable(const WriteGroup& group) {
  for (const WriteGroup::Put& put : group.puts) {
    if (!put.place.is_inline()) table_.OnReferred(put.place.segment, put.key, put.place.size_bytes);
  }
  for (const WriteGroup::Erased& erased : group.erased) {
    if (!erased.place.is_inline()) table_.OnReleased(erased.place.segment, erased.place.size_bytes);
  }
}

// ---- order ----------------------------------------------------------------------------------------------------------

void DiskWriter::RemoveGarbage() {
  for (const uint64_t segment : table_.Removable()) {
    LEEWAY_FAILPOINT("queue_store_removing_segment");
    // A file that cannot be removed is not referred to; the next start removes it.
    file_system_->DeleteFile(SegmentPath(SegmentDirectory(), segment), rocksdb::IOOptions(), nullptr)
        .PermitUncheckedError();
    readers_.Forget(segment);
    table_.OnRemoved(segment);
  }
}

absl::Status DiskWriter::Housekeep() {
  if (database_failed_) {
    LEEWAY_RETURN_IF_ERROR(NoteIfFull(ReopenDatabase()));
    database_failed_ = false;
  }
  RemoveGarbage();
  if (is_full()) return TakeSpaceBack();
  if (active_ == nullptr || spare_ != nullptr || active_->room_bytes() > options_.segment_bytes / 2) {
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<SegmentWriter>> created = CreateSegment(options_.segment_bytes);
  if (absl::IsResourceExhausted(NoteIfFull(created.status()))) return absl::OkStatus();
  if (!created.ok()) return created.status();
  spare_ = *std::move(created);
  return absl::OkStatus();
}

absl::Status DiskWriter::TakeSpaceBack() {
  if (options_.clock->Now() < next_look_for_space_) return absl::OkStatus();
  absl::Status status = ballast_.Take();
  if (status.ok() && spare_ == nullptr && next_segment_ > 1) {
    absl::StatusOr<std::unique_ptr<SegmentWriter>> created = CreateSegment(options_.segment_bytes);
    status = created.status();
    if (created.ok()) spare_ = *std::move(created);
  }
  if (absl::IsResourceExhausted(NoteIfFull(status))) return absl::OkStatus();
  if (status.ok()) full_reason_.clear();
  return status;
}

const absl::Status& DiskWriter::NoteIfFull(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) {
    full_reason_ = DescribeDiskTrouble(status);
    next_look_for_space_ = options_.clock->Now() + options_.longest_pause;
  }
  return status;
}

std::optional<uint64_t> DiskWriter::WantsRewriting() const {
  if (is_full()) return std::nullopt;
  return table_.WantsRewriting();
}

std::shared_ptr<const StoredPayload> DiskWriter::ReadPayload(const PayloadKey& key, const PayloadPlace& place) const {
  if (!place.is_inline()) return std::make_shared<const SegmentPayload>(key, place, readers_.Open(place.segment));
  absl::StatusOr<std::string> bytes = database_->ReadInline(key);
  if (!bytes.ok()) return std::make_shared<const InlinePayload>(place.size_bytes, bytes.status());
  if (bytes->size() != place.size_bytes || Hash64(bytes->data(), bytes->size()) != place.hash) {
    return std::make_shared<const InlinePayload>(
        place.size_bytes, absl::DataLossError(absl::StrCat(DescribePayload(key), ": its ", place.size_bytes,
                                                           " bytes in ", options_.directory, "/records are damaged")));
  }
  return std::make_shared<const InlinePayload>(place.size_bytes,
                                               std::make_shared<const std::string>(*std::move(bytes)));
}

void DiskWriter::NoteSync(absl::Duration took) {
  MutexLock lock(&sync_mutex_);
  if (sync_times_.size() < kRememberedSyncs) sync_times_.resize(sync_times_.size() + 1);
  sync_times_[syncs_++ % kRememberedSyncs] = took;
}

StoreStatistics DiskWriter::Statistics() const {
  StoreStatistics statistics = counters_;
  statistics.log_bytes_written = database_->logged_bytes();
  statistics.live_segment_bytes = table_.live_bytes();
  statistics.segment_file_bytes = table_.file_bytes();
  statistics.segments = table_.segments();
  return statistics;
}

void DiskWriter::AddSyncTimes(StoreStatistics* statistics) const {
  std::vector<absl::Duration> sorted;
  {
    MutexLock lock(&sync_mutex_);
    sorted = sync_times_;
  }
  if (sorted.empty()) return;
  std::sort(sorted.begin(), sorted.end());
  statistics->sync_p50 = sorted[sorted.size() / 2];
  statistics->sync_p99 = sorted[sorted.size() * 99 / 100];
}

}  // namespace leeway
