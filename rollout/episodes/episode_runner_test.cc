#include "rollout/episodes/episode_runner.h"

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fake_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rollout/engine/naive_generator.h"
#include "rollout/episodes/scripted_task.h"
#include "tokenizer/byte_tokenizer.h"
#include "tokenizer/character_tokenizer.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Script = ScriptedTask::Script;

constexpr uint64_t kSeed = 31;

// Holds calls until the test answers them.
class PuppetExecutor : public EnvironmentExecutor {
 public:
  void Post(std::vector<EnvironmentCall>* calls) override {
    for (EnvironmentCall& call : *calls) held.push_back(std::move(call));
    calls->clear();
  }
  void Take(std::vector<EnvironmentAnswer>* answers) override {
    for (EnvironmentAnswer& answer : ready) answers->push_back(std::move(answer));
    ready.clear();
  }
  MonotonicTime NextDeadline() const override { return MonotonicTime::InfiniteFuture(); }
  void Answer(size_t index) { ready.push_back(internal::RunEnvironmentCall(held.at(index), RealClock())); }

  std::vector<EnvironmentCall> held;
  std::vector<EnvironmentAnswer> ready;
};

std::shared_ptr<const v1::Ticket> MakeTicket(uint64_t id, bool evaluation = false, uint32_t issue = 1) {
  auto ticket = std::make_shared<v1::Ticket>();
  ticket->set_id(id);
  ticket->set_issue(issue);
  ticket->set_task("scripted");
  ticket->set_seed(500 + id);
  ticket->set_evaluation(evaluation);
  return ticket;
}

// Everything that an episode needs, driven by hand.
class Stage {
 public:
  explicit Stage(Script script = {}, EpisodeRunnerOptions options = {}, EnvironmentExecutor* executor = nullptr)
      : task(std::move(script)), inline_executor(&clock), parallel(1), transformer(TinyShape(), &parallel) {
    EngineOptions engine_options;
    engine_options.seed = kSeed;
    engine = std::make_unique<Engine>(engine_options, &transformer, &parallel);
    EXPECT_TRUE(engine->Swap({1, 1}, TinyWeights(1), false).ok());
    options.seed = kSeed;
    runner = std::make_unique<EpisodeRunner>(options, &task, &tokenizer, engine.get(),
                                             executor == nullptr ? &inline_executor : executor, &clock);
  }

  // Until nothing moves any more, time standing still.
  void Settle() {
    std::vector<FinishedTurn> finished;
    while (runner->Poll() || engine->runnable()) {
      ASSERT_TRUE(engine->Step(&finished).ok());
      runner->HandleFinishedTurns(finished);
    }
    runner->TakeFinished(&trajectories);
  }
  // One episode from start to end.
  v1::Trajectory Play(std::shared_ptr<const v1::Ticket> ticket = MakeTicket(1), uint32_t member = 0) {
    runner->Start(std::move(ticket), member);
    Settle();
    EXPECT_EQ(trajectories.size(), 1u);
    EXPECT_EQ(runner->running_episodes(), 0);
    EXPECT_EQ(engine->open_episodes(), 0);
    v1::Trajectory trajectory = trajectories.empty() ? v1::Trajectory() : trajectories.back();
    trajectories.clear();
    return trajectory;
  }

  FakeClock clock;
  CharacterTokenizer tokenizer;
  ScriptedTask task;
  InlineEnvironmentExecutor inline_executor;
  ParallelFor parallel;
  Transformer<float> transformer;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<EpisodeRunner> runner;
  std::vector<v1::Trajectory> trajectories;
};

std::vector<int32_t> IdsOf(const v1::Trajectory& trajectory) {
  std::vector<int32_t> ids;
  for (const v1::Span& span : trajectory.spans()) ids.insert(ids.end(), span.ids().begin(), span.ids().end());
  return ids;
}

void ExpectFailure(const v1::Trajectory& trajectory, v1::Failure::Fault fault, const std::string& code, bool retryable,
                   const std::string& text) {
  EXPECT_EQ(trajectory.outcome(), v1::FAILED);
  EXPECT_EQ(trajectory.failure().fault(), fault) << v1::Failure::Fault_Name(trajectory.failure().fault());
  EXPECT_EQ(trajectory.failure().code(), code);
  EXPECT_EQ(trajectory.failure().retryable(), retryable);
  EXPECT_THAT(trajectory.failure().message(), HasSubstr(text));
  EXPECT_NE(trajectory.score().status(), v1::Score::SCORED);
  EXPECT_FALSE(trajectory.score().has_reward()) << "a failure never becomes a reward";
}

