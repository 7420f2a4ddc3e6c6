#include "benchmarks/queue/append_loop.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "benchmarks/queue/child_process.h"
#include "benchmarks/queue/figures.h"

namespace leeway {

AppendResult MeasureAppends(uint64_t bytes, int appends, const std::string& folder) {
  const std::string path = folder + "/append";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) MustSucceed(absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno))));
  const std::string block(bytes, 'x');
  std::vector<double> syncs;
  const MonotonicTime start = RealClock()->Now();
  for (int i = 0; i < appends; ++i) {
    const bool written = write(fd, block.data(), block.size()) == static_cast<ssize_t>(block.size());
    const MonotonicTime before = RealClock()->Now();
    if (!written || fdatasync(fd) != 0)
      MustSucceed(absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno))));
    syncs.push_back(absl::ToDoubleSeconds(RealClock()->Now() - before));
  }
  const double seconds = absl::ToDoubleSeconds(RealClock()->Now() - start);
  close(fd);
  unlink(path.c_str());
  return {appends / seconds, Quantile(&syncs, 0.5), Quantile(&syncs, 0.99)};
}

}  // namespace leeway
