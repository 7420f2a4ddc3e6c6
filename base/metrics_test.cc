#include "base/metrics.h"

#include "base/cpu_time.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(MetricsTest, SnapshotHoldsTheLastValues) {
  Metrics metrics;
  metrics.SetGauge("queue/groups", 3);
  metrics.SetGauge("queue/groups", 5);
  const std::map<std::string, double> expected = {{"queue/groups", 5}};
  EXPECT_EQ(metrics.Snapshot(), expected);
}

TEST(MetricsTest, NoNameIsTooOddForPrometheus) {
  Metrics metrics;
  for (const char* name : {"episode_failures/exit status 1", "a{b}=\"c\"", "\xff\n:", ""}) metrics.SetGauge(name, 1);
  metrics.SetGauge("a b", 2);
  metrics.SetGauge("a-b", 3);  // the same name for Prometheus
  EXPECT_EQ(metrics.Snapshot().size(), 6u);
}

TEST(MetricsTest, ServesOnAFreePortAndRefusesATakenOne) {
  Metrics first, second;
  const auto port = first.Serve(0);
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_GT(*port, 0);
  EXPECT_EQ(second.Serve(*port).status().code(), absl::StatusCode::kUnavailable);
}

TEST(CpuTimeTest, WorkOfALivingThreadStandsInItsClassAndInTheTotal) {
  const auto class_sum = [](const std::map<std::string, double>& seconds) {
    double sum = 0;
    for (const auto& [name, value] : seconds) sum += name == "total" ? 0 : value;
    return sum;
  };
  const auto before = CpuSecondsByThreadClass();
  volatile double sink = 0;
  for (int i = 0; i < 60'000'000; ++i) sink = sink + i;
  const auto after = CpuSecondsByThreadClass();
  const double total = after.at("total") - before.at("total");
  EXPECT_GT(total, 0.0);
  // Classes are counted in clock ticks of 10 ms.
  EXPECT_NEAR(class_sum(after) - class_sum(before), total, 0.05);
}

}  // namespace
}  // namespace leeway