TEST(EpisodeRunnerTest, TrajectoryHoldsTheVeryTokens) {
  std::vector<std::string> answers;
  Script script;
  script.reset = [](const EpisodeKey&, uint64_t seed) { return ScriptedTask::Ask(absl::StrCat("n=", seed, ":"), 4); };
  script.step = [&](const EpisodeKey&, int call, const std::string& answer) {
    answers.push_back(answer);
    return call < 3 ? ScriptedTask::Continue(call == 1 ? "" : "go", 0.25) : ScriptedTask::End(0.5);
  };
  Stage stage(script);
  const v1::Trajectory trajectory = stage.Play(MakeTicket(4, false, 2), 3);
  EXPECT_EQ(trajectory.key().ticket(), 4u);
  EXPECT_EQ(trajectory.key().issue(), 2u);
  EXPECT_EQ(trajectory.key().member(), 3u);
  EXPECT_EQ(trajectory.key().attempt(), 1u);
  EXPECT_FALSE(trajectory.evaluation());
  EXPECT_EQ(trajectory.outcome(), v1::COMPLETED);
  EXPECT_EQ(trajectory.terminal(), v1::TERMINATED);
  EXPECT_EQ(trajectory.stop_reason(), v1::ENVIRONMENT_DONE);
  EXPECT_EQ(trajectory.score().status(), v1::Score::SCORED);
  EXPECT_EQ(trajectory.score().reward(), 1.0);
  EXPECT_EQ(trajectory.turns(), 3u);
  EXPECT_TRUE(trajectory.kv_cache_consistent());
  EXPECT_FALSE(trajectory.has_failure());

  // given, sampled, sampled (an observation without text adds no span), given, sampled
  std::vector<bool> kinds;
  for (const v1::Span& span : trajectory.spans()) kinds.push_back(span.sampled());
  ASSERT_THAT(kinds, ElementsAre(false, true, true, false, true));
  std::vector<int32_t> first = *stage.tokenizer.Encode("n=504:");
  first.insert(first.begin(), stage.tokenizer.beginning_id());
  EXPECT_THAT(trajectory.spans(0).ids(), ::testing::ElementsAreArray(first));
  EXPECT_THAT(trajectory.spans(3).ids(), ::testing::ElementsAreArray(*stage.tokenizer.Encode("go")));
  EXPECT_EQ(trajectory.spans(0).logprobs_size() + trajectory.spans(0).versions_size(), 0);

  // Every sampled token is what the weights make of all ids before it; the environment heard its text.
  NaiveGenerator naive(kSeed);
  std::vector<int32_t> ids;
  uint32_t turn = 0;
  for (const v1::Span& span : trajectory.spans()) {
    if (span.sampled()) {
      ASSERT_EQ(span.logprobs_size(), span.ids_size());
      ASSERT_EQ(span.versions_size(), 1);
      EXPECT_EQ(span.versions(0).count(), static_cast<uint32_t>(span.ids_size()));
      EXPECT_EQ(span.versions(0).weights().version(), 1u);
      EXPECT_EQ(span.temperature(), 1.0f);
      EXPECT_EQ(span.legal_ids_size(), 0);
      EXPECT_EQ(answers[turn], *stage.tokenizer.Decode(span.ids()));
    }
    for (int i = 0; i < span.ids_size(); ++i) {
      if (span.sampled()) {
        const SampledToken truth = naive.Next(1, ids, {RandomPurpose::kSampling, 4, 3}, turn, i, {});
        ASSERT_EQ(span.ids(i), truth.id);
        ASSERT_EQ(span.logprobs(i), truth.logprob);
      }
      ids.push_back(span.ids(i));
    }
    turn += span.sampled() ? 1 : 0;
  }
}

