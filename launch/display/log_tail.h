#ifndef LEEWAY_LAUNCH_DISPLAY_LOG_TAIL_H_
#define LEEWAY_LAUNCH_DISPLAY_LOG_TAIL_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace leeway {

// Follows the log of a process of this job: what it appends from now on, line by line. Blocks on the file only.
class LogTail {
 public:
  // What earlier starts left in the file is passed over.
  explicit LogTail(std::string path);

  // Whole lines that came since the last call, or since the construction.
  std::vector<std::string> Poll();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  uint64_t offset_ = 0;
};

// A line "2026-01-31 12:00:00.000 trainer-0 error: text" without time and name: {"error", "text"}; {"", line} if it is
// of another form (what a library wrote).
std::pair<std::string, std::string> LevelAndText(const std::string& line);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_DISPLAY_LOG_TAIL_H_
