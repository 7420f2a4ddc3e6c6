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
constexpr char kFormat[] = "2";

constexpr size_t kRememberedSyncs = 1024;

// Far below the ballast, which is given up for it.
constexpr uint64_t kSpaceToOpen = 4 << 20;

// A database that only logs is reopened when its log has grown by this part of the ballast: as records replace each
// other and payloads end, the tables need less.
constexpr uint64_t kPartsOfBallast = 8;

// Most payloads of a list: bounds what is written when one of them ends.
constexpr size_t kListPayloads = 1024;
// Bundles that stay in memory after they were read.
constexpr uint64_t kReadBytes = 8 << 20;
// Garbage that is not worth the writing: segments, bundles.
constexpr uint64_t kSlackSegments = 4;
constexpr uint64_t kSlackBundles = 8;
// Most that one group of the store's own writes into new bundles.
constexpr uint64_t kRewrittenBundles = 4;

class BundledPayload final : public StoredPayload {
 public:
  BundledPayload(const PayloadKey& key, const PayloadPlace& place, std::shared_ptr<BundleReader> reader)
      : key_(key), place_(place), reader_(std::move(reader)) {}
  uint64_t size_bytes() const override { return place_.size_bytes; }
  absl::StatusOr<Payload> Load() const override { return reader_->Read(key_, place_); }

