#include "queue/store/disk/bundle_reader.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"

namespace leeway {

absl::StatusOr<Payload> BundleReader::Read(const PayloadKey& key, const PayloadPlace& place) {
  const absl::StatusOr<Bytes> bundle = Load(/*for_good=*/false);
  if (!bundle.ok()) {
    return absl::Status(bundle.status().code(), absl::StrCat(DescribePayload(key), ": ", bundle.status().message()));
  }
  const bool is_whole = place.offset <= (*bundle)->size() && place.size_bytes <= (*bundle)->size() - place.offset;
  const absl::string_view bytes =
      is_whole ? absl::string_view(**bundle).substr(place.offset, place.size_bytes) : absl::string_view();
  if (!is_whole || Hash64(bytes.data(), bytes.size()) != place.hash) {
    return absl::DataLossError(absl::StrCat(DescribePayload(key), ": its ", place.size_bytes, " bytes at offset ",
                                            place.offset, " of bundle ", list_,
                                            is_whole ? " are damaged" : " are cut off"));
  }
  return std::make_shared<const std::string>(bytes);
}

absl::StatusOr<BundleReader::Bytes> BundleReader::Load(bool for_good) {
  Bytes bytes;
  const std::shared_ptr<BundleReaders> readers = readers_.lock();
  {
    MutexLock lock(&mutex_);
    for_good_ = for_good_ || for_good;
    if (bytes_ != nullptr) return bytes_;
    if (!lost_.ok()) return lost_;
    if (readers == nullptr) return absl::FailedPreconditionError("its store is closed");
    absl::StatusOr<std::string> read = readers->source_(list_);
    if (!read.ok()) {
      // Once the database has it no longer, asking again would call a disk that failed for a moment lost data.
      if (for_good_) lost_ = read.status();
      return read.status();
    }
    bytes = bytes_ = std::make_shared<const std::string>(*std::move(read));
  }
  readers->OnLoaded(shared_from_this(), bytes->size());
  return bytes;
}

void BundleReader::Drop() {
  MutexLock lock(&mutex_);
  if (!for_good_) bytes_.reset();
}

std::shared_ptr<BundleReader> BundleReaders::Open(uint64_t list) {
  MutexLock lock(&mutex_);
  std::weak_ptr<BundleReader>& slot = open_[list];
  if (std::shared_ptr<BundleReader> reader = slot.lock()) return reader;
  auto reader = std::make_shared<BundleReader>(weak_from_this(), list);
  slot = reader;
  return reader;
}

void BundleReaders::KeepForHolders(uint64_t list) {
  std::shared_ptr<BundleReader> reader;
  {
    MutexLock lock(&mutex_);
    const auto found = open_.find(list);
    if (found == open_.end()) return;
    reader = found->second.lock();
  }
  // What cannot be read now says so, from now on, to who wants it.
  if (reader != nullptr) reader->Load(/*for_good=*/true).status().IgnoreError();
}

void BundleReaders::Forget(uint64_t list) {
  MutexLock lock(&mutex_);
  open_.erase(list);
}

void BundleReaders::OnLoaded(std::shared_ptr<BundleReader> reader, uint64_t size_bytes) {
  std::vector<std::shared_ptr<BundleReader>> dropped;
  {
    MutexLock lock(&mutex_);
    recent_.push_back({std::move(reader), size_bytes});
    recent_bytes_ += size_bytes;
    while (recent_bytes_ > memory_bytes_ && recent_.size() > 1) {
      recent_bytes_ -= recent_.front().size_bytes;
      dropped.push_back(std::move(recent_.front().reader));
      recent_.pop_front();
    }
  }
  for (const std::shared_ptr<BundleReader>& old : dropped) old->Drop();
}

}  // namespace leeway
