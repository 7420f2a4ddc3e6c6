#include "rollout/engine/engine.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rollout/engine/naive_generator.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 7;
constexpr WeightsId kFirst{1, 1};

// What one turn gave, copied out of the engine.
struct Turn {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  v1::StopReason stop = v1::STOP_REASON_UNSPECIFIED;
  friend bool operator==(const Turn&, const Turn&) = default;
};

// An episode's script: what is said before each turn, and how much may be answered.
struct Script {
  EpisodeIdentity identity;
  std::vector<std::vector<int32_t>> prompts;
  TurnRequest request;
  int arrival = 0;  // step at which it is opened
};

// Scripts that differ in everything: lengths, turns, legal sets, temperatures.
std::vector<Script> SomeScripts(int count) {
  std::vector<Script> scripts;
  for (int i = 0; i < count; ++i) {
    RandomStream random({99, RandomPurpose::kTask, uint64_t(i)});
    Script script;
    script.identity = {RandomPurpose::kSampling, uint64_t(1 + i / 4), uint32_t(i % 4)};
    const int turns = 1 + static_cast<int>(random.NextBelow(3));
    for (int turn = 0; turn < turns; ++turn) {
      std::vector<int32_t> prompt;
      const int length = (turn == 0 ? 1 : 0) + static_cast<int>(random.NextBelow(9));
      for (int k = 0; k < length; ++k) prompt.push_back(static_cast<int32_t>(1 + random.NextBelow(63)));
      script.prompts.push_back(prompt);
    }
    script.request.max_new_tokens = 1 + static_cast<int>(random.NextBelow(8));
    script.request.sampling.temperature = i % 3 == 0 ? 0.7f : 1.0f;
    if (i % 2 == 0)
      script.request.legal_ids = std::make_shared<std::vector<int32_t>>(std::vector<int32_t>{0, 5, 6, 7, 20, 63});
    script.arrival = static_cast<int>(random.NextBelow(20));
    scripts.push_back(script);
  }
  return scripts;
}

class EngineTest : public ::testing::Test {
 protected:
  explicit EngineTest(int threads = 1) : parallel_(threads), transformer_(TinyShape(), &parallel_) {}

  std::unique_ptr<Engine> MakeEngine(EngineOptions options = {}) {
    options.seed = kSeed;
    auto engine = std::make_unique<Engine>(options, &transformer_, &parallel_);
    EXPECT_TRUE(engine->Swap(kFirst, TinyWeights(1), /*same_bytes=*/false).ok());
    return engine;
  }

  // Plays all scripts, each from its step of arrival on; returns the turns of each.
  std::vector<std::vector<Turn>> Play(Engine* engine, const std::vector<Script>& scripts, bool at_once = false) {
    std::vector<std::vector<Turn>> results(scripts.size());
    std::map<EpisodeHandle, size_t> open;
    size_t done = 0;
    std::vector<FinishedTurn> finished;
    for (int step = 0; done < scripts.size() && step < 10'000; ++step) {
      for (size_t i = 0; i < scripts.size(); ++i) {
        if ((at_once ? 0 : scripts[i].arrival) != step) continue;
        const EpisodeHandle handle = engine->OpenEpisode(scripts[i].identity);
        EXPECT_TRUE(engine->StartTurn(handle, scripts[i].prompts[0], scripts[i].request).ok());
        open[handle] = i;
      }
      EXPECT_TRUE(engine->Step(&finished).ok());
      for (const FinishedTurn& turn : finished) {
        EXPECT_TRUE(turn.status.ok());
        EXPECT_TRUE(turn.kv_cache_consistent);
        const size_t i = open.at(turn.episode);
        results[i].push_back(
            {{turn.ids.begin(), turn.ids.end()}, {turn.logprobs.begin(), turn.logprobs.end()}, turn.stop});
        if (results[i].size() == scripts[i].prompts.size()) {
          engine->Close(turn.episode);
          ++done;
        } else {
          EXPECT_TRUE(engine->StartTurn(turn.episode, scripts[i].prompts[results[i].size()], scripts[i].request).ok());
        }
      }
    }
    EXPECT_EQ(done, scripts.size());
    EXPECT_EQ(engine->open_episodes(), 0);
    EXPECT_EQ(engine->running_turns() + engine->waiting_turns(), 0);
    return results;
  }

