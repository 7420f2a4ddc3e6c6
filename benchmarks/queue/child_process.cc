#include "benchmarks/queue/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace leeway {

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& command, const std::string& log_path) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) return absl::InternalError(std::strerror(errno));
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execvp(arguments[0], arguments.data());
    const int error = errno;
    if (write(failure[1], &error, sizeof(error)) < 0) _exit(1);
    _exit(1);
  }
  close(failure[1]);
  int error = 0;
  const bool failed = pid < 0 || read(failure[0], &error, sizeof(error)) == sizeof(error);
  close(failure[0]);
  if (!failed) return ChildProcess(pid);
  if (pid > 0) waitpid(pid, nullptr, 0);
  const std::string message = absl::StrCat("cannot start ", command[0], ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::InternalError(message);
}

void ChildProcess::Stop() {
  if (pid_ == 0) return;
  kill(pid_, SIGTERM);
  for (int i = 0; i < 2000; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = 0;
      return;
    }
    usleep(10'000);
  }
  Kill();
}

void ChildProcess::Kill() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

double ProcessCpuSeconds(pid_t pid) {
  if (pid == 0) {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // Behind the name, which may hold anything: fields 3 on; user and system ticks are 14 and 15.
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

uint64_t ProcessResidentBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid == 0 ? "self" : absl::StrCat(pid), "/statm"));
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t DirectoryBytes(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path, error)) {
    const uint64_t size = entry.is_regular_file(error) ? entry.file_size(error) : 0;
    // Files come and go while this looks.
    if (!error) bytes += size;
  }
  return bytes;
}

TemporaryFolder::TemporaryFolder(const std::string& parent) : path_(absl::StrCat(parent, "/leeway-benchmark-XXXXXX")) {
  if (mkdtemp(path_.data()) != nullptr) return;
  MustSucceed(absl::InternalError(absl::StrCat("cannot make a folder in ", parent, ": ", std::strerror(errno))));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

void MustSucceed(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << std::endl;
  std::exit(1);
}

}  // namespace leeway
