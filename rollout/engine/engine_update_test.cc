// Weights change at every possible token boundary, in every mode; every token is held against the weights its stamp
// names.

#include <map>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rollout/engine/engine.h"
#include "rollout/engine/naive_generator.h"

namespace leeway {
namespace {

constexpr uint64_t kSeed = 21;
constexpr int kEpisodes = 5;
constexpr int kTurns = 3;

struct Token {
  int32_t id = 0;
  float logprob = 0;
  uint64_t version = 0;
  friend bool operator==(const Token&, const Token&) = default;
};
struct Turn {
  std::vector<Token> tokens;
  bool kv_cache_consistent = true;
};
using Episode = std::vector<Turn>;

std::vector<int32_t> Prompt(int episode, int turn) {
  std::vector<int32_t> ids;
  for (int i = 0; i < (turn == 0 ? 1 : 0) + (episode + turn) % 4; ++i)
    ids.push_back(1 + (episode * 17 + turn * 5 + i) % 63);
  return ids;
}

TurnRequest Request(int episode) {
  TurnRequest request;
  request.max_new_tokens = 2 + episode % 4;
  request.stop_at_end_of_text = episode % 2 == 0;
  return request;
}

EpisodeIdentity Identity(int episode) { return {RandomPurpose::kSampling, uint64_t(1 + episode), 0}; }

// Plays kEpisodes episodes of kTurns turns, episode i from step i on. After `swap_at` steps version 2 is offered (-1:
// never).
struct Played {
  std::vector<Episode> episodes = std::vector<Episode>(kEpisodes);
  int steps = 0;
  int swapped_at = -1;  // steps done when the weights changed
  EngineCounters counters;
};

enum class Offer { kNewBytes, kSameBytesUnderNewName, kRelabel };

class EngineUpdateTest : public ::testing::Test {
 protected:
  EngineUpdateTest() : parallel_(1), transformer_(TinyShape(), &parallel_), naive_(kSeed) {}

  Played Play(UpdateMode mode, int swap_at, Offer offer = Offer::kNewBytes, int64_t budget = 4096) {
    EngineOptions options;
    options.seed = kSeed;
    options.update_mode = mode;
    options.token_budget = budget;
    Engine engine(options, &transformer_, &parallel_);
    EXPECT_TRUE(engine.Swap({1, 1}, TinyWeights(1), false).ok());
    Played played;
    std::map<EpisodeHandle, int> open;
    int done = 0;
    std::vector<FinishedTurn> finished;
    for (; done < kEpisodes && played.steps < 1000; ++played.steps) {
      if (played.steps < kEpisodes) {
        const EpisodeHandle handle = engine.OpenEpisode(Identity(played.steps));
        EXPECT_TRUE(engine.StartTurn(handle, Prompt(played.steps, 0), Request(played.steps)).ok());
        open[handle] = played.steps;
      }
      if (swap_at >= 0 && played.steps >= swap_at && played.swapped_at < 0) {
        engine.SetSwapRequested(true);
        if (engine.ready_to_swap()) {
          const std::vector<float> weights = TinyWeights(offer == Offer::kNewBytes ? 2 : 1);
          EXPECT_TRUE(engine.Swap({1, 2}, weights, offer == Offer::kRelabel).ok());
          played.swapped_at = played.steps;
        }
      }
      EXPECT_TRUE(engine.Step(&finished).ok());
      for (const FinishedTurn& turn : finished) {
        Turn record;
        record.kv_cache_consistent = turn.kv_cache_consistent;
        for (const TokenRun& run : turn.versions) {
          EXPECT_GT(run.count, 0u);
          for (uint32_t i = 0; i < run.count; ++i) record.tokens.push_back({0, 0, run.weights.version});
        }
        EXPECT_EQ(record.tokens.size(), turn.ids.size());
        EXPECT_EQ(turn.logprobs.size(), turn.ids.size());
        for (size_t i = 0; i < turn.ids.size(); ++i) {
          record.tokens[i].id = turn.ids[i];
          record.tokens[i].logprob = turn.logprobs[i];
        }
        // The last token came from this very step.
        EXPECT_EQ(record.tokens.back().version, engine.weights().version);
        const int episode = open.at(turn.episode);
        played.episodes[episode].push_back(record);
        const int next = static_cast<int>(played.episodes[episode].size());
        if (next == kTurns) {
          engine.Close(turn.episode);
          ++done;
        } else {
          EXPECT_TRUE(engine.StartTurn(turn.episode, Prompt(episode, next), Request(episode)).ok());
        }
      }
    }
    EXPECT_EQ(done, kEpisodes);
    played.counters = engine.counters();
    return played;
  }

