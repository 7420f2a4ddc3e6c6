#include "weightsync/transport/shared_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

constexpr char kPrefix[] = "leeway-";
// Where Linux shows POSIX shared memory as files.
constexpr char kFolder[] = "/dev/shm";
constexpr size_t kRememberedSegments = 2;

absl::Status SystemError(const std::string& what) {
  const std::string text = absl::StrCat(what, ": ", std::strerror(errno));
  if (errno == ENOENT) return absl::NotFoundError(text);
  if (errno == ENOSPC || errno == ENOMEM) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

std::string Sanitized(const std::string& run) {
  std::string name = run.substr(0, 64);
  for (char& letter : name) {
    if (!absl::ascii_isalnum(letter) && letter != '-' && letter != '_') letter = '_';
  }
  return name;
}

// A new object of its own name, locked. -1 if another process's housekeeping took it for a dead one before it was
// locked: try again.
absl::StatusOr<int> CreateLocked(const std::string& run, std::string* name) {
  // A random number: processes in containers may share /dev/shm and have the same id, and a receiver takes a name that
  // it knows for the memory that it knows.
  thread_local std::random_device random;
  const uint64_t number = (uint64_t{random()} << 32) | random();
  *name = absl::StrCat("/", kPrefix, Sanitized(run), "-", getpid(), "-", absl::Hex(number, absl::kZeroPad16));
  const int fd = shm_open(name->c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (fd < 0 && errno == EEXIST) return -1;
  if (fd < 0) return SystemError(absl::StrCat("cannot make shared memory ", *name));
  const bool is_locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  const bool is_taken = !is_locked && errno == EWOULDBLOCK;
  const absl::Status failed = SystemError(absl::StrCat("cannot lock ", *name));
  struct stat facts {};
  if (is_locked && fstat(fd, &facts) == 0 && facts.st_nlink > 0) return fd;
  close(fd);
  shm_unlink(name->c_str());
  if (!is_locked && !is_taken) return failed;
  return -1;
}

class CopyingReader : public BucketReader {
 public:
  CopyingReader(std::shared_ptr<const void> keep_alive, absl::Span<const std::byte> source)
      : keep_alive_(std::move(keep_alive)), source_(source) {}

  absl::Status Read(uint64_t offset, absl::Span<std::byte> destination) override {
    if (is_cancelled_) return absl::CancelledError("the transfer was cancelled");
    LEEWAY_CHECK(offset + destination.size() <= source_.size());
    std::memcpy(destination.data(), source_.data() + offset, destination.size());
    return absl::OkStatus();
  }
  void Cancel() override { is_cancelled_ = true; }

 private:
  const std::shared_ptr<const void> keep_alive_;
  const absl::Span<const std::byte> source_;
  std::atomic<bool> is_cancelled_{false};
};

}  // namespace

// ---- publisher ------------------------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<SharedMemorySegment>> SharedMemorySegment::Create(const std::string& run,
                                                                                 uint64_t size_bytes) {
  std::string name;
  int fd = -1;
  while (fd < 0) {
    LEEWAY_ASSIGN_OR_RETURN(fd, CreateLocked(run, &name));
  }
  const auto give_up = [&](const absl::Status& status) {
    close(fd);
    shm_unlink(name.c_str());
    return status;
  };
  // An object has at least one byte, so that it can be mapped. Reserving now turns a full /dev/shm into an error
  // instead of a signal later.
  const uint64_t mapped_bytes = std::max<uint64_t>(size_bytes, 1);
  errno = posix_fallocate(fd, 0, static_cast<off_t>(mapped_bytes));
  if (errno != 0) {
    return give_up(SystemError(absl::StrCat("cannot reserve ", mapped_bytes, " bytes of shared memory in ", kFolder,
                                            " (enlarge it, or use weights.transport = \"grpc\")")));
  }
  void* data = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return give_up(SystemError(absl::StrCat("cannot map ", name)));
  return std::unique_ptr<SharedMemorySegment>(
      new SharedMemorySegment(name, fd, static_cast<std::byte*>(data), size_bytes));
}

SharedMemorySegment::SharedMemorySegment(std::string name, int fd, std::byte* data, uint64_t size_bytes)
    : name_(std::move(name)), fd_(fd), data_(data), size_bytes_(size_bytes) {}

