#include "base/metrics.h"

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

}  // namespace
}  // namespace leeway