TEST(EpisodeRunnerTest, LegalSetAndTemperatureAreRecorded) {
  Script script;
  script.reset = [](const EpisodeKey&, uint64_t) {
    Observation observation = ScriptedTask::Ask("0", 8);
    observation.legal_characters = "UDLR";
    observation.end_of_text_is_legal = false;
    return observation;
  };
  EpisodeRunnerOptions options;
  options.training_sampling.temperature = 0.5f;
  const v1::Trajectory trajectory = Stage(script, options).Play();
  const v1::Span& span = trajectory.spans(1);
  CharacterTokenizer tokenizer;
  const std::vector<int32_t> legal = *LegalIds(tokenizer, "UDLR", false);
  EXPECT_THAT(span.legal_ids(), ::testing::ElementsAreArray(legal));
  EXPECT_EQ(span.temperature(), 0.5f);
  EXPECT_EQ(span.ids_size(), 8) << "without end-of-text the answer fills its length";
  for (const int32_t id : span.ids()) EXPECT_THAT(legal, ::testing::Contains(id));
}

TEST(EpisodeRunnerTest, PaddedVocabularyIsNeverSampledFrom) {
  ModelShape shape = TinyShape();
  shape.vocabulary = 272;  // the byte vocabulary has 258
  ByteTokenizer tokenizer;
  ScriptedTask task({});
  FakeClock clock;
  InlineEnvironmentExecutor executor(&clock);
  ParallelFor parallel(1);
  Transformer<float> transformer(shape, &parallel);
  Engine engine({}, &transformer, &parallel);
  ASSERT_TRUE(engine.Swap({1, 1}, RandomParameters(shape, 1), false).ok());
  EpisodeRunner runner({}, &task, &tokenizer, &engine, &executor, &clock);
  runner.Start(MakeTicket(1), 0);
  runner.Poll();
  std::vector<FinishedTurn> finished;
  while (engine.runnable()) {
    ASSERT_TRUE(engine.Step(&finished).ok());
    runner.HandleFinishedTurns(finished);
  }
  runner.Poll();
  std::vector<v1::Trajectory> trajectories;
  runner.TakeFinished(&trajectories);
  ASSERT_EQ(trajectories.size(), 1u);
  ASSERT_EQ(trajectories[0].spans(1).legal_ids_size(), 258);
  EXPECT_EQ(trajectories[0].spans(1).legal_ids(257), 257);
}

TEST(EpisodeRunnerTest, RewardIsWhatWasGivenAndNothingElse) {
  const auto play = [](std::vector<std::optional<double>> rewards, EpisodeState end = EpisodeState::kTerminated) {
    Script script;
    script.step = [rewards, end](const EpisodeKey&, int call, const std::string&) {
      const std::optional<double> reward = rewards[static_cast<size_t>(call) - 1];
      return call == static_cast<int>(rewards.size()) ? ScriptedTask::End(reward, end)
                                                      : ScriptedTask::Continue("1", reward);
    };
    return Stage(script).Play();
  };
  v1::Trajectory trajectory = play({std::nullopt, std::nullopt});
  EXPECT_EQ(trajectory.outcome(), v1::COMPLETED);
  EXPECT_EQ(trajectory.score().status(), v1::Score::UNSCORED);
  EXPECT_FALSE(trajectory.score().has_reward());

  trajectory = play({std::nullopt, 0.0}, EpisodeState::kTruncated);
  EXPECT_EQ(trajectory.terminal(), v1::TRUNCATED);
  EXPECT_EQ(trajectory.score().status(), v1::Score::SCORED);
  ASSERT_TRUE(trajectory.score().has_reward());
  EXPECT_EQ(trajectory.score().reward(), 0.0);

  EXPECT_EQ(play({0.5, std::nullopt, -0.125}).score().reward(), 0.375);

  const double infinity = std::numeric_limits<double>::infinity();
  for (std::vector<std::optional<double>> rewards :
       std::vector<std::vector<std::optional<double>>>{{std::nan("")}, {infinity}, {1.0, -infinity}, {1e308, 1e308}}) {
    trajectory = play(rewards);
    ExpectFailure(trajectory, v1::Failure::SCORER, "reward_not_finite", false, "was given the reward");
    EXPECT_EQ(trajectory.score().status(), v1::Score::SCORING_FAILED);
  }
}

