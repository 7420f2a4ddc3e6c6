#include "base/cpu_time.h"

#include <time.h>

#include <thread>

#include "gtest/gtest.h"

namespace leeway {
namespace {

// Uses so much processor time of the calling thread.
void Burn(double seconds) {
  const auto used = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double end = used() + seconds;
  while (used() < end) {
  }
}

double In(const std::string& thread_class) {
  const std::map<std::string, double> seconds = CpuSecondsByThreadClass();
  const auto found = seconds.find(thread_class);
  return found == seconds.end() ? 0.0 : found->second;
}

TEST(CpuTimeTest, TheClassesAddUpToTheTotal) {
  Burn(0.05);
  std::map<std::string, double> seconds = CpuSecondsByThreadClass();
  const double total = seconds.at("total");
  EXPECT_GE(total, 0.05);
  seconds.erase("total");
  double sum = 0;
  for (const auto& [thread_class, used] : seconds) sum += used;
  EXPECT_NEAR(sum, total, 1e-6);
}

TEST(CpuTimeTest, TheTimeOfAThreadThatEndedStaysInItsClass) {
  const double rpc_before = In("rpc");
  double while_alive = 0;
  std::thread([&] {
    SetThreadClass("env");
    Burn(0.05);
    while_alive = In("env");
  }).join();
  EXPECT_GE(while_alive, 0.05);
  EXPECT_GE(In("env"), while_alive);
  EXPECT_LT(In("rpc"), rpc_before + 0.04);
}

TEST(CpuTimeTest, AThreadWithoutAClassCountsAsRpc) {
  const double before = In("rpc");
  std::thread([] { Burn(0.05); }).join();
  EXPECT_GE(In("rpc"), before + 0.05);
}

TEST(CpuTimeTest, AThreadThatChangesItsClassLeavesWhatItUsedInTheOldOne) {
  const double main_before = In("main");
  Burn(0.05);
  EXPECT_GE(In("main"), main_before + 0.05);
  const double main_then = In("main");
  SetThreadClass("compute");
  Burn(0.05);
  EXPECT_GE(In("compute"), 0.05);
  EXPECT_NEAR(In("main"), main_then, 0.02);
  SetThreadClass("main");
}

}  // namespace
}  // namespace leeway
