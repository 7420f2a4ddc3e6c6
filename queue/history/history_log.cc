#include "queue/history/history_log.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "nlohmann/json.hpp"

namespace leeway {

HistoryLog::HistoryLog(FileSystem* files, const Clock* clock, std::string path, std::string who)
    : files_(files), clock_(clock), path_(std::move(path)), who_(std::move(who)) {}

void HistoryLog::Add(absl::string_view event, const nlohmann::ordered_json& fields) {
  MutexLock lock(&mutex_);
  nlohmann::ordered_json line = {{"n", ++lines_},
                                 {"t", absl::ToDoubleSeconds(clock_->Now().since_origin)},
                                 {"who", who_},
                                 {"event", std::string(event)}};
  line.update(fields);
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const absl::Status status = files_->AppendToFile(path_, text);
  if (!status.ok()) LEEWAY_LOG_ERROR("line {} of the history is lost: {}", lines_, std::string(status.message()));
}

std::unique_ptr<HistoryLog> OpenHistory(const std::string& who) {
#ifdef LEEWAY_FAILPOINTS
  if (const char* folder = std::getenv("LEEWAY_HISTORY_DIRECTORY"); folder != nullptr && *folder != '\0') {
    // Process ids come back, the clock does not.
    const int64_t now = absl::ToInt64Microseconds(RealClock()->Now().since_origin);
    return std::make_unique<HistoryLog>(RealFileSystem(), RealClock(),
                                        JoinPath(folder, absl::StrCat(who, ".", now, ".", getpid(), ".jsonl")), who);
  }
#endif
  return nullptr;
}

}  // namespace leeway
