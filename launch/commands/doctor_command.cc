#include <stdio.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "envs/registry.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "launch/commands/commands.h"
#include "launch/run/launch_plan.h"
#include "model/instruction_set.h"

namespace leeway {
namespace {

// Prints findings; remembers whether one of them stops leeway from working.
class Doctor {
 public:
  void Good(const std::string& what, const std::string& found) { fmt::print("ok    {:<22} {}\n", what, found); }
  void Bad(const std::string& what, const std::string& found, const std::string& remedy) {
    is_healthy_ = false;
    fmt::print("FAIL  {:<22} {}\n      {:<22} {}\n", what, found, "", remedy);
  }
  void Note(const std::string& what, const std::string& found) { fmt::print("note  {:<22} {}\n", what, found); }
  bool is_healthy() const { return is_healthy_; }

 private:
  bool is_healthy_ = true;
};

void CheckPrograms(Doctor* doctor) {
  const absl::StatusOr<std::string> binaries = FindBinaries();
  if (binaries.ok()) {
    doctor->Good("programs", *binaries);
  } else {
    doctor->Bad("programs", std::string(binaries.status().message()), "build them: ./run setup");
  }
}

void CheckMemory(Doctor* doctor) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kibibytes = 0;
    words >> name >> kibibytes;
    if (name == "MemAvailable:")
      doctor->Good("memory", fmt::format("{:.1f} GiB available", static_cast<double>(kibibytes) / (1 << 20)));
  }
}

void CheckSharedMemory(Doctor* doctor) {
  struct statvfs info = {};
  if (statvfs("/dev/shm", &info) != 0 || access("/dev/shm", W_OK) != 0) {
    doctor->Bad("/dev/shm", "missing or not writable", "mount a tmpfs there, or set weights.transport = \"grpc\"");
    return;
  }
  const double mebibytes = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) / (1 << 20);
  if (mebibytes < 16) {
    doctor->Bad("/dev/shm", fmt::format("{:.0f} MiB free", mebibytes),
                "make it larger, or set weights.transport = \"grpc\"");
  } else {
    doctor->Good("/dev/shm", fmt::format("{:.0f} MiB free, for weights.transport = \"shared_memory\"", mebibytes));
  }
}

void CheckLimits(Doctor* doctor) {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < 256) {
    doctor->Bad("open files", fmt::format("{}", files.rlim_cur), "raise it: ulimit -n 1024");
  } else {
    doctor->Good("open files", fmt::format("{} allowed", files.rlim_cur));
  }
}

void CheckHugePages(Doctor* doctor) {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string mode;
  std::getline(file, mode);
  if (mode.find("[never]") != std::string::npos || mode.empty()) {
    doctor->Note("huge pages", "off: large messages are slower (transparent_hugepage = madvise helps)");
  } else {
    doctor->Good("huge pages", mode);
  }
}

}  // namespace

ExitCode DoctorCommand() {
  Doctor doctor;
  CheckPrograms(&doctor);
  doctor.Good("processors", fmt::format("{}, kernels use {}", std::thread::hardware_concurrency(),
                                        std::string(InstructionSetName(ActiveInstructionSet()))));
  CheckMemory(&doctor);
  CheckSharedMemory(&doctor);
  CheckLimits(&doctor);
  CheckHugePages(&doctor);
  doctor.Good("tasks", fmt::format("{}", fmt::join(TaskNames(), ", ")));
  fmt::print("{}\n",
             doctor.is_healthy() ? "leeway can work here" : "leeway can not work here until the failures are mended");
  return doctor.is_healthy() ? ExitCode::kDone : ExitCode::kEnvironment;
}

}  // namespace leeway
