#include "envs/tasks/question_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "envs/single_turn.h"

namespace leeway {
namespace {

// A pseudo-random permutation of 0 .. count-1 without a table: four Feistel rounds over the smallest even number of
// bits that holds count, walked until the result is below it (fewer than four walks on average).
uint64_t PermutedIndex(const RandomKey& key, uint64_t count, uint64_t index) {
  int half_bits = 1;
  while ((uint64_t{1} << (2 * half_bits)) < count) ++half_bits;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  do {
    uint64_t left = index >> half_bits;
    uint64_t right = index & mask;
    for (uint32_t round = 0; round < 4; ++round) {
      RandomKey round_key = key;
      round_key.interaction = round;
      round_key.position = right;
      left = std::exchange(right, left ^ (RandomU64(round_key) & mask));
    }
    index = (left << half_bits) | right;
  } while (index >= count);
  return index;
}

class QuestionFileTask : public Task {
 public:
  QuestionFileTask(std::vector<Question> questions, QuestionSplit split, const QuestionFileOptions& options)
      : questions_(std::make_shared<const std::vector<Question>>(std::move(questions))),
        split_(std::move(split)),
        options_(options),
        rules_(std::make_shared<SingleTurnRules>()) {
    rules_->max_answer_tokens = options.max_answer_tokens;
    rules_->exercise_of_seed = [questions = questions_](uint64_t seed) { return ExerciseOfSeed(*questions, seed); };
    rules_->score = [match = options.match](const Exercise& exercise, const std::string& answer) {
      return IsRightAnswer({.question = exercise.prompt, .answer = exercise.solution}, match, answer) ? 1.0 : 0.0;
    };
  }

  std::string name() const override { return "question_file"; }
  std::string vocabulary() const override { return "byte"; }
  std::unique_ptr<Environment> NewEnvironment() const override {
    return std::make_unique<SingleTurnEnvironment>(rules_);
  }
  uint64_t TrainSeed(uint64_t run_seed, uint64_t index) const override {
    return AtIndex(split_.training, RandomPurpose::kTask, run_seed, index);
  }
  uint64_t EvaluationSeed(uint64_t run_seed, uint64_t index) const override {
    return AtIndex(split_.held_out, RandomPurpose::kEvaluationTask, run_seed, index);
  }
  uint64_t train_size() const override { return split_.training.size(); }

  std::optional<Demonstration> Demonstrate(uint64_t seed) const override {
    if (options_.match == AnswerMatch::kRegex || seed >= questions_->size()) return std::nullopt;
    Observation observation;
    observation.text = PromptOf((*questions_)[seed]);
    observation.max_answer_tokens = options_.max_answer_tokens;
    Demonstration demonstration;
    demonstration.turns.emplace_back(std::move(observation),
                                     std::string(absl::StripAsciiWhitespace((*questions_)[seed].answer)));
    return demonstration;
  }

  int max_turns() const override { return 1; }
  int max_episode_tokens() const override {
    size_t longest = 0;
    for (const Question& question : *questions_) longest = std::max(longest, PromptOf(question).size());
    return 1 + static_cast<int>(longest) + options_.max_answer_tokens;
  }

 private:
  static std::string PromptOf(const Question& question) { return question.question + "\n"; }

  static absl::StatusOr<Exercise> ExerciseOfSeed(const std::vector<Question>& questions, uint64_t seed) {
    if (seed >= questions.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("seed ", seed, " names no question: the file has ", questions.size()));
    }
    return Exercise{.prompt = PromptOf(questions[seed]), .solution = questions[seed].answer};
  }

  static uint64_t AtIndex(const std::vector<uint64_t>& stream, RandomPurpose purpose, uint64_t run_seed,
                          uint64_t index) {
    const RandomKey key = {.seed = run_seed, .purpose = purpose, .ticket = index / stream.size()};
    return stream[PermutedIndex(key, stream.size(), index % stream.size())];
  }

  const std::shared_ptr<const std::vector<Question>> questions_;
  const QuestionSplit split_;
  const QuestionFileOptions options_;
  const std::shared_ptr<SingleTurnRules> rules_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Task>> NewQuestionFileTask(absl::string_view text, const std::string& path,
                                                          const QuestionFileOptions& options) {
  LEEWAY_ASSIGN_OR_RETURN(std::vector<Question> questions,
                          ParseQuestions(text, path, options.match, options.max_answer_tokens));
  absl::StatusOr<QuestionSplit> split = SplitQuestions(questions, options.held_out_share);
  if (!split.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(split.status().message())));
  }
  return std::make_unique<QuestionFileTask>(std::move(questions), *std::move(split), options);
}

}  // namespace leeway
