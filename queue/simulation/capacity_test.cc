// The queue refuses exactly the capacities that can come to a stop for ever.

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "queue/core/queue_core.h"
#include "queue/simulation/capacity_model_test.h"
#include "queue/store/memory_store.h"

namespace leeway {
namespace {

QueueCoreOptions OptionsOf(const Capacities& c) {
  QueueCoreOptions options;
  options.staleness.groups_per_step = c.groups_per_step;
  options.staleness.budget = c.budget;
  options.staleness.steps = c.steps;
  options.staleness.order = c.is_order_ticket ? StalenessOrder::kTicket : StalenessOrder::kReady;
  options.staleness.breach = StalenessBreach::kDrop;
  options.group_size = static_cast<uint32_t>(c.group_size);
  options.max_groups = c.max_groups;
  options.max_bytes = c.max_bytes;
  options.max_trajectory_bytes = c.trajectory_bytes;
  options.task = "t";
  options.train_seed = options.evaluation_seed = [](uint64_t index) { return index; };
  return options;
}

TEST(QueueCapacityTest, RefusesExactlyWhatCanStopForEver) {
  int accepted = 0, refused = 0;
  ForSmallCapacities(1, [&](const Capacities& c) {
    const bool never_stops = CapacityModel(c).NeverStops();
    const absl::Status created = QueueCore::Create(OptionsOf(c), std::make_unique<MemoryStore>()).status();
    EXPECT_EQ(created.ok(), never_stops) << "B " << c.groups_per_step << " G " << c.group_size << " S " << c.budget
                                         << " max_groups " << c.max_groups << " max_bytes " << c.max_bytes << " order "
                                         << (c.is_order_ticket ? "ticket" : "ready") << ": " << created;
    ++(never_stops ? accepted : refused);
  });
  EXPECT_GT(accepted, 300);
  EXPECT_GT(refused, 300);
}

// The model itself, where the answer is plain.
TEST(QueueCapacityTest, ModelStopsWhereABatchDoesNotFit) {
  Capacities c;
  c.groups_per_step = 2;
  c.max_groups = 2;
  c.max_bytes = 2;
  EXPECT_TRUE(CapacityModel(c).NeverStops());
  c.max_groups = 1;
  EXPECT_FALSE(CapacityModel(c).NeverStops());
  c.max_groups = 5;
  c.max_bytes = 1;
  EXPECT_FALSE(CapacityModel(c).NeverStops());
}

}  // namespace
}  // namespace leeway