  // The same by the naive generator.
  std::vector<Turn> Truth(const Script& script) {
    NaiveGenerator naive(kSeed);
    std::vector<Turn> turns;
    std::vector<int32_t> ids;
    for (uint32_t interaction = 0; interaction < script.prompts.size(); ++interaction) {
      ids.insert(ids.end(), script.prompts[interaction].begin(), script.prompts[interaction].end());
      Turn turn;
      while (turn.stop == v1::STOP_REASON_UNSPECIFIED) {
        const SampledToken token = naive.Next(1, ids, script.identity, interaction, turn.ids.size(), script.request);
        turn.ids.push_back(token.id);
        turn.logprobs.push_back(token.logprob);
        ids.push_back(token.id);
        if (token.id == 0) {
          turn.stop = v1::END_OF_TEXT;
        } else if (static_cast<int>(turn.ids.size()) == script.request.max_new_tokens) {
          turn.stop = v1::LENGTH;
        }
      }
      turns.push_back(turn);
    }
    return turns;
  }

  ParallelFor parallel_;
  Transformer<float> transformer_;
};

class ThreadedEngineTest : public EngineTest {
 protected:
  ThreadedEngineTest() : EngineTest(3) {}
};

TEST_F(EngineTest, EqualsTheNaiveGeneratorToTheBit) {
  const std::vector<Script> scripts = SomeScripts(24);
  std::unique_ptr<Engine> engine = MakeEngine();
  const std::vector<std::vector<Turn>> results = Play(engine.get(), scripts);
  for (size_t i = 0; i < scripts.size(); ++i) EXPECT_EQ(results[i], Truth(scripts[i])) << "script " << i;
}

TEST_F(EngineTest, ResultsDoNotDependOnWhatElseRuns) {
  const std::vector<Script> scripts = SomeScripts(64);
  std::vector<std::vector<Turn>> alone;
  for (const Script& script : scripts) alone.push_back(Play(MakeEngine().get(), {script}, /*at_once=*/true)[0]);
  // All at once, in sevens, and as they arrive; with budgets that cut prefills anywhere.
  EXPECT_EQ(Play(MakeEngine().get(), scripts, /*at_once=*/true), alone);
  for (size_t begin = 0; begin < scripts.size(); begin += 7) {
    const size_t end = std::min(begin + 7, scripts.size());
    const std::vector<Script> seven(scripts.begin() + begin, scripts.begin() + end);
    const std::vector<std::vector<Turn>> expected(alone.begin() + begin, alone.begin() + end);
    EXPECT_EQ(Play(MakeEngine().get(), seven, /*at_once=*/true), expected);
  }
  for (int64_t budget : {1, 2, 5, 17, 4096}) {
    EngineOptions options;
    options.token_budget = budget;
    EXPECT_EQ(Play(MakeEngine(options).get(), scripts), alone) << "budget " << budget;
  }
}

TEST_F(ThreadedEngineTest, ResultsDoNotDependOnThreads) {
  const std::vector<Script> scripts = SomeScripts(200);
  const std::vector<std::vector<Turn>> threaded = Play(MakeEngine().get(), scripts, /*at_once=*/true);
  ParallelFor one(1);
  Transformer<float> transformer(TinyShape(), &one);
  EngineOptions options;
  options.seed = kSeed;
  Engine engine(options, &transformer, &one);
  ASSERT_TRUE(engine.Swap(kFirst, TinyWeights(1), false).ok());
  EXPECT_EQ(threaded, Play(&engine, scripts, /*at_once=*/true));
}

