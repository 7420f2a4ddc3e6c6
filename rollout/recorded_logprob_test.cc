// What the engine records is what the trainer's pass recomputes on the same weights, to the bit; on the built-in tasks,
// through the whole path from ticket to trajectory, with environments on threads.

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/state_clock.h"
#include "envs/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rollout/doorbell.h"
#include "rollout/engine/naive_generator.h"
#include "rollout/worker_loop.h"
#include "tokenizer/tokenizer.h"
#include "weightsync/fake_weight_subscriber.h"

namespace leeway {
namespace {

ModelShape Shape() {
  ModelShape shape = TinyShape();
  shape.max_positions = 256;
  return shape;
}

std::vector<float> Weights() {
  std::vector<float> weights = RandomParameters(Shape(), 3);
  for (float& weight : weights) weight = weight == 1.0f ? 1.0f : 10.0f * weight;
  return weights;
}

// Plays `tickets` tickets of `members` members and returns the trajectories by (ticket, member).
std::map<std::pair<uint64_t, uint32_t>, v1::Trajectory> Play(const Task& task, const Tokenizer& tokenizer,
                                                             int compute_threads, float temperature,
                                                             EnvironmentExecutor* executor, Doorbell* bell) {
  RolloutOptions options;
  options.seed = 17;
  options.shape = Shape();
  options.temperature = temperature;
  options.max_episodes = 24;
  ParallelFor parallel(compute_threads);
  Transformer<float> transformer(options.shape, &parallel);
  FakeWeightSubscriber subscriber;
  StateClock state_clock;
  std::map<std::pair<uint64_t, uint32_t>, v1::Trajectory> played;
  WorkerLoop::Dependencies dependencies;
  dependencies.task = &task;
  dependencies.tokenizer = &tokenizer;
  dependencies.weights = &subscriber;
  dependencies.executor = executor;
  dependencies.transformer = &transformer;
  dependencies.parallel = &parallel;
  dependencies.state_clock = &state_clock;
  dependencies.push = [&](v1::Trajectory trajectory) {
    const std::pair<uint64_t, uint32_t> key(trajectory.key().ticket(), trajectory.key().member());
    played[key] = std::move(trajectory);
  };
  WorkerLoop loop(options, dependencies);
  v1::WeightsVersion version;
  version.set_lineage(1);
  version.set_version(1);
  subscriber.Deliver(version, Weights());
  v1::AcquireTicketsResponse response;
  constexpr uint64_t kTickets = 6;
  constexpr uint32_t kMembers = 8;
  for (uint64_t id = 1; id <= kTickets; ++id) {
    v1::Ticket* ticket = response.add_tickets();
    ticket->set_id(id);
    ticket->set_issue(1);
    ticket->set_task(task.name());
    ticket->set_seed(task.TrainSeed(options.seed, id - 1));
    for (uint32_t member = 0; member < kMembers; ++member) ticket->add_members(member);
    *ticket->mutable_weights() = version;
  }
  loop.AddTickets(response, loop.weights());
  while (played.size() < kTickets * kMembers) {
    absl::StatusOr<bool> worked = loop.Iterate();
    EXPECT_TRUE(worked.ok()) << worked.status();
    if (!worked.ok()) break;
    if (!*worked) bell->Wait(absl::Milliseconds(100));
  }
  return played;
}

class RecordedLogprobTest : public ::testing::TestWithParam<std::tuple<std::string, float>> {};

TEST_P(RecordedLogprobTest, EqualsTheTrainersPass) {
  const auto& [name, temperature] = GetParam();
  TaskOptions task_options;
  task_options.name = name;
  const std::unique_ptr<Task> task = *NewTask(task_options);
  const std::unique_ptr<Tokenizer> tokenizer = *NewTokenizer(task->vocabulary());
  Doorbell bell;
  std::map<std::pair<uint64_t, uint32_t>, v1::Trajectory> played;
  {
    ThreadedEnvironmentExecutor executor(3, [&] { bell.Ring(); });
    played = Play(*task, *tokenizer, /*compute_threads=*/2, temperature, &executor, &bell);
  }

  // The trainer's side, from the trajectories alone.
  PackedSequences packed;
  std::vector<ScoredPosition> positions;
  std::vector<std::vector<int32_t>> legal_sets;
  std::vector<float> recorded;
  for (const auto& [key, trajectory] : played) {
    ASSERT_EQ(trajectory.outcome(), v1::COMPLETED) << trajectory.ShortDebugString();
    EXPECT_EQ(trajectory.score().status(), v1::Score::SCORED);
    EXPECT_EQ(trajectory.spans(0).ids(0), tokenizer->beginning_id());
    for (const v1::Span& span : trajectory.spans()) {
      if (span.sampled() && span.legal_ids_size() > 0)
        legal_sets.emplace_back(span.legal_ids().begin(), span.legal_ids().end());
      for (int i = 0; i < span.ids_size(); ++i) {
        if (span.sampled()) {
          positions.push_back({static_cast<int64_t>(packed.tokens.size()) - 1, span.ids(i), span.temperature(),
                               span.legal_ids_size() > 0 ? static_cast<int32_t>(legal_sets.size()) - 1 : -1});
          recorded.push_back(span.logprobs(i));
        }
        packed.tokens.push_back(span.ids(i));
      }
    }
    packed.starts.push_back(static_cast<int64_t>(packed.tokens.size()));
  }
  ParallelFor parallel(1);
  Transformer<float> transformer(Shape(), &parallel);
  transformer.SetParameters(Weights());
  PositionScores<float> scores;
  ASSERT_TRUE(transformer.Score(packed, positions, legal_sets, /*keep_activations=*/true, &scores).ok());
  EXPECT_GT(recorded.size(), played.size() - 1);
  EXPECT_EQ(scores.logprobs, recorded);

  // And nothing depends on threads: environments inline, one compute thread.
  InlineEnvironmentExecutor inline_executor;
  const auto again = Play(*task, *tokenizer, /*compute_threads=*/1, temperature, &inline_executor, &bell);
  ASSERT_EQ(again.size(), played.size());
  for (const auto& [key, trajectory] : played) {
    v1::Trajectory left = trajectory;
    v1::Trajectory right = again.at(key);
    left.clear_environment_seconds();
    right.clear_environment_seconds();
    EXPECT_EQ(left.SerializeAsString(), right.SerializeAsString());
  }
}

INSTANTIATE_TEST_SUITE_P(Tasks, RecordedLogprobTest,
                         ::testing::Combine(::testing::Values("sort5", "reverse5", "add2", "lake4x4", "guess20"),
                                            ::testing::Values(1.0f, 0.7f)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + (std::get<1>(info.param) == 1.0f ? "" : "_tempered");
                         });

}  // namespace
}  // namespace leeway
