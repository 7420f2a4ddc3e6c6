#include "envs/tasks/lake4x4.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "envs/stream_split.h"

namespace leeway {
namespace {

constexpr int kSide = 4;
constexpr int kCells = kSide * kSide;
constexpr int kStart = 0;
constexpr int kGoal = kCells - 1;
constexpr int kMaxMoves = 10;
constexpr double kHoleProbability = 0.2;
constexpr char kMoves[] = "UDLR";

using HoleMap = std::array<bool, kCells>;

// Where a move leads; the border stops it.
int CellAfter(int cell, char move) {
  const int row = cell / kSide;
  const int column = cell % kSide;
  switch (move) {
    case 'U':
      return row > 0 ? cell - kSide : cell;
    case 'D':
      return row < kSide - 1 ? cell + kSide : cell;
    case 'L':
      return column > 0 ? cell - 1 : cell;
    default:
      return column < kSide - 1 ? cell + 1 : cell;
  }
}

// Fewest moves from start to goal, first found in the order of kMoves; empty = the goal can not be reached.
std::string ShortestPath(const HoleMap& holes) {
  std::array<int, kCells> came_from;
  std::array<char, kCells> by_move{};
  came_from.fill(-1);
  came_from[kStart] = kStart;
  std::vector<int> frontier = {kStart};
  for (size_t next = 0; next < frontier.size() && came_from[kGoal] < 0; ++next) {
    for (const char move : {kMoves[0], kMoves[1], kMoves[2], kMoves[3]}) {
      const int cell = CellAfter(frontier[next], move);
      if (holes[cell] || came_from[cell] >= 0) continue;
      came_from[cell] = frontier[next];
      by_move[cell] = move;
      frontier.push_back(cell);
    }
  }
  std::string path;
  if (came_from[kGoal] < 0) return path;
  for (int cell = kGoal; cell != kStart; cell = came_from[cell]) path.insert(path.begin(), by_move[cell]);
  return path;
}

HoleMap MapOfSeed(uint64_t seed) {
  RandomStream random({.seed = seed, .purpose = RandomPurpose::kTask});
  while (true) {
    HoleMap holes{};
    for (int cell = 0; cell < kCells; ++cell) {
      const bool is_hole = random.NextUniform() < kHoleProbability;
      holes[cell] = is_hole && cell != kStart && cell != kGoal;
    }
    const size_t moves = ShortestPath(holes).size();
    if (moves > 0 && moves <= kMaxMoves) return holes;
  }
}

char NameOf(int cell) { return static_cast<char>('a' + cell); }

std::string Render(const HoleMap& holes) {
  std::string text;
  for (int cell = 0; cell < kCells; ++cell) text.push_back(holes[cell] ? '#' : NameOf(cell));
  return text;
}

Observation ObservationOf(std::string text) {
  Observation observation;
  observation.text = std::move(text);
  observation.legal_characters = kMoves;
  observation.end_of_text_is_legal = false;
  observation.max_answer_tokens = 1;
  return observation;
}

Observation FirstObservation(const HoleMap& holes) {
  return ObservationOf(absl::StrCat(Render(holes), ":", std::string(1, NameOf(kStart))));
}

class Lake4x4Environment : public Environment {
 public:
  absl::StatusOr<Observation> Reset(uint64_t seed) override {
    holes_ = MapOfSeed(seed);
    cell_ = kStart;
    moves_ = 0;
    is_running_ = true;
    return FirstObservation(holes_);
  }

  absl::StatusOr<StepResult> Step(const std::string& answer) override {
    if (!is_running_) return absl::FailedPreconditionError("Step without a running episode: call Reset first");
    if (answer.size() != 1 || absl::string_view(kMoves).find(answer[0]) == absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", absl::CHexEscape(answer), "' is not one of the moves U, D, L, R"));
    }
    cell_ = CellAfter(cell_, answer[0]);
    ++moves_;
    StepResult result;
    if (cell_ == kGoal || holes_[cell_]) {
      result.state = EpisodeState::kTerminated;
      result.reward = cell_ == kGoal ? 1.0 : 0.0;
    } else if (moves_ == kMaxMoves) {
      result.state = EpisodeState::kTruncated;
      result.reward = 0.0;
    } else {
      result.next = ObservationOf(std::string(1, NameOf(cell_)));
    }
    is_running_ = result.state == EpisodeState::kRunning;
    return result;
  }

 private:
  HoleMap holes_{};
  int cell_ = kStart;
  int moves_ = 0;
  bool is_running_ = false;
};

class Lake4x4Task : public Task {
 public:
  std::string name() const override { return "lake4x4"; }
  std::unique_ptr<Environment> NewEnvironment() const override { return std::make_unique<Lake4x4Environment>(); }
  uint64_t TrainSeed(uint64_t run_seed, uint64_t index) const override {
    return TrainStreamSeed(run_seed, index, [](uint64_t seed) { return Render(MapOfSeed(seed)); });
  }
  uint64_t EvaluationSeed(uint64_t run_seed, uint64_t index) const override {
    return HeldOutStreamSeed(run_seed, index, [](uint64_t seed) { return Render(MapOfSeed(seed)); });
  }

  std::optional<Demonstration> Demonstrate(uint64_t seed) const override {
    const HoleMap holes = MapOfSeed(seed);
    Demonstration demonstration;
    Observation observation = FirstObservation(holes);
    int cell = kStart;
    for (const char move : ShortestPath(holes)) {
      demonstration.turns.emplace_back(std::move(observation), std::string(1, move));
      cell = CellAfter(cell, move);
      observation = ObservationOf(std::string(1, NameOf(cell)));
    }
    return demonstration;
  }

  int max_turns() const override { return kMaxMoves; }
  // The beginning, map and ':' and first cell, ten moves, nine cells said.
  int max_episode_tokens() const override { return 1 + (kCells + 2) + kMaxMoves + (kMaxMoves - 1); }
};

}  // namespace

std::unique_ptr<Task> NewLake4x4Task() { return std::make_unique<Lake4x4Task>(); }

}  // namespace leeway