TEST_F(EngineTest, RandomNumbersFollowTheKeyAlone) {
  std::unique_ptr<Engine> engine = MakeEngine();
  Script script = SomeScripts(1)[0];
  script.request.legal_ids = nullptr;
  script.request.max_new_tokens = 12;
  script.request.stop_at_end_of_text = false;
  const std::vector<Turn> turns = Play(engine.get(), {script}, true)[0];
  // The same engine again: nothing of the first episode is left.
  EXPECT_EQ(Play(engine.get(), {script}, true)[0], turns);
  for (const EpisodeIdentity& other :
       {EpisodeIdentity{RandomPurpose::kEvaluationSampling, script.identity.ticket, script.identity.member},
        EpisodeIdentity{RandomPurpose::kSampling, script.identity.ticket + 1, script.identity.member},
        EpisodeIdentity{RandomPurpose::kSampling, script.identity.ticket, script.identity.member + 1}}) {
    Script changed = script;
    changed.identity = other;
    EXPECT_NE(Play(engine.get(), {changed}, true)[0], turns);
  }
}

TEST_F(EngineTest, StopsAtLengthEndOfTextAndContext) {
  std::unique_ptr<Engine> engine = MakeEngine();
  const auto play = [&](std::vector<int32_t> prompt, TurnRequest request) {
    return Play(engine.get(), {{{RandomPurpose::kSampling, 1, 0}, {std::move(prompt)}, request}}, true)[0][0];
  };
  TurnRequest request;
  request.legal_ids = std::make_shared<std::vector<int32_t>>(std::vector<int32_t>{0});
  request.max_new_tokens = 5;
  Turn turn = play({1}, request);
  EXPECT_EQ(turn.stop, v1::END_OF_TEXT);
  EXPECT_THAT(turn.ids, ElementsAre(0));
  EXPECT_THAT(turn.logprobs, ElementsAre(0.0f));

  request.stop_at_end_of_text = false;
  turn = play({1}, request);
  EXPECT_EQ(turn.stop, v1::LENGTH);
  EXPECT_THAT(turn.ids, ElementsAre(0, 0, 0, 0, 0));

  // 61 ids before, 64 positions: three more fit.
  turn = play(std::vector<int32_t>(61, 9), request);
  EXPECT_EQ(turn.stop, v1::CONTEXT_FULL);
  EXPECT_EQ(turn.ids.size(), 3u);
}

TEST_F(EngineTest, RefusesBadTurnsAndLeavesTheEpisodeAsItWas) {
  std::unique_ptr<Engine> engine = MakeEngine();
  const EpisodeHandle episode = engine->OpenEpisode({RandomPurpose::kSampling, 1, 0});
  const auto refused = [&](std::vector<int32_t> ids, TurnRequest request) {
    const absl::Status status = engine->StartTurn(episode, ids, request);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(engine->ids(episode).empty());
    EXPECT_FALSE(engine->runnable());
    return status;
  };
  EXPECT_THAT(refused({1, 64}, {}).ToString(), HasSubstr("id 64 is not in the vocabulary of 64"));
  EXPECT_THAT(refused({-1}, {}).ToString(), HasSubstr("id -1"));
  EXPECT_THAT(refused({}, {}).ToString(), HasSubstr("at least one id"));
  TurnRequest request;
  request.max_new_tokens = 0;
  EXPECT_THAT(refused({1}, request).ToString(), HasSubstr("max_new_tokens = 0"));
  request = {};
  request.legal_ids = std::make_shared<std::vector<int32_t>>(std::vector<int32_t>{3, 3});
  EXPECT_THAT(refused({1}, request).ToString(), HasSubstr("3 follows 3"));
  request = {};
  request.sampling.top_k = 5;
  EXPECT_THAT(refused({1}, request).ToString(), HasSubstr("evaluation only"));
  EXPECT_TRUE(absl::IsOutOfRange(refused(std::vector<int32_t>(64, 1), {})));

  EXPECT_TRUE(engine->StartTurn(episode, std::vector<int32_t>(63, 1), {}).ok());
  // Evaluation may restrict.
  request = {};
  request.sampling.top_k = 5;
  EXPECT_TRUE(
      engine
          ->StartTurn(engine->OpenEpisode({RandomPurpose::kEvaluationSampling, 1, 0}), std::vector<int32_t>{1}, request)
          .ok());
}

