#include "launch/supervision/posix_spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "fmt/format.h"

extern char** environ;

namespace leeway {
namespace {

sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  return set;
}

std::vector<std::string> MergedEnvironment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (added.count(text.substr(0, text.find('='))) == 0) merged.push_back(text);
  }
  for (const auto& [name, value] : added) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Runs in the child between fork and exec: async-signal-safe calls only. Writes errno to `report_fd` and exits if the
// program can not be run.
[[noreturn]] void BecomeChild(const char* executable, char** arguments, char** environment, int log_fd, int null_fd,
                              pid_t parent, int report_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the line above.
  if (getppid() != parent) _exit(1);
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) ::signal(signal, SIG_DFL);
  dup2(null_fd, STDIN_FILENO);
  dup2(log_fd, STDOUT_FILENO);
  dup2(log_fd, STDERR_FILENO);
  execve(executable, arguments, environment);
  const int error = errno;
  const ssize_t ignored = write(report_fd, &error, sizeof(error));
  static_cast<void>(ignored);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PosixSpawner>> PosixSpawner::Create() {
  const sigset_t watched = WatchedSignals();
  if (pthread_sigmask(SIG_BLOCK, &watched, nullptr) != 0) return absl::InternalError("can not block signals");
  const int fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return absl::InternalError(fmt::format("signalfd: {}", strerror(errno)));
  return std::unique_ptr<PosixSpawner>(new PosixSpawner(fd));
}

PosixSpawner::~PosixSpawner() {
  for (const int pid : children_) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  close(signal_fd_);
}

absl::StatusOr<int> PosixSpawner::Spawn(const ProcessCommand& command) {
  std::vector<std::string> arguments = {command.executable};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  std::vector<std::string> environment = MergedEnvironment(command.environment);
  std::vector<char*> argument_pointers = Pointers(arguments);
  std::vector<char*> environment_pointers = Pointers(environment);
  const int log_fd = open(command.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd < 0) return absl::InternalError(fmt::format("can not open log {}: {}", command.log_path, strerror(errno)));
  const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    close(log_fd);
    close(null_fd);
    return absl::InternalError(fmt::format("pipe: {}", strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    BecomeChild(command.executable.c_str(), argument_pointers.data(), environment_pointers.data(), log_fd, null_fd,
                parent, report[1]);
  }
  const int fork_error = errno;
  close(report[1]);
  close(log_fd);
  close(null_fd);
  if (child < 0) {
    close(report[0]);
    return absl::InternalError(fmt::format("fork: {}", strerror(fork_error)));
  }
  // Closed by a successful exec; otherwise carries its errno.
  int exec_error = 0;
  ssize_t got;
  do {
    got = read(report[0], &exec_error, sizeof(exec_error));
  } while (got < 0 && errno == EINTR);
  close(report[0]);
  if (got == sizeof(exec_error)) {
    waitpid(child, nullptr, 0);
    return absl::NotFoundError(fmt::format("can not run {}: {}", command.executable, strerror(exec_error)));
  }
  children_.insert(child);
  return child;
}

void PosixSpawner::Signal(int pid, int signal) {
  if (children_.count(pid) > 0) kill(pid, signal);
}

ProcessEvent PosixSpawner::Wait(absl::Duration timeout) {
  const Deadline deadline = Deadline::After(timeout);
  while (true) {
    // One SIGCHLD may stand for several deaths: look before sleeping.
    if (ProcessEvent event = Reap(); !std::holds_alternative<NothingHappened>(event)) return event;
    pollfd waited = {signal_fd_, POLLIN, 0};
    const int64_t milliseconds =
        absl::ToInt64Milliseconds(std::min(deadline.Remaining(), absl::Seconds(3600)) + absl::Microseconds(999));
    if (poll(&waited, 1, static_cast<int>(milliseconds)) > 0) {
      signalfd_siginfo info;
      while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo != SIGCHLD) return InterruptReceived{static_cast<int>(info.ssi_signo)};
      }
      continue;
    }
    if (deadline.HasPassed()) return NothingHappened{};
  }
}

ProcessEvent PosixSpawner::Reap() {
  for (const int pid : children_) {
    int status = 0;
    rusage usage = {};
    if (wait4(pid, &status, WNOHANG, &usage) != pid) continue;
    children_.erase(pid);
    ProcessExited exited;
    exited.pid = pid;
    if (WIFSIGNALED(status)) {
      exited.exit.signal = WTERMSIG(status);
    } else {
      exited.exit.exit_code = WEXITSTATUS(status);
    }
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    exited.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    return exited;
  }
  return NothingHappened{};
}

}  // namespace leeway
