#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "collective/rank_environment.h"
#include "envs/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launch/roles/queue_role.h"
#include "launch/roles/rollout_role.h"
#include "launch/roles/task_options.h"
#include "launch/roles/trainer_role.h"
#include "launch/run/launch_plan.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// All defaults, resolved by hand.
Config ResolvedDefaults() {
  Config config;
  config.Set("task.name", std::string("sort5"), Place{});
  config.Set("run.name", std::string("x"), Place{});
  config.Set("model.key_value_heads", int64_t{2}, Place{});
  config.Set("model.head_dim", int64_t{16}, Place{});
  config.Set("model.intermediate", int64_t{176}, Place{});
  config.Set("model.max_positions", int64_t{20}, Place{});
  config.Set("queue.max_groups", int64_t{64}, Place{});
  config.Set("queue.max_trajectory_bytes", int64_t{4096}, Place{});
  return config;
}

// The schema's choices and the parsers' names are the same words.
TEST(RoleOptionsTest, ChoicesAreWhatTheTrainerKnows) {
  EXPECT_EQ(FindKey("objective.name")->choices(), ObjectiveKindNames());
  EXPECT_EQ(FindKey("objective.correction")->choices(), CorrectionKindNames());
  EXPECT_EQ(FindKey("objective.aggregation")->choices(), AggregationKindNames());
  EXPECT_EQ(FindKey("objective.advantage")->choices(), AdvantageKindNames());
  EXPECT_EQ(FindKey("optimizer.schedule")->choices(), ScheduleKindNames());
  for (const std::string& mode : FindKey("rollout.update_mode")->choices())
    EXPECT_TRUE(ParseUpdateMode(mode).ok()) << mode;
  for (const std::string& mode : FindKey("mode")->choices()) EXPECT_TRUE(ParseStalenessMode(mode).ok()) << mode;
  for (const std::string& order : FindKey("staleness.order")->choices())
    EXPECT_TRUE(ParseStalenessOrder(order).ok()) << order;
  for (const std::string& breach : FindKey("staleness.breach")->choices())
    EXPECT_TRUE(ParseStalenessBreach(breach).ok()) << breach;
}

TEST(RoleOptionsTest, DefaultsAreUsableByEveryRole) {
  const Config config = ResolvedDefaults();
  const auto task = NewTask(TaskOptionsOf(config));
  ASSERT_TRUE(task.ok());
  EXPECT_THAT(TrainerProblems(TrainerOptionsOf(config, **task, 64, "/tmp")), IsEmpty());
  EXPECT_TRUE(RolloutOptionsOf(config, 64, "rollout-0").Validate().ok());
  const QueueOptions queue = QueueOptionsOf(config, task->get(), 64, RunPaths("/runs/x"));
  EXPECT_EQ(queue.address, "unix:/runs/x/sockets/queue.sock");
  EXPECT_EQ(queue.core.train_seed(3), (*task)->TrainSeed(1, 3));
  EXPECT_EQ(queue.run_fingerprint, RolloutOptionsOf(config, 64, "rollout-0").run_fingerprint);
}

TEST(RoleOptionsTest, SyncModeHasNoBudget) {
  Config config = ResolvedDefaults();
  config.Set("mode", std::string("sync"), Place{});
  const auto task = NewTask(TaskOptionsOf(config));
  EXPECT_EQ(QueueOptionsOf(config, task->get(), 64, RunPaths("/r")).core.staleness.budget, 0u);
  EXPECT_EQ(TrainerOptionsOf(config, **task, 64, "/r").staleness_budget, 0u);
}

// seq-mean-token-sum-norm divides by what an episode may sample, its prompt left out.
TEST(RoleOptionsTest, MostSampledTokensAreThoseOfTheAnswers) {
  for (const auto& [name, tokens] : std::map<std::string, int64_t>{{"sort5", 5}, {"guess20", 20}, {"lake4x4", 10}}) {
    Config config = ResolvedDefaults();
    config.Set("task.name", name, Place{});
    const auto task = NewTask(TaskOptionsOf(config));
    ASSERT_TRUE(task.ok()) << task.status();
    EXPECT_EQ(TrainerOptionsOf(config, **task, 64, "/r").objective.max_tokens, tokens) << name;
  }
}

