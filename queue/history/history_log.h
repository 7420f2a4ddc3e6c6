#ifndef LEEWAY_QUEUE_HISTORY_HISTORY_LOG_H_
#define LEEWAY_QUEUE_HISTORY_HISTORY_LOG_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "nlohmann/json_fwd.hpp"

namespace leeway {

// What one life of a process sent and was told, one JSON object a line, for a checker that reads the histories of all
// processes afterwards (tests/fault/history_checker.py):
//
//   {"n": 17, "t": 5123.402117, "who": "rollout-0", "event": "pushed", ...}
//
// `n` counts the lines of the file from 1 without a gap, `t` is the machine's monotonic clock in seconds. A line is
// handed to the kernel before Add returns: a process that is killed loses at most the line that it was writing.
// Thread-safe; blocks for a write to a local file. A write that fails is logged, and leaves a gap in `n`.
class HistoryLog {
 public:
  // Appends to `path`.
  HistoryLog(FileSystem* files, const Clock* clock, std::string path, std::string who);

  // `fields`: an object; its members follow those above.
  void Add(absl::string_view event, const nlohmann::ordered_json& fields) LEEWAY_EXCLUDES(mutex_);

 private:
  FileSystem* const files_;
  const Clock* const clock_;
  const std::string path_;
  const std::string who_;

  Mutex mutex_;
  uint64_t lines_ LEEWAY_GUARDED_BY(mutex_) = 0;
};

// A new file in the folder that the environment variable LEEWAY_HISTORY_DIRECTORY names; null where it is not set, or
// where failpoints are not compiled in.
std::unique_ptr<HistoryLog> OpenHistory(const std::string& who);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_HISTORY_HISTORY_LOG_H_