TEST(EpisodeRunnerTest, FailuresAreNamed) {
  const auto reset_with = [](std::function<absl::StatusOr<Observation>()> reset) {
    Script script;
    script.reset = [reset](const EpisodeKey&, uint64_t) { return reset(); };
    return script;
  };
  Script script = reset_with([] { return absl::UnavailableError("no sandbox"); });
  ExpectFailure(Stage(script).Play(), v1::Failure::ENVIRONMENT, "reset_failed", true, "no sandbox");
  script = reset_with([]() -> absl::StatusOr<Observation> { throw std::runtime_error("boom"); });
  ExpectFailure(Stage(script).Play(), v1::Failure::ENVIRONMENT, "reset_failed", true, "threw: boom");
  script = {};
  script.step = [](const EpisodeKey&, int, const std::string&) { return absl::InternalError("tool crashed"); };
  ExpectFailure(Stage(script).Play(), v1::Failure::ENVIRONMENT, "step_failed", true, "tool crashed");
  script = reset_with([] { return ScriptedTask::Ask("caf\xc3\xa9"); });
  ExpectFailure(Stage(script).Play(), v1::Failure::ENVIRONMENT, "text_not_encodable", false, "at byte 3");
  script = reset_with([] {
    Observation observation = ScriptedTask::Ask("1");
    observation.legal_characters = "";
    observation.end_of_text_is_legal = false;
    return observation;
  });
  ExpectFailure(Stage(script).Play(), v1::Failure::ENVIRONMENT, "legal_set_invalid", false, "");
  script = reset_with([] { return ScriptedTask::Ask("1", 0); });
  ExpectFailure(Stage(script).Play(), v1::Failure::ENVIRONMENT, "answer_limit_invalid", false, "0 answer tokens");
  script = reset_with([] { return ScriptedTask::Ask(std::string(64, '1')); });
  ExpectFailure(Stage(script).Play(), v1::Failure::ENVIRONMENT, "prompt_too_long", false, "raise model.max_positions");
  script = {};
  script.name = "other";
  ExpectFailure(Stage(script).Play(), v1::Failure::PROTOCOL, "unknown_task", false, "this worker plays \"other\"");

  Stage stage;
  std::vector<float> broken(TinyWeights(1).size(), std::nanf(""));
  ASSERT_TRUE(stage.engine->Swap({1, 2}, broken, false).ok());
  ExpectFailure(stage.Play(), v1::Failure::POLICY_SERVER, "logits_not_finite", false, "weights (1, 2)");
}

TEST(EpisodeRunnerTest, FailedAttemptIsRepeatedWithTheSameTokens) {
  Script script;
  script.step = [](const EpisodeKey& key, int, const std::string&) -> absl::StatusOr<StepResult> {
    if (key.ticket == 2 && key.attempt < 3) return absl::UnavailableError("flaky");
    return ScriptedTask::End(1.0);
  };
  EpisodeRunnerOptions options;
  options.limits.max_attempts = 3;
  Stage stage(script, options);
  const v1::Trajectory repeated = stage.Play(MakeTicket(2));
  EXPECT_EQ(repeated.outcome(), v1::COMPLETED);
  EXPECT_EQ(repeated.key().attempt(), 3u);
  EXPECT_EQ(stage.runner->counters().retries, 2);
  EXPECT_EQ(stage.runner->counters().failures.at("step_failed"), 2);

  const v1::Trajectory at_once = Stage().Play(MakeTicket(2, false, /*issue=*/7));
  EXPECT_EQ(IdsOf(repeated), IdsOf(at_once));

  options.limits.max_attempts = 2;
  const v1::Trajectory failed = Stage(script, options).Play(MakeTicket(2));
  ExpectFailure(failed, v1::Failure::ENVIRONMENT, "step_failed", true, "flaky");
  EXPECT_EQ(failed.key().attempt(), 2u);
}

TEST(EpisodeRunnerTest, NoSlotLeaksOverManyFailures) {
  Script script;
  script.step = [](const EpisodeKey& key, int, const std::string&) -> absl::StatusOr<StepResult> {
    if (key.member % 2 == 0) return absl::InternalError("always");
    return ScriptedTask::End(0.0);
  };
  Stage stage(script);
  for (uint64_t ticket = 1; ticket <= 50; ++ticket) {
    for (uint32_t member = 0; member < 8; ++member) stage.runner->Start(MakeTicket(ticket), member);
    stage.Settle();
    EXPECT_EQ(stage.runner->running_episodes(), 0);
    EXPECT_EQ(stage.engine->open_episodes(), 0);
  }
  EXPECT_EQ(stage.trajectories.size(), 400u);
  EXPECT_EQ(stage.runner->counters().failed, 200);
  EXPECT_EQ(stage.runner->counters().completed, 200);
}