  // Every token equals what the weights that it names make of all ids before it, computed from nothing.
  void ExpectStampsAreTrue(const Played& played) {
    for (int episode = 0; episode < kEpisodes; ++episode) {
      std::vector<int32_t> ids;
      for (int turn = 0; turn < kTurns; ++turn) {
        const std::vector<int32_t> prompt = Prompt(episode, turn);
        ids.insert(ids.end(), prompt.begin(), prompt.end());
        const Turn& record = played.episodes[episode][turn];
        EXPECT_TRUE(record.kv_cache_consistent);
        for (size_t i = 0; i < record.tokens.size(); ++i) {
          const Token& token = record.tokens[i];
          const SampledToken truth = naive_.Next(token.version, ids, Identity(episode), turn, i, Request(episode));
          ASSERT_EQ(token.id, truth.id) << "episode " << episode << " turn " << turn << " token " << i;
          ASSERT_EQ(token.logprob, truth.logprob) << "episode " << episode << " turn " << turn << " token " << i;
          ids.push_back(token.id);
        }
      }
    }
  }

  void ExpectOneVersionATurn(const Played& played) {
    for (const Episode& episode : played.episodes) {
      for (const Turn& turn : episode) {
        for (const Token& token : turn.tokens) ASSERT_EQ(token.version, turn.tokens[0].version);
      }
    }
  }