TEST_F(EngineTest, NothingRunsBeforeTheFirstWeights) {
  Engine engine({}, &transformer_, &parallel_);
  const EpisodeHandle episode = engine.OpenEpisode({});
  ASSERT_TRUE(engine.StartTurn(episode, std::vector<int32_t>{1}, {}).ok());
  EXPECT_FALSE(engine.runnable());
  std::vector<FinishedTurn> finished;
  EXPECT_TRUE(engine.Step(&finished).ok());
  EXPECT_EQ(engine.counters().steps, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(engine.Swap(kFirst, std::vector<float>(10), false)));
  EXPECT_TRUE(engine.Swap(kFirst, TinyWeights(1), false).ok());
  EXPECT_TRUE(engine.runnable());
}

TEST_F(EngineTest, BrokenWeightsFailTheTurnOnly) {
  std::unique_ptr<Engine> engine = MakeEngine();
  std::vector<float> broken = TinyWeights(1);
  std::fill(broken.begin(), broken.end(), std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(engine->Swap({1, 2}, broken, false).ok());
  const EpisodeHandle episode = engine->OpenEpisode({});
  ASSERT_TRUE(engine->StartTurn(episode, std::vector<int32_t>{1, 2}, {}).ok());
  std::vector<FinishedTurn> finished;
  ASSERT_TRUE(engine->Step(&finished).ok());
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_THAT(finished[0].status.ToString(), HasSubstr("not finite under weights (1, 2)"));
  EXPECT_TRUE(finished[0].ids.empty());
  EXPECT_EQ(engine->running_turns(), 0);
}

TEST_F(EngineTest, CloseWorksInEveryPhase) {
  EngineOptions options;
  options.token_budget = 4;
  std::unique_ptr<Engine> engine = MakeEngine(options);
  TurnRequest request;
  request.max_new_tokens = 10;
  std::vector<FinishedTurn> finished;
  std::vector<EpisodeHandle> episodes;
  for (uint64_t i = 0; i < 3; ++i) {
    episodes.push_back(engine->OpenEpisode({RandomPurpose::kSampling, i + 1, 0}));
    ASSERT_TRUE(engine->StartTurn(episodes.back(), std::vector<int32_t>{1, 2, 3}, request).ok());
  }
  ASSERT_TRUE(engine->Step(&finished).ok());  // budget 4: the first whole, a piece of the second
  EXPECT_EQ(engine->running_turns(), 2);
  EXPECT_EQ(engine->waiting_turns(), 1);
  engine->Close(episodes[2]);
  engine->Close(episodes[0]);
  engine->Close(episodes[1]);
  EXPECT_FALSE(engine->runnable());
  EXPECT_EQ(engine->open_episodes(), 0);
  EXPECT_EQ(engine->counters().tokens_discarded, 1);
  EXPECT_DEATH(engine->Close(episodes[0]), "not open");
}

TEST_F(EngineTest, CountsFlopsOfTheShape) {
  std::unique_ptr<Engine> engine = MakeEngine();
  const EpisodeHandle episode = engine->OpenEpisode({});
  ASSERT_TRUE(engine->StartTurn(episode, std::vector<int32_t>{1, 2, 3}, {}).ok());
  std::vector<FinishedTurn> finished;
  ASSERT_TRUE(engine->Step(&finished).ok());
  EXPECT_EQ(engine->counters().tokens_processed, 3);
  EXPECT_EQ(engine->counters().tokens_generated, 1);
  // Per token and layer: q 32x32, k and v 32x16 each, o 32x32, three of 32x48; attention to 1+2+3 positions, 32 wide,
  // twice; one head row.
  const double matrices = 2.0 * (32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 48);
  EXPECT_DOUBLE_EQ(engine->counters().flops, 2 * (3 * matrices + 4.0 * 32 * 6) + 2.0 * 32 * 64);
}

TEST(UpdateModeTest, Parses) {
  EXPECT_EQ(*ParseUpdateMode("finish"), UpdateMode::kFinish);
  EXPECT_EQ(*ParseUpdateMode("keep"), UpdateMode::kKeep);
  EXPECT_EQ(*ParseUpdateMode("recompute"), UpdateMode::kRecompute);
  EXPECT_EQ(*ParseUpdateMode("restart"), UpdateMode::kRestart);
  EXPECT_THAT(ParseUpdateMode("abort").status().ToString(), HasSubstr("finish, keep, recompute or restart"));
}

}  // namespace
}  // namespace leeway