TEST(EpisodeRunnerTest, CallsHaveDeadlines) {
  FakeClock* clock = nullptr;
  int slow_call = 0;
  absl::Duration time;
  Script script;
  script.reset = [&](const EpisodeKey&, uint64_t) {
    if (slow_call == 0) clock->Advance(time);
    return ScriptedTask::Ask("1");
  };
  script.step = [&](const EpisodeKey&, int call, const std::string&) {
    if (slow_call == call || slow_call == -1) clock->Advance(time);
    return call < 5 ? ScriptedTask::Continue("1") : ScriptedTask::End(1.0);
  };
  EpisodeRunnerOptions options;
  options.limits = {absl::Seconds(2), absl::Seconds(3), absl::Seconds(10), 1};
  const auto play = [&](int call, absl::Duration takes) {
    Stage stage(script, options);
    clock = &stage.clock;
    slow_call = call;
    time = takes;
    return stage.Play();
  };
  EXPECT_EQ(play(0, absl::Seconds(2)).outcome(), v1::COMPLETED);
  ExpectFailure(play(0, absl::Milliseconds(2001)), v1::Failure::TIMEOUT, "reset_timeout", true,
                "reset gave no answer within 2s");
  EXPECT_EQ(play(2, absl::Seconds(3)).outcome(), v1::COMPLETED);
  ExpectFailure(play(2, absl::Milliseconds(3001)), v1::Failure::TIMEOUT, "step_timeout", true,
                "step of turn 2 gave no answer within 3s");
  // Five steps of 2 s make the 10 s of an episode exactly; a bit more each is too much.
  v1::Trajectory trajectory = play(-1, absl::Seconds(2));
  EXPECT_EQ(trajectory.outcome(), v1::COMPLETED);
  EXPECT_DOUBLE_EQ(trajectory.environment_seconds(), 10.0);
  trajectory = play(-1, absl::Milliseconds(2100));
  ExpectFailure(trajectory, v1::Failure::TIMEOUT, "episode_timeout", true, "10s in all");
  EXPECT_DOUBLE_EQ(trajectory.environment_seconds(), 10.0);
}

TEST(EpisodeRunnerTest, SimulatedLatencyIsATimer) {
  Script script;
  script.latency = [](const EpisodeKey& key, int call) {
    return call == 0 ? absl::Seconds(1 + key.member) : absl::Seconds(key.member == 1 ? 100 : 0);
  };
  EpisodeRunnerOptions options;
  options.limits.step_timeout = absl::Seconds(30);
  options.limits.max_attempts = 1;
  Stage stage(script, options);
  const MonotonicTime begin = stage.clock.Now();
  stage.runner->Start(MakeTicket(1), 0);
  stage.runner->Start(MakeTicket(1), 1);
  stage.Settle();
  EXPECT_EQ(stage.engine->counters().tokens_generated, 0);
  EXPECT_EQ(stage.runner->NextTimer(), begin + absl::Seconds(1));
  EXPECT_THAT(stage.runner->OldestEnvironmentWait().description, HasSubstr("scripted: reset of ticket 1 member 0"));
  stage.clock.Advance(absl::Milliseconds(999));
  stage.Settle();
  EXPECT_EQ(stage.engine->counters().tokens_generated, 0);
  stage.clock.Advance(absl::Milliseconds(1));
  stage.Settle();
  ASSERT_EQ(stage.trajectories.size(), 1u);
  EXPECT_DOUBLE_EQ(stage.trajectories[0].environment_seconds(), 1.0);
  // Member 1 is due at 2 s; its step is deemed to take 100 s, which ends at the step's deadline.
  stage.clock.Advance(absl::Seconds(1));
  stage.Settle();
  EXPECT_EQ(stage.runner->NextTimer(), begin + absl::Seconds(32));
  stage.clock.Advance(absl::Seconds(30));
  stage.Settle();
  ASSERT_EQ(stage.trajectories.size(), 2u);
  ExpectFailure(stage.trajectories[1], v1::Failure::TIMEOUT, "step_timeout", true, "within 30s");
  EXPECT_EQ(stage.runner->NextTimer(), MonotonicTime::InfiniteFuture());
}