  ParallelFor parallel_;
  Transformer<float> transformer_;
  NaiveGenerator naive_;
};

TEST_F(EngineUpdateTest, FinishEndsTurnsOnTheOldWeights) {
  const int steps = Play(UpdateMode::kFinish, -1).steps;
  bool waited = false;
  for (int swap_at = 0; swap_at <= steps; ++swap_at) {
    const Played played = Play(UpdateMode::kFinish, swap_at);
    ExpectStampsAreTrue(played);
    ExpectOneVersionATurn(played);
    waited = waited || played.swapped_at > swap_at;
    EXPECT_EQ(played.counters.tokens_discarded, 0);
  }
  EXPECT_TRUE(waited);
}

TEST_F(EngineUpdateTest, RecomputeGoesOnWithTheNewWeightsAtTheNextToken) {
  const int steps = Play(UpdateMode::kRecompute, -1).steps;
  bool straddled = false;
  for (int swap_at = 0; swap_at < steps; ++swap_at) {
    // A budget below the running sequences' lengths spreads the recomputation over several steps.
    for (int64_t budget : {4096, 6}) {
      const Played played = Play(UpdateMode::kRecompute, swap_at, Offer::kNewBytes, budget);
      EXPECT_EQ(played.swapped_at, swap_at);
      ExpectStampsAreTrue(played);
      EXPECT_EQ(played.counters.tokens_discarded, 0);
      for (const Episode& episode : played.episodes) {
        for (const Turn& turn : episode)
          straddled = straddled || turn.tokens.front().version != turn.tokens.back().version;
      }
      EXPECT_EQ(played.counters.tokens_recomputed > 0, swap_at > 0);
    }
  }
  EXPECT_TRUE(straddled);
}

TEST_F(EngineUpdateTest, RestartBeginsTheTurnAgain) {
  const int steps = Play(UpdateMode::kRestart, -1).steps;
  bool discarded = false;
  for (int swap_at = 0; swap_at < steps; ++swap_at) {
    const Played played = Play(UpdateMode::kRestart, swap_at);
    EXPECT_EQ(played.swapped_at, swap_at);
    ExpectStampsAreTrue(played);
    ExpectOneVersionATurn(played);
    discarded = discarded || played.counters.tokens_discarded > 0;
  }
  EXPECT_TRUE(discarded);
}

TEST_F(EngineUpdateTest, RestartDrawsTheSameRandomNumbers) {
  const Played whole = Play(UpdateMode::kRestart, -1);
  for (int swap_at = 0; swap_at < whole.steps; ++swap_at) {
    // The same bytes, but the engine is not told: it restarts, and must arrive at the same tokens.
    const Played played = Play(UpdateMode::kRestart, swap_at, Offer::kSameBytesUnderNewName);
    for (int episode = 0; episode < kEpisodes; ++episode) {
      for (int turn = 0; turn < kTurns; ++turn) {
        const std::vector<Token>& expected = whole.episodes[episode][turn].tokens;
        const std::vector<Token>& tokens = played.episodes[episode][turn].tokens;
        ASSERT_EQ(tokens.size(), expected.size());
        for (size_t i = 0; i < tokens.size(); ++i) {
          EXPECT_EQ(tokens[i].id, expected[i].id);
          EXPECT_EQ(tokens[i].logprob, expected[i].logprob);
        }
      }
    }
  }
}

TEST_F(EngineUpdateTest, KeepGoesOnAndSaysSo) {
  const int steps = Play(UpdateMode::kKeep, -1).steps;
  int inconsistent = 0;
  for (int swap_at = 0; swap_at < steps; ++swap_at) {
    const Played played = Play(UpdateMode::kKeep, swap_at);
    EXPECT_EQ(played.swapped_at, swap_at);
    EXPECT_EQ(played.counters.tokens_recomputed, 0);
    // Lockstep: in step s every open episode hands its new ids to the weights of that step, behind what older weights
    // left.
    for (int episode = 0; episode < kEpisodes; ++episode) {
      KeyValueCache<float> cache(TinyShape());
      int step = episode;
      bool is_consistent = true;
      uint64_t filled_by = 0;
      std::vector<int32_t> pending;
      for (int turn = 0; turn < kTurns; ++turn) {
        const std::vector<int32_t> prompt = Prompt(episode, turn);
        pending.insert(pending.end(), prompt.begin(), prompt.end());
        const Turn& record = played.episodes[episode][turn];
        for (size_t i = 0; i < record.tokens.size(); ++i, ++step) {
          const uint64_t version = step < swap_at ? 1 : 2;
          if (filled_by != 0 && filled_by != version) is_consistent = false;
          filled_by = version;
          const SampledToken truth =
              naive_.Continue(version, &cache, pending, Identity(episode), turn, i, Request(episode));
          ASSERT_EQ(record.tokens[i], (Token{truth.id, truth.logprob, version}))
              << "swap at " << swap_at << " step " << step;
          pending = {truth.id};
        }
        EXPECT_EQ(record.kv_cache_consistent, is_consistent);
        if (!is_consistent) ++inconsistent;
      }
    }
  }
  EXPECT_GT(inconsistent, 0);
}

class RelabelTest : public EngineUpdateTest, public ::testing::WithParamInterface<UpdateMode> {};

TEST_P(RelabelTest, ChangesTheNameOnly) {
  const Played whole = Play(GetParam(), -1);
  for (int swap_at = 0; swap_at < whole.steps; ++swap_at) {
    const Played played = Play(GetParam(), swap_at, Offer::kRelabel);
    EXPECT_EQ(played.counters.tokens_recomputed, 0);
    EXPECT_EQ(played.counters.tokens_discarded, 0);
    for (int episode = 0; episode < kEpisodes; ++episode) {
      uint64_t last_version = 1;
      for (int turn = 0; turn < kTurns; ++turn) {
        EXPECT_TRUE(played.episodes[episode][turn].kv_cache_consistent);
        const std::vector<Token>& tokens = played.episodes[episode][turn].tokens;
        const std::vector<Token>& expected = whole.episodes[episode][turn].tokens;
        ASSERT_EQ(tokens.size(), expected.size());
        for (size_t i = 0; i < tokens.size(); ++i) {
          EXPECT_EQ(tokens[i].id, expected[i].id);
          EXPECT_EQ(tokens[i].logprob, expected[i].logprob);
          EXPECT_GE(tokens[i].version, last_version);
          last_version = tokens[i].version;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, RelabelTest,
                         ::testing::Values(UpdateMode::kFinish, UpdateMode::kKeep, UpdateMode::kRecompute,
                                           UpdateMode::kRestart));

TEST_F(EngineUpdateTest, FinishAdmitsAgainWhenTheRequestIsTakenBack) {
  EngineOptions options;
  options.update_mode = UpdateMode::kFinish;
  Engine engine(options, &transformer_, &parallel_);
  ASSERT_TRUE(engine.Swap({1, 1}, TinyWeights(1), false).ok());
  engine.SetSwapRequested(true);
  ASSERT_TRUE(engine.StartTurn(engine.OpenEpisode(Identity(0)), Prompt(0, 0), Request(0)).ok());
  EXPECT_FALSE(engine.runnable());
  EXPECT_TRUE(engine.ready_to_swap());
  engine.SetSwapRequested(false);
  EXPECT_TRUE(engine.runnable());
  std::vector<FinishedTurn> finished;
  ASSERT_TRUE(engine.Step(&finished).ok());
  EXPECT_FALSE(engine.ready_to_swap());
  EXPECT_DEATH(static_cast<void>(engine.Swap({1, 2}, TinyWeights(2), false)), "turns run");
}

}  // namespace
}  // namespace leeway
