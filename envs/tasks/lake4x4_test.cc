#include "envs/tasks/lake4x4.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/random.h"
#include "envs/play.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

std::string MapOf(const Task& task, uint64_t seed) { return task.NewEnvironment()->Reset(seed)->text.substr(0, 16); }

// A seed whose map has these cells as given ('#' hole, '.' ice, '?' either).
uint64_t SeedOf(const Task& task, const std::string& pattern) {
  for (uint64_t seed = 0;; ++seed) {
    const std::string map = MapOf(task, seed);
    bool fits = true;
    for (int i = 0; i < 16; ++i) fits = fits && (pattern[i] == '?' || (pattern[i] == '#') == (map[i] == '#'));
    if (fits) return seed;
  }
}

// Written apart from the task: probability of the goal within `moves` uniformly random moves from (row, column).
double ChanceOfGoal(const std::string& map, int row, int column, int moves,
                    std::map<std::array<int, 3>, double>* known) {
  if (row == 3 && column == 3) return 1.0;
  if (map[row * 4 + column] == '#' || moves == 0) return 0.0;
  const auto [entry, is_new] = known->try_emplace({row, column, moves}, 0.0);
  if (!is_new) return entry->second;
  double chance = 0.0;
  for (const auto& [down, right] : {std::pair(-1, 0), std::pair(1, 0), std::pair(0, -1), std::pair(0, 1)}) {
    const int next_row = std::clamp(row + down, 0, 3);
    const int next_column = std::clamp(column + right, 0, 3);
    chance += 0.25 * ChanceOfGoal(map, next_row, next_column, moves - 1, known);
  }
  return entry->second = chance;
}

TEST(Lake4x4Test, MapsAreRenderedCellByCellAndSolvableInTenMoves) {
  const auto task = NewLake4x4Task();
  std::set<std::string> maps;
  int holes = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const auto observation = task->NewEnvironment()->Reset(seed);
    ASSERT_TRUE(observation.ok());
    ASSERT_EQ(observation->text.size(), 18u);
    EXPECT_EQ(observation->text.substr(16), ":a");
    EXPECT_EQ(observation->legal_characters, "UDLR");
    EXPECT_FALSE(observation->end_of_text_is_legal);
    EXPECT_EQ(observation->max_answer_tokens, 1);
    const std::string map = observation->text.substr(0, 16);
    EXPECT_EQ(map[0], 'a');
    EXPECT_EQ(map[15], 'p');
    for (int i = 0; i < 16; ++i) {
      EXPECT_TRUE(map[i] == '#' || map[i] == static_cast<char>('a' + i));
      holes += map[i] == '#' ? 1 : 0;
    }
    std::map<std::array<int, 3>, double> known;
    EXPECT_GT(ChanceOfGoal(map, 0, 0, 10, &known), 0.0) << map;
    maps.insert(map);
  }
  EXPECT_GT(maps.size(), 400u);
  // 14 cells with a fifth of holes would have 2.8; unsolvable maps have more and are left out.
  EXPECT_GT(holes, 1500);
  EXPECT_LT(holes, 2800);
}

TEST(Lake4x4Test, WalksFallsAndArrives) {
  const auto task = NewLake4x4Task();
  const auto environment = task->NewEnvironment();
  const uint64_t seed = SeedOf(*task, "..#???.?????????");
  ASSERT_TRUE(environment->Reset(seed).ok());
  EXPECT_EQ(environment->Step("U")->next.text, "a");
  EXPECT_EQ(environment->Step("L")->next.text, "a");
  const auto right = environment->Step("R");
  EXPECT_EQ(right->next.text, "b");
  EXPECT_EQ(right->state, EpisodeState::kRunning);
  EXPECT_FALSE(right->reward.has_value());
  const auto hole = environment->Step("R");
  EXPECT_EQ(hole->state, EpisodeState::kTerminated);
  EXPECT_EQ(*hole->reward, 0.0);

  ASSERT_TRUE(environment->Reset(SeedOf(*task, "....???.???.????")).ok());
  for (const char* move : {"R", "R", "R", "D", "D"}) EXPECT_EQ(environment->Step(move)->state, EpisodeState::kRunning);
  const auto goal = environment->Step("D");
  EXPECT_EQ(goal->state, EpisodeState::kTerminated);
  EXPECT_EQ(*goal->reward, 1.0);
}

TEST(Lake4x4Test, TenMovesAreTruncatedWithRewardZero) {
  const auto task = NewLake4x4Task();
  const auto environment = task->NewEnvironment();
  ASSERT_TRUE(environment->Reset(1).ok());
  for (int move = 1; move < 10; ++move) EXPECT_EQ(environment->Step("U")->state, EpisodeState::kRunning);
  const auto last = environment->Step("U");
  EXPECT_EQ(last->state, EpisodeState::kTruncated);
  EXPECT_EQ(*last->reward, 0.0);
}

TEST(Lake4x4Test, OtherAnswersAreErrors) {
  const auto task = NewLake4x4Task();
  const auto environment = task->NewEnvironment();
  EXPECT_EQ(environment->Step("U").status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(environment->Reset(1).ok());
  for (const char* answer : {"", "u", "UD"}) {
    EXPECT_EQ(environment->Step(answer).status().code(), absl::StatusCode::kInvalidArgument) << answer;
  }
  EXPECT_THAT(std::string(environment->Step("X").status().message()), HasSubstr("'X' is not one of the moves"));
}

TEST(Lake4x4Test, ARandomPolicyEarnsWhatTheMapsSay) {
  const auto task = NewLake4x4Task();
  const auto environment = task->NewEnvironment();
  RandomStream random({.seed = 4});
  double sum = 0.0, expected = 0.0;
  const int episodes = 10'000;
  for (int i = 0; i < episodes; ++i) {
    const uint64_t seed = task->TrainSeed(3, static_cast<uint64_t>(i));
    std::map<std::array<int, 3>, double> known;
    expected += ChanceOfGoal(MapOf(*task, seed), 0, 0, 10, &known);
    const auto policy = [&](const Observation&) { return std::string(1, "UDLR"[random.NextBelow(4)]); };
    sum += *PlayEpisode(*environment, seed, policy, 10)->reward;
  }
  // Standard error: sqrt(0.02 / 10000) = 0.0014.
  EXPECT_NEAR(sum / episodes, expected / episodes, 0.006);
  EXPECT_GT(expected / episodes, 0.005);
  EXPECT_LT(expected / episodes, 0.04);
}

}  // namespace
}  // namespace leeway