TEST(EpisodeRunnerTest, LateAnswersOfAbandonedEpisodesAreIgnored) {
  PuppetExecutor puppet;
  Script script;
  script.reset = [](const EpisodeKey& key, uint64_t) { return ScriptedTask::Ask(absl::StrCat(key.ticket)); };
  Stage stage(script, {}, &puppet);
  stage.runner->Start(MakeTicket(1), 0);
  stage.Settle();
  ASSERT_EQ(puppet.held.size(), 1u);
  stage.runner->AbandonAll();
  EXPECT_EQ(stage.runner->running_episodes(), 0);
  EXPECT_EQ(stage.engine->open_episodes(), 0);
  // The slot is used again before the answer comes.
  stage.runner->Start(MakeTicket(2), 0);
  stage.Settle();
  puppet.Answer(0);
  stage.Settle();
  EXPECT_EQ(stage.engine->counters().tokens_generated, 0);
  puppet.Answer(1);
  stage.Settle();
  puppet.Answer(2);
  stage.Settle();
  ASSERT_EQ(stage.trajectories.size(), 1u);
  EXPECT_EQ(stage.trajectories[0].key().ticket(), 2u);
  EXPECT_EQ(stage.trajectories[0].spans(0).ids(1), stage.tokenizer.Encode("2")->front());
}

TEST(EpisodeRunnerTest, TicketsAreAbandonedAndFailedByIssue) {
  PuppetExecutor puppet;
  Stage stage({}, {}, &puppet);
  stage.runner->Start(MakeTicket(1), 0);
  stage.runner->Start(MakeTicket(1), 1);
  stage.runner->Start(MakeTicket(1, /*evaluation=*/true), 0);
  stage.runner->Start(MakeTicket(1, false, /*issue=*/2), 0);
  stage.runner->AbandonTicket(*MakeTicket(1, false, 2));
  EXPECT_EQ(stage.runner->running_episodes(), 3);
  stage.runner->FailTicket(*MakeTicket(1), "deadline", "10s are over");
  EXPECT_EQ(stage.runner->running_episodes(), 1);
  stage.Settle();
  ASSERT_EQ(stage.trajectories.size(), 2u);
  for (const v1::Trajectory& trajectory : stage.trajectories) {
    ExpectFailure(trajectory, v1::Failure::TIMEOUT, "deadline", false, "10s are over");
    EXPECT_FALSE(trajectory.evaluation());
  }
}

TEST(EpisodeRunnerTest, LimitsOfContextAndTurnsTruncate) {
  Script script;
  script.step = [](const EpisodeKey&, int, const std::string&) {
    return ScriptedTask::Continue(std::string(10, '7'), 0.5);
  };
  script.max_turns = 1000;
  v1::Trajectory trajectory = Stage(script).Play();
  EXPECT_EQ(trajectory.outcome(), v1::COMPLETED);
  EXPECT_EQ(trajectory.terminal(), v1::TRUNCATED);
  EXPECT_EQ(trajectory.stop_reason(), v1::CONTEXT_FULL);
  EXPECT_LE(IdsOf(trajectory).size(), 64u);
  EXPECT_TRUE(trajectory.spans(trajectory.spans_size() - 1).sampled());
  EXPECT_EQ(trajectory.score().reward(), 0.5 * trajectory.turns()) << "every answered turn was rewarded";

  script.max_turns = 2;
  trajectory = Stage(script).Play();
  EXPECT_EQ(trajectory.terminal(), v1::TRUNCATED);
  EXPECT_EQ(trajectory.stop_reason(), v1::TURN_LIMIT);
  EXPECT_EQ(trajectory.turns(), 2u);
  EXPECT_EQ(trajectory.score().reward(), 1.0);
}

TEST(EpisodeRunnerTest, EvaluationDrawsItsOwnNumbersAndSampling) {
  Script script;
  script.reset = [](const EpisodeKey&, uint64_t) { return ScriptedTask::Ask("1", 12); };
  EpisodeRunnerOptions options;
  options.evaluation_sampling.greedy = true;
  const v1::Trajectory training = Stage(script).Play(MakeTicket(3));
  const v1::Trajectory evaluation = Stage(script).Play(MakeTicket(3, /*evaluation=*/true));
  EXPECT_TRUE(evaluation.evaluation());
  EXPECT_NE(IdsOf(training), IdsOf(evaluation));
  const v1::Trajectory greedy = Stage(script, options).Play(MakeTicket(3, true));
  EXPECT_EQ(IdsOf(greedy), IdsOf(Stage(script, options).Play(MakeTicket(4, true)))) << "greedy uses no random numbers";
}

}  // namespace
}  // namespace leeway
