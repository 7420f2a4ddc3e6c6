#include "base/cpu_time.h"

#include <dirent.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

constexpr char kPrefix[] = "lw-";

std::string ClassOfThreadName(const std::string& name, bool is_main_thread) {
  if (absl::StartsWith(name, kPrefix)) return name.substr(sizeof(kPrefix) - 1);
  return is_main_thread ? "main" : "rpc";
}

// utime + stime of /proc/<task>/stat in seconds; the fields stand behind the last ')' since names may hold anything.
double CpuSecondsOfStat(const std::string& stat) {
  const size_t close = stat.rfind(')');
  if (close == std::string::npos) return 0;
  std::istringstream fields(stat.substr(close + 2));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user_ticks = 0, system_ticks = 0;
  fields >> user_ticks >> system_ticks;
  return (user_ticks + system_ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

void SetThreadClass(const std::string& thread_class) {
  pthread_setname_np(pthread_self(), absl::StrCat(kPrefix, thread_class).substr(0, 15).c_str());
}

std::map<std::string, double> CpuSecondsByThreadClass() {
  std::map<std::string, double> seconds;
  if (DIR* tasks = opendir("/proc/self/task")) {
    while (const dirent* entry = readdir(tasks)) {
      if (entry->d_name[0] == '.') continue;
      std::ifstream file(absl::StrCat("/proc/self/task/", entry->d_name, "/stat"));
      const std::string stat((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      const size_t open = stat.find('('), close = stat.rfind(')');
      if (open == std::string::npos || close == std::string::npos) continue;  // the thread ended meanwhile
      const bool is_main_thread = std::to_string(getpid()) == entry->d_name;
      seconds[ClassOfThreadName(stat.substr(open + 1, close - open - 1), is_main_thread)] += CpuSecondsOfStat(stat);
    }
    closedir(tasks);
  }
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  seconds["total"] = static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
  return seconds;
}

}  // namespace leeway
