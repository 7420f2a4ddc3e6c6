#ifndef LEEWAY_COLLECTIVE_CPU_FILE_RENDEZVOUS_STORE_H_
#define LEEWAY_COLLECTIVE_CPU_FILE_RENDEZVOUS_STORE_H_

#include <string>

#include "collective/cpu/rendezvous_store.h"

namespace leeway {

// A store in a directory that all ranks see, one file a key. Local disks and NFS (it relies on link() alone). Waiting
// looks every few milliseconds. Thread-safe; any number of processes.
// Errors: FAILED_PRECONDITION when the directory cannot be made or written, with the path.
class FileRendezvousStore final : public RendezvousStore {
 public:
  // Makes the directory when it is first needed.
  explicit FileRendezvousStore(std::string directory) : directory_(std::move(directory)) {}

  absl::StatusOr<std::string> SetOnce(const std::string& key, const std::string& value,
                                      const Deadline& deadline) override;
  absl::StatusOr<std::string> Get(const std::string& key, const Deadline& deadline) override;
  // Removes all keys, and what writers that died in the middle left: when all ranks have met. What can not be removed
  // stays.
  void Clear();

 private:
  std::string PathOf(const std::string& key) const;

  const std::string directory_;
};

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_CPU_FILE_RENDEZVOUS_STORE_H_