 private:
  const PayloadKey key_;
  const PayloadPlace place_;
  const std::shared_ptr<BundleReader> reader_;
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
      segment_readers_(file_system_, SegmentDirectory()),
      segments_(kSlackSegments * options.segment_bytes),
      bundles_(kSlackBundles * options.bundle_bytes),
      ballast_(file_system_.get(), absl::StrCat(options.directory, "/ballast"), options.ballast_bytes) {}

DiskWriter::~DiskWriter() {
  if (database_ != nullptr) database_->Close();
}

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
  bundle_readers_ = std::make_shared<BundleReaders>(
      [database = database_](uint64_t list) { return database->ReadBundle(list); }, kReadBytes);
  LEEWAY_RETURN_IF_ERROR(OpenFormat());
  LEEWAY_RETURN_IF_ERROR(OpenSegments(index));
  if (options_.read_only) return absl::OkStatus();
  NoteIfOnlyLogs();
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

absl::Status DiskWriter::ReopenDatabase(bool flushes) {
  LEEWAY_RETURN_IF_ERROR(CheckSpace());
  database_failed_ = true;
  LEEWAY_RETURN_IF_ERROR(database_->Reopen(flushes));
  database_failed_ = false;
  NoteIfOnlyLogs();
  return absl::OkStatus();
}

void DiskWriter::NoteIfOnlyLogs() {
  logged_bytes_at_open_ = database_->logged_bytes();
  if (!database_->only_logs()) return;
  NoteIfFull(absl::ResourceExhaustedError(
                 absl::StrCat(options_.directory, "/records has no space for tables of what its log holds")))
      .IgnoreError();
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
  LEEWAY_RETURN_IF_ERROR(OpenLists(file_sizes, index));
  if (options_.read_only) return absl::OkStatus();
  for (const auto& [number, size_bytes] : file_sizes) {
    const std::string path = SegmentPath(SegmentDirectory(), number);
    if (!segments_.Contains(number)) {
      LEEWAY_RETURN_IF_ERROR(FromRocksDb(file_system_->DeleteFile(path, io, nullptr), absl::StrCat("remove ", path)));
      continue;
    }
    // Gives back what an interrupted writer had reserved.
    file_system_->Truncate(path, size_bytes, io, nullptr).PermitUncheckedError();
    segments_.OnSealed(number, size_bytes);
  }
  return absl::OkStatus();
}

absl::Status DiskWriter::OpenLists(const absl::flat_hash_map<uint64_t, uint64_t>& file_sizes, PendingWrites* index) {
  absl::flat_hash_map<uint64_t, std::string> ended;
  LEEWAY_RETURN_IF_ERROR(
      database_->Scan(kEndedKeysBegin, kEndedKeysEnd, [&](absl::string_view key, absl::string_view bits) {
        LEEWAY_ASSIGN_OR_RETURN(const uint64_t list, DecodeListKey(absl::StrCat(kListKeysBegin, key.substr(1))));
        ended[list] = std::string(bits);
        return absl::OkStatus();
      }));
  LEEWAY_RETURN_IF_ERROR(
      database_->Scan(kListKeysBegin, kListKeysEnd, [&](absl::string_view key, absl::string_view bytes) {
        LEEWAY_ASSIGN_OR_RETURN(const uint64_t list, DecodeListKey(key));
        LEEWAY_ASSIGN_OR_RETURN(std::vector<PlacedPayload> payloads, DecodeList(list, bytes));
        const auto bits = ended.find(list);
        LEEWAY_RETURN_IF_ERROR(OpenList(list, std::move(payloads),
                                        bits == ended.end() ? absl::string_view() : bits->second, file_sizes, index));
        if (bits != ended.end()) ended.erase(bits);
        return absl::OkStatus();
      }));
  if (ended.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(options_.directory, "/records: list ", ended.begin()->first,
                                          " of payloads is missing, of which some have ended"));
}

absl::Status DiskWriter::OpenList(uint64_t list, std::vector<PlacedPayload> payloads, absl::string_view ended,
                                  const absl::flat_hash_map<uint64_t, uint64_t>& file_sizes, PendingWrites* index) {
  next_list_ = list + 1;
  if (!ended.empty() && ended.size() != (payloads.size() + 7) / 8) {
    return absl::DataLossError(absl::StrCat(options_.directory, "/records: list ", list, " of ", payloads.size(),
                                            " payloads has ", ended.size(), " bytes that say which have ended"));
  }
  const auto has_ended = [&](const PlacedPayload& payload) {
    const uint32_t i = payload.place.index;
    return !ended.empty() && (static_cast<uint8_t>(ended[i / 8]) >> (i % 8) & 1) != 0;
  };
  std::vector<PayloadKey> keys;
  keys.reserve(payloads.size());
  const PayloadPlace& last = payloads.back().place;
  const uint64_t begin = payloads.front().place.offset;
  const uint64_t size_bytes = last.offset + last.size_bytes - begin;
  const uint64_t segment = last.segment;
  const auto file = file_sizes.find(segment);
  const uint64_t file_bytes = file == file_sizes.end() ? 0 : file->second;
  for (const PlacedPayload& payload : payloads) {
    keys.push_back(payload.key);
    if (has_ended(payload)) continue;
    if (!last.is_bundled() && payload.place.offset + payload.place.size_bytes > file_bytes && !options_.read_only) {
      return absl::DataLossError(
          absl::StrCat(SegmentPath(SegmentDirectory(), segment),
                       file == file_sizes.end() ? " is missing" : " is cut off", ": ", DescribePayload(payload.key),
                       " lies in it. Bring the file back, or start with an empty ", options_.directory));
    }
    LEEWAY_RETURN_IF_ERROR(index->OnRecovered(payload));
  }
  SegmentTable& table = last.is_bundled() ? bundles_ : segments_;
  if (last.is_bundled()) {
    table.OnCreated(list, size_bytes);
    table.OnSealed(list, size_bytes);
  } else if (!table.Contains(segment)) {
    table.OnCreated(segment, file_bytes);
  }
  table.OnListed(last.is_bundled() ? list : segment, list, std::move(keys), size_bytes);
  for (const PlacedPayload& payload : payloads) {
    if (has_ended(payload)) table.OnEnded(list, payload.place.index, payload.place.size_bytes);
  }
  return absl::OkStatus();
}

// ---- writing --------------------------------------------------------------------------------------------------------

absl::Status DiskWriter::Write(WriteGroup* group) {
  absl::Status status = WriteOnce(group);
  if (absl::IsResourceExhausted(status) && ballast_.exists()) {
    // All of it is for the log: no table is begun with its space. If it cannot be stopped, it is by the next attempt.
    database_->StopWriting().IgnoreError();
    database_failed_ = true;
    failed_for_space_ = true;
    ballast_.GiveUp();
    status = WriteOnce(group);
  }
  if (!status.ok()) ++counters_.failures;
  return status;
}

absl::Status DiskWriter::WriteOnce(WriteGroup* group) {
  if (database_failed_) LEEWAY_RETURN_IF_ERROR(NoteIfFull(ReopenDatabase(/*flushes=*/!failed_for_space_)));
  if (!group->is_placed) {
    const absl::Status placed = PlacePayloads(group);
    if (!placed.ok()) {
      // After a failed sync nothing appended since the one before may be trusted, even if a later sync is fine.
      SealActive();
      RemoveGarbage();
      return NoteIfFull(placed);
    }
    EndLists(group);
    group->is_placed = true;
  }
  LEEWAY_FAILPOINT("queue_store_before_log_write");
  const MonotonicTime start = options_.clock->Now();
  const absl::Status written = database_->Write(*group);
  LEEWAY_FAILPOINT("queue_store_after_log_write");
  if (!written.ok()) {
    database_failed_ = true;
    failed_for_space_ = absl::IsResourceExhausted(written) && !ballast_.is_held();
    return NoteIfFull(written);
  }
  NoteSync(options_.clock->Now() - start);
  ++counters_.log_syncs;
  ++counters_.groups;
  return absl::OkStatus();
}

absl::Status DiskWriter::PlacePayloads(WriteGroup* group) {
  group->lists.clear();
  for (WriteGroup::Put& put : group->puts) {
    put.place = PayloadPlace();
    put.place.size_bytes = put.payload->size();
    put.place.hash = Hash64(put.payload->data(), put.payload->size());
  }
  const auto large = std::stable_partition(group->puts.begin(), group->puts.end(), [this](const WriteGroup::Put& put) {
    return put.place.size_bytes <= options_.inline_bytes;
  });
  PlaceInBundles(group, large - group->puts.begin());
  return PlaceInSegments(group, large - group->puts.begin());
}

void DiskWriter::PlaceInBundles(WriteGroup* group, size_t end) {
  uint64_t offset = 0;
  for (size_t i = 0; i < end; ++i) {
    const uint64_t size_bytes = group->puts[i].place.size_bytes;
    const bool is_full = offset > 0 && offset + size_bytes > options_.bundle_bytes;
    if (group->lists.empty() || is_full || i - group->lists.back().begin == kListPayloads) {
      group->lists.push_back({next_list_++, 0, 0, i, i});
      offset = 0;
    }
    AddToList(group, i, 0, offset);
    offset += size_bytes;
  }
}

absl::Status DiskWriter::PlaceInSegments(WriteGroup* group, size_t begin) {
  uint64_t left_bytes = 0;
  for (size_t i = begin; i < group->puts.size(); ++i) left_bytes += group->puts[i].place.size_bytes;
  for (size_t i = begin; i < group->puts.size(); ++i) {
    const std::string& bytes = *group->puts[i].payload;
    LEEWAY_RETURN_IF_ERROR(EnsureRoom(bytes.size(), left_bytes));
    const uint64_t offset = active_->size_bytes();
    LEEWAY_RETURN_IF_ERROR(active_->Append(bytes));
    left_bytes -= bytes.size();
    // A group of the store's own moves what was written before.
    (group->last_write == 0 ? counters_.rewritten_bytes : counters_.segment_bytes_written) += bytes.size();
    const bool goes_on = !group->lists.empty() && group->lists.back().segment == active_->number() &&
                         i - group->lists.back().begin < kListPayloads;
    if (!goes_on) group->lists.push_back({next_list_++, active_->number(), offset, i, i});
    AddToList(group, i, active_->number(), offset);
  }
  return SyncActive();
}

void DiskWriter::AddToList(WriteGroup* group, size_t i, uint64_t segment, uint64_t offset) {
  WriteGroup::List& list = group->lists.back();
  PayloadPlace& place = group->puts[i].place;
  place.list = list.number;
  place.index = static_cast<uint32_t>(i - list.begin);
  place.segment = segment;
  place.offset = offset;
  list.end = i + 1;
}

void DiskWriter::EndLists(WriteGroup* group) {
  std::vector<uint32_t> indices;
  for (auto erased = group->erased.begin(); erased != group->erased.end();) {
    const uint64_t list = erased->place.list;
    const bool is_bundle = erased->place.is_bundled();
    indices.clear();
    for (; erased != group->erased.end() && erased->place.list == list; ++erased) {
      indices.push_back(erased->place.index);
    }
    std::string ended = (is_bundle ? bundles_ : segments_).EndedWith(list, indices);
    if (is_bundle && ended.empty()) bundle_readers_->KeepForHolders(list);
    group->ended_lists.push_back({list, is_bundle, std::move(ended)});
  }
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
  segments_.OnCreated(created->number(), capacity_bytes);
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
  segments_.OnSealed(active_->number(), active_->synced_bytes());
  active_.reset();
}

void DiskWriter::OnDurable(const WriteGroup& group) {
  for (const WriteGroup::List& list : group.lists) {
    std::vector<PayloadKey> keys;
    keys.reserve(list.end - list.begin);
    uint64_t bytes = 0;
    for (size_t i = list.begin; i < list.end; ++i) {
      keys.push_back(group.puts[i].indexed->key);
      bytes += group.puts[i].place.size_bytes;
    }
    if (list.segment != 0) {
      segments_.OnListed(list.segment, list.number, std::move(keys), bytes);
      continue;
    }
    bundles_.OnCreated(list.number, bytes);
    bundles_.OnSealed(list.number, bytes);
    bundles_.OnListed(list.number, list.number, std::move(keys), bytes);
    if (group.last_write == 0) counters_.rewritten_bundle_bytes += bytes;
  }
  for (const WriteGroup::Erased& erased : group.erased) {
    (erased.place.is_bundled() ? bundles_ : segments_)
        .OnEnded(erased.place.list, erased.place.index, erased.place.size_bytes);
  }
  for (const WriteGroup::EndedList& list : group.ended_lists) {
    if (!list.is_bundle || !list.ended.empty()) continue;
    bundles_.OnRemoved(list.number);
    bundle_readers_->Forget(list.number);
  }
}

// ---- order ----------------------------------------------------------------------------------------------------------

void DiskWriter::RemoveGarbage() {
  for (const uint64_t segment : segments_.Removable()) {
    LEEWAY_FAILPOINT("queue_store_removing_segment");
    // A file that cannot be removed is not referred to; the next start removes it.
    file_system_->DeleteFile(SegmentPath(SegmentDirectory(), segment), rocksdb::IOOptions(), nullptr)
        .PermitUncheckedError();
    segment_readers_.Forget(segment);
    segments_.OnRemoved(segment);
  }
}

absl::Status DiskWriter::Housekeep() {
  if (database_failed_) LEEWAY_RETURN_IF_ERROR(NoteIfFull(ReopenDatabase(/*flushes=*/!failed_for_space_)));
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
  if (database_->only_logs()) {
    const uint64_t grown_bytes = database_->logged_bytes() - logged_bytes_at_open_;
    if (status.ok()) {
      status = ReopenDatabase(/*flushes=*/true);
    } else if (grown_bytes >= options_.ballast_bytes / kPartsOfBallast) {
      LEEWAY_RETURN_IF_ERROR(NoteIfFull(ReopenDatabase(/*flushes=*/true)));
    }
  }
  if (absl::IsResourceExhausted(NoteIfFull(status))) return absl::OkStatus();
  if (status.ok() && !database_->only_logs()) full_reason_.clear();
  return status;
}

const absl::Status& DiskWriter::NoteIfFull(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) {
    full_reason_ = DescribeDiskTrouble(status);
    next_look_for_space_ = options_.clock->Now() + options_.longest_pause;
  }
  return status;
}

