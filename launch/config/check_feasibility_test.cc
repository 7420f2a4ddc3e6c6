// `leeway check` refuses exactly the capacities with which a run can come to a stop for ever: its verdict is compared
// with a model of the queue's bounds in which every order of events is looked at.

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "envs/registry.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "launch/commands/prepared_config.h"
#include "launch/roles/task_options.h"
#include "queue/simulation/capacity_model_test.h"

namespace leeway {
namespace {

TEST(CheckFeasibilityTest, VerdictIsTheModels) {
  char name[] = "/tmp/leeway_feasibility_XXXXXX";
  const std::string directory = mkdtemp(name);
  const std::string file = directory + "/run.toml";
  std::ofstream(file) << "[task]\nname = \"sort5\"\n";
  const auto prepare = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {file, "run.directory=" + directory + "/runs"});
    return PrepareConfig(overrides);
  };
  // What the task's longest episode needs; one of the model's two bytes of a trajectory is half of it.
  const PreparedConfig plain = prepare({});
  ASSERT_TRUE(plain.errors.empty()) << FormatDiagnostics(plain.errors);
  const uint64_t largest = static_cast<uint64_t>(plain.resolved.config.GetInteger("queue.max_trajectory_bytes"));
  const uint64_t unit = (largest + 1) / 2;
  int refused = 0;
  ForSmallCapacities(2, [&](const Capacities& c) {
    const std::vector<Diagnostic> errors =
        prepare({fmt::format("trainer.steps={}", c.steps), fmt::format("trainer.groups_per_step={}", c.groups_per_step),
                 fmt::format("trainer.group_size={}", c.group_size), fmt::format("staleness.budget={}", c.budget),
                 fmt::format("staleness.order={}", c.is_order_ticket ? "ticket" : "ready"),
                 fmt::format("queue.max_groups={}", c.max_groups),
                 fmt::format("queue.max_bytes={}", c.max_bytes * unit),
                 fmt::format("queue.max_trajectory_bytes={}", c.trajectory_bytes * unit)})
            .errors;
    EXPECT_EQ(errors.empty(), CapacityModel(c).NeverStops())
        << "B " << c.groups_per_step << " G " << c.group_size << " S " << c.budget << " max_groups " << c.max_groups
        << " max_bytes " << c.max_bytes << " of " << c.trajectory_bytes
        << " a trajectory: " << FormatDiagnostics(errors);
    refused += errors.empty() ? 0 : 1;
  });
  EXPECT_GT(refused, 300);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace leeway
