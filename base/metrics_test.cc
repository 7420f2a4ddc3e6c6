#include "base/metrics.h"

#include "base/cpu_time.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(MetricsTest, SnapshotHoldsGaugesAndCounters) {
  Metrics metrics;
  metrics.SetGauge("queue/groups", 3);
  metrics.SetGauge("queue/groups", 5);
  metrics.AddToCounter("push/accepted");
  metrics.AddToCounter("push/accepted", 2);
  metrics.Observe("push/seconds", 0.5, {0.1, 1.0});
  const std::map<std::string, double> expected = {{"queue/groups", 5}, {"push/accepted", 3}};
  EXPECT_EQ(metrics.Snapshot(), expected);
}

TEST(MetricsTest, ServesOnAFreePortAndRefusesATakenOne) {
  Metrics first, second;
  const auto port = first.Serve(0);
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_GT(*port, 0);
  EXPECT_EQ(second.Serve(*port).status().code(), absl::StatusCode::kUnavailable);
}

TEST(CpuTimeTest, TotalCoversTheThreadClasses) {
  volatile double sink = 0;
  for (int i = 0; i < 30'000'000; ++i) sink = sink + i;
  const auto seconds = CpuSecondsByThreadClass();
  ASSERT_TRUE(seconds.count("total"));
  EXPECT_GT(seconds.at("total"), 0.0);
  double by_class = 0;
  for (const auto& [name, value] : seconds) by_class += name == "total" ? 0 : value;
  // Classes are counted in clock ticks of 10 ms.
  EXPECT_NEAR(by_class, seconds.at("total"), 0.1);
}

}  // namespace
}  // namespace leeway