SharedMemorySegment::~SharedMemorySegment() {
  Unlink();
  munmap(data_, std::max<uint64_t>(size_bytes_, 1));
  close(fd_);
}

void SharedMemorySegment::Unlink() {
  if (is_linked_) shm_unlink(name_.c_str());
  is_linked_ = false;
}

std::vector<std::string> RemoveStaleSegments() {
  std::vector<std::string> removed;
  DIR* folder = opendir(kFolder);
  if (folder == nullptr) return removed;
  while (const dirent* entry = readdir(folder)) {
    const std::string file = entry->d_name;
    if (!absl::StartsWith(file, kPrefix)) continue;
    const std::string name = absl::StrCat("/", file);
    const int fd = shm_open(name.c_str(), O_RDWR, 0);
    if (fd < 0) continue;  // another user's, or gone
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && shm_unlink(name.c_str()) == 0) removed.push_back(name);
    close(fd);
  }
  closedir(folder);
  return removed;
}

void RememberSegment(const std::string& name, std::vector<std::string>* names) {
  names->erase(std::remove(names->begin(), names->end(), name), names->end());
  names->push_back(name);
  if (names->size() > kRememberedSegments) names->erase(names->begin());
}

// ---- receiver -------------------------------------------------------------------------------------------------------

class SharedMemoryTransport::Mapping {
 public:
  Mapping(std::string name, const std::byte* data, uint64_t size_bytes)
      : name_(std::move(name)), data_(data), size_bytes_(size_bytes) {}
  ~Mapping() { munmap(const_cast<std::byte*>(data_), size_bytes_); }

  static absl::StatusOr<std::shared_ptr<const Mapping>> Map(const std::string& name) {
    const int fd = shm_open(name.c_str(), O_RDONLY, 0);
    if (fd < 0) {
      return SystemError(absl::StrCat("cannot open the publisher's shared memory ", name,
                                      " (publisher and receiver must run on one machine; otherwise use "
                                      "weights.transport = \"grpc\")"));
    }
    struct stat facts {};
    void* data = MAP_FAILED;
    if (fstat(fd, &facts) == 0 && facts.st_size > 0)
      data = mmap(nullptr, static_cast<size_t>(facts.st_size), PROT_READ, MAP_SHARED, fd, 0);
    const absl::Status failed = data == MAP_FAILED ? SystemError(absl::StrCat("cannot map ", name)) : absl::OkStatus();
    close(fd);
    LEEWAY_RETURN_IF_ERROR(failed);
    return std::make_shared<const Mapping>(name, static_cast<const std::byte*>(data),
                                           static_cast<uint64_t>(facts.st_size));
  }

  const std::string& name() const { return name_; }
  absl::Span<const std::byte> bytes() const { return absl::MakeSpan(data_, size_bytes_); }

 private:
  const std::string name_;
  const std::byte* const data_;
  const uint64_t size_bytes_;
};

absl::StatusOr<std::unique_ptr<BucketReader>> SharedMemoryTransport::Open(const TransferRequest& request) {
  MutexLock lock(&mutex_);
  const std::string& name = request.shared_memory_name;
  auto found = std::find_if(mappings_.begin(), mappings_.end(),
                            [&](const std::shared_ptr<const Mapping>& mapping) { return mapping->name() == name; });
  if (found == mappings_.end()) {
    LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<const Mapping> mapping, Mapping::Map(name));
    found = mappings_.insert(mappings_.end(), std::move(mapping));
  }
  const std::shared_ptr<const Mapping> mapping = *found;
  if (mapping->bytes().size() < request.total_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory ", name, " has ", mapping->bytes().size(),
                                                   " bytes, the version ", request.total_bytes));
  }
  RememberSegment(name, &names_);
  mappings_.remove_if([&](const std::shared_ptr<const Mapping>& held) LEEWAY_NO_THREAD_SAFETY_ANALYSIS {
    return std::find(names_.begin(), names_.end(), held->name()) == names_.end();
  });
  return std::make_unique<CopyingReader>(mapping, mapping->bytes());
}

}  // namespace leeway