std::vector<PayloadKey> DiskWriter::WantRewriting() const {
  if (is_full()) return {};
  std::vector<PayloadKey> keys;
  const auto add_keys_of = [&keys](const SegmentTable& table, uint64_t limit_bytes) {
    for (const uint64_t segment : table.WantRewriting(limit_bytes)) {
      for (const PayloadKey& key : table.KeysOf(segment)) keys.push_back(key);
    }
  };
  // Bundles go through the database's log, which others wait for.
  add_keys_of(bundles_, kRewrittenBundles * options_.bundle_bytes);
  add_keys_of(segments_, options_.group_bytes);
  return keys;
}

void DiskWriter::OnDamaged(const PayloadPlace& place) {
  (place.is_bundled() ? bundles_ : segments_).OnDamaged(place.is_bundled() ? place.list : place.segment);
}

std::shared_ptr<const StoredPayload> DiskWriter::ReadPayload(const PayloadKey& key, const PayloadPlace& place) const {
  if (place.is_bundled()) return std::make_shared<const BundledPayload>(key, place, bundle_readers_->Open(place.list));
  return std::make_shared<const SegmentPayload>(key, place, segment_readers_.Open(place.segment));
}

void DiskWriter::NoteSync(absl::Duration took) {
  MutexLock lock(&sync_mutex_);
  if (sync_times_.size() < kRememberedSyncs) sync_times_.resize(sync_times_.size() + 1);
  sync_times_[syncs_++ % kRememberedSyncs] = took;
}

StoreStatistics DiskWriter::Statistics() const {
  StoreStatistics statistics = counters_;
  statistics.log_bytes_written = database_->logged_bytes();
  statistics.live_segment_bytes = segments_.live_bytes();
  statistics.segment_file_bytes = segments_.file_bytes();
  statistics.segments = segments_.segments();
  statistics.live_bundle_bytes = bundles_.live_bytes();
  statistics.bundle_bytes = bundles_.file_bytes();
  statistics.bundles = bundles_.segments();
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