TEST(RoleOptionsTest, ExpectedManifestIsTheModelsLayout) {
  const ModelShape shape = ShapeOf(ResolvedDefaults(), 64);
  const auto manifest = ExpectedManifest(shape, /*bf16_weights=*/false);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->total_bytes(), static_cast<uint64_t>(4 * shape.ParameterCount()));
  EXPECT_EQ(manifest->tensors(0).name(), "model.embed_tokens.weight");
  EXPECT_EQ(manifest->tensors(0).dtype(), "F32");
  EXPECT_EQ(ExpectedManifest(shape, /*bf16_weights=*/true)->tensors(0).dtype(), "BF16");
}

// A key that nobody reads would be an option that does nothing.
TEST(RoleOptionsTest, EveryKeyIsReadSomewhere) {
  std::string source;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LEEWAY_SOURCE_DIR "/launch")) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".cc" || name.ends_with("_test.cc") || name == "schema_table.cc") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    source += text.str();
  }
  for (const KeyInfo& info : Schema()) {
    EXPECT_TRUE(source.find('"' + info.key() + '"') != std::string::npos) << info.key() << " is read by nobody";
  }
}

TEST(LaunchPlanTest, PlansQueueTrainerAndWorkers) {
  Config config = ResolvedDefaults();
  config.Set("rollout.workers", int64_t{2}, Place{});
  const auto children = PlanChildren(config, RunPaths("/runs/x"), "/bin/of", {});
  ASSERT_TRUE(children.ok());
  std::vector<std::string> names;
  for (const auto& child : *children) names.push_back(child.process.name);
  EXPECT_THAT(names, ElementsAre("queue-0", "trainer-0", "rollout-0", "rollout-1"));
  const Supervisor::Child& last = children->back();
  EXPECT_EQ(last.command.executable, "/bin/of/leeway-rollout");
  EXPECT_THAT(last.command.arguments, ElementsAre("/runs/x/config.toml", "--rank", "1"));
  EXPECT_EQ(last.command.log_path, "/runs/x/logs/rollout-1.log");
  EXPECT_THAT(last.command.environment, IsEmpty());
}

TEST(LaunchPlanTest, TrainerRanksAreToldWhoTheyAre) {
  Config config = ResolvedDefaults();
  config.Set("trainer.ranks", int64_t{2}, Place{});
  const auto children = PlanChildren(config, RunPaths("/runs/x"), "/b", {});
  ASSERT_TRUE(children.ok());
  std::string job;
  for (int rank = 0; rank < 2; ++rank) {
    std::map<std::string, std::string> variables = (*children)[1 + rank].command.environment;
    variables["TORCHELASTIC_RESTART_COUNT"] = "3";  // the supervisor's part
    const auto found = FindRankEnvironment(variables);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->rank, rank);
    EXPECT_EQ(found->size, 2);
    if (rank == 0) job = found->attempt;
    EXPECT_EQ(found->attempt, job);
  }
  // Another job of the same run is another generation.
  const auto later = PlanChildren(config, RunPaths("/runs/x"), "/b", {});
  EXPECT_NE((*later)[1].command.environment.at("TORCHELASTIC_RUN_ID"),
            (*children)[1].command.environment.at("TORCHELASTIC_RUN_ID"));
}

TEST(LaunchPlanTest, FailpointsAreByRoleByRankAndByStart) {
  Config config = ResolvedDefaults();
  config.Set("rollout.workers", int64_t{2}, Place{});
  const auto children = PlanChildren(config, RunPaths("/r"), "/b",
                                     {{"LEEWAY_FAILPOINTS_TRAINER", "b=hang"},
                                      {"LEEWAY_FAILPOINTS_ROLLOUT", "a=kill;;c=error@2"},
                                      {"LEEWAY_FAILPOINTS_ROLLOUT_1", ""}});
  ASSERT_TRUE(children.ok());
  const std::string variable = "LEEWAY_FAILPOINTS";
  EXPECT_THAT((*children)[0].environment_of_start, IsEmpty());
  EXPECT_THAT((*children)[1].environment_of_start, ElementsAre(ElementsAre(Pair(variable, "b=hang"))));
  EXPECT_THAT((*children)[2].environment_of_start,
              ElementsAre(ElementsAre(Pair(variable, "a=kill")), IsEmpty(), ElementsAre(Pair(variable, "c=error@2"))));
  EXPECT_THAT((*children)[3].environment_of_start, ElementsAre(IsEmpty()));
  const auto bad = PlanChildren(config, RunPaths("/r"), "/b", {{"LEEWAY_FAILPOINTS_QUEUE", "a=kill;b=explode"}});
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.status().message()), AllOf(HasSubstr("LEEWAY_FAILPOINTS_QUEUE"), HasSubstr("explode")));
}

}  // namespace
}  // namespace leeway
