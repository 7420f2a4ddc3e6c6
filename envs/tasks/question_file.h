#ifndef LEEWAY_ENVS_TASKS_QUESTION_FILE_H_
#define LEEWAY_ENVS_TASKS_QUESTION_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "envs/environment.h"
#include "envs/tasks/question_set.h"

namespace leeway {

struct QuestionFileOptions {
  AnswerMatch match = AnswerMatch::kExact;
  int max_answer_tokens = 32;
  double held_out_share = 0.2;
};

// Trains on the user's own questions.
//   prompt: the question and a newline; answer: bytes until end-of-text, at most max_answer_tokens. Reward 1 if it
//   matches, else 0.
// A seed is a question's position in the file. The training stream goes through all training questions before it
// repeats one (train_size() of them), in an order that differs from epoch to epoch; the held-out stream does the same
// with its own. Demonstrations are the file's answers (none for `regex`).
//
// `text` is the file's content, `path` its name for messages. INVALID_ARGUMENT as in question_set.h.
absl::StatusOr<std::unique_ptr<Task>> NewQuestionFileTask(absl::string_view text, const std::string& path,
                                                          const QuestionFileOptions& options);

}  // namespace leeway

#endif  // LEEWAY_ENVS_TASKS_QUESTION_FILE_H_
