#ifndef LEEWAY_TRAINER_START_WARM_START_H_
#define LEEWAY_TRAINER_START_WARM_START_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "envs/environment.h"
#include "model/transformer/transformer.h"
#include "tokenizer/tokenizer.h"
#include "trainer/trainer_options.h"

namespace leeway {

// An episode as the engine would record it if the policy gave the demonstrated answers: ids, and for every answered
// token where it is predicted and out of which legal set.
struct DemonstrationSequence {
  std::vector<int32_t> tokens;  // without the last one, which is only a target
  std::vector<ScoredPosition> positions;
  std::vector<std::vector<int32_t>> legal_sets;  // as positions count them
};

// [beginning] + observation + answer + ... An answer shorter than its turn allows is followed by end-of-text, the way a
// policy ends its turn. INVALID_ARGUMENT: text outside the vocabulary, an answer that is illegal or too long.
absl::StatusOr<DemonstrationSequence> MakeDemonstrationSequence(const Demonstration& demonstration,
                                                                const Tokenizer& tokenizer);

struct WarmStartResult {
  double first_loss = 0;  // mean negative log-probability of an answered token, of the first step and the last
  double last_loss = 0;
  bool was_stopped = false;
};

// Supervised training of `parameters` (flat, in place) on the task's demonstrations: maximum likelihood of the answered
// tokens, token mean, AdamW without decay at a constant rate, gradients clipped as in the run. Example i of step s is
// an instance of the training stream whose index is drawn for (run seed, kWarmStart, s, i); the same seed gives the
// same bits. Blocks until done or `stop`. FAILED_PRECONDITION: the task has no demonstrations. INTERNAL: loss or
// gradients are not finite.
absl::StatusOr<WarmStartResult> RunWarmStart(const TrainerOptions& options, const Task& task,
                                             const Tokenizer& tokenizer, const std::atomic<bool>& stop,
                                             ParallelFor* parallel, std::vector<float>* parameters);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_START_WARM_START_H_
