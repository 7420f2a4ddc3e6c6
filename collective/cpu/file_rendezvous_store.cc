#include "collective/cpu/file_rendezvous_store.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

absl::Status NotUsable(absl::string_view path, const absl::Status& cause) {
  return absl::FailedPreconditionError(absl::StrCat("rendezvous file ", path, ": ", cause.message(),
                                                    "; all ranks need a directory that they can write"));
}

}  // namespace

std::string FileRendezvousStore::PathOf(const std::string& key) const {
  // Every key has a name of its own: other characters are escaped, so that a key is no path.
  std::string name;
  for (const char c : key) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-') {
      name.push_back(c);
    } else {
      absl::StrAppend(&name, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  return JoinPath(directory_, name);
}

absl::StatusOr<std::string> FileRendezvousStore::SetOnce(const std::string& key, const std::string& value,
                                                         const Deadline& deadline) {
  static std::atomic<uint64_t> drafts = 0;
  const std::string path = PathOf(key);
  const std::string draft = absl::StrCat(path, ".", getpid(), ".", ++drafts);
  FileSystem* files = RealFileSystem();
  absl::Status status = files->CreateDirectory(directory_);
  if (status.ok()) status = files->WriteFileAtomically(draft, value);
  if (!status.ok()) return NotUsable(path, status);
  // Unlike a rename, a link leaves a file that is there alone, and readers see whole values only.
  const int error = link(draft.c_str(), path.c_str()) == 0 ? 0 : errno;
  (void)files->RemoveAll(draft);
  if (error == 0) return value;
  if (error != EEXIST) return NotUsable(path, absl::UnknownError(std::strerror(error)));
  return Get(key, deadline);
}

absl::StatusOr<std::string> FileRendezvousStore::Get(const std::string& key, const Deadline& deadline) {
  const std::string path = PathOf(key);
  absl::Duration pause = absl::Milliseconds(1);
  for (;;) {
    absl::StatusOr<std::string> value = RealFileSystem()->ReadFile(path);
    if (value.ok()) return value;
    if (value.status().code() != absl::StatusCode::kNotFound) return NotUsable(path, value.status());
    if (deadline.HasPassed()) return absl::DeadlineExceededError(absl::StrCat("no file ", path));
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(std::min(pause, deadline.Remaining())));
    pause = std::min(2 * pause, absl::Milliseconds(20));
  }
}

void FileRendezvousStore::Clear() {
  FileSystem* files = RealFileSystem();
  const absl::StatusOr<std::vector<std::string>> names = files->ListDirectory(directory_);
  if (!names.ok()) return;
  for (const std::string& name : *names) (void)files->RemoveAll(JoinPath(directory_, name));
}

}  // namespace leeway
