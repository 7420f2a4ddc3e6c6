#include "queue/store/disk/io_status.h"

#include "absl/strings/str_cat.h"

namespace leeway {

absl::Status FromRocksDb(const rocksdb::Status& status, absl::string_view what) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = absl::StrCat(what, ": ", status.ToString());
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  if (status.IsNotFound() || status.IsPathNotFound()) return absl::NotFoundError(message);
  if (status.IsCorruption()) return absl::DataLossError(message);
  return absl::InternalError(message);
}

std::string DescribeDiskTrouble(const absl::Status& status) {
  return absl::StrCat(absl::IsResourceExhausted(status) ? "disk full: " : "disk error: ", status.message());
}

}  // namespace leeway
