#ifndef LEEWAY_ENVS_TASKS_QUESTION_SET_H_
#define LEEWAY_ENVS_TASKS_QUESTION_SET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

// How an answer is compared with the file's.
enum class AnswerMatch {
  kExact,    // equal after white space is cut off both ends
  kRegex,    // the file's answer is an RE2 pattern that matches the whole trimmed answer
  kNumeric,  // the last number in the answer equals the file's (thousands commas, fractions, exponents), relative to
             // 1e-9
};

// "exact", "regex" or "numeric"; INVALID_ARGUMENT lists them.
absl::StatusOr<AnswerMatch> ParseAnswerMatch(absl::string_view text);

struct Question {
  std::string question;
  std::string answer;
};

// Reads the text of a JSONL file: each line an object with the strings `question` and `answer` (the answer may be a
// number); other keys are left alone, blank lines skipped. INVALID_ARGUMENT: lists the faults of all lines as
// "PATH:LINE: what is wrong": broken JSON, missing, empty or mistyped values, answers that do not fit `match` or are
// longer than `max_answer_tokens` bytes, a question that another line answers differently, no question at all.
absl::StatusOr<std::vector<Question>> ParseQuestions(absl::string_view text, const std::string& path, AnswerMatch match,
                                                     int max_answer_tokens);

// Whether `answer` is right. A regex that does not compile is never right (ParseQuestions has refused it).
bool IsRightAnswer(const Question& question, AnswerMatch match, absl::string_view answer);

// Positions in the file of the questions of either stream; neither is empty.
struct QuestionSplit {
  std::vector<uint64_t> training;
  std::vector<uint64_t> held_out;
};

// Splits by the hash of the question's text, so that a question stays on its side when the file grows or is sorted
// anew: held out is what hashes below `held_out_share` of the range; if that leaves a side empty, it gets the question
// whose hash is nearest to it. INVALID_ARGUMENT: fewer than two different questions.
absl::StatusOr<QuestionSplit> SplitQuestions(const std::vector<Question>& questions, double held_out_share);

}  // namespace leeway

#endif  // LEEWAY_ENVS_TASKS_QUESTION_SET_H_
