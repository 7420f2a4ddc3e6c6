#include "trainer/start/warm_start.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "trainer/liveness_log.h"
#include "trainer/optimizer/adamw.h"

namespace leeway {
namespace {

constexpr int64_t kStepsPerLogLine = 50;

// The examples of one step, packed into micro-batches one after the other.
struct ExampleBatch {
  PackedSequences sequences;
  std::vector<ScoredPosition> positions;
  std::vector<std::vector<int32_t>> legal_sets;
};

void Append(const DemonstrationSequence& example, ExampleBatch* batch) {
  const int64_t first_row = static_cast<int64_t>(batch->sequences.tokens.size());
  const int32_t first_set = static_cast<int32_t>(batch->legal_sets.size());
  batch->sequences.tokens.insert(batch->sequences.tokens.end(), example.tokens.begin(), example.tokens.end());
  batch->sequences.starts.push_back(static_cast<int64_t>(batch->sequences.tokens.size()));
  batch->legal_sets.insert(batch->legal_sets.end(), example.legal_sets.begin(), example.legal_sets.end());
  for (ScoredPosition position : example.positions) {
    position.row += first_row;
    if (position.legal_set >= 0) position.legal_set += first_set;
    batch->positions.push_back(position);
  }
}

absl::StatusOr<DemonstrationSequence> ExampleOf(const TrainerOptions& options, const Task& task,
                                                const Tokenizer& tokenizer, int64_t step, int64_t example) {
  RandomKey key;
  key.seed = options.seed;
  key.purpose = RandomPurpose::kWarmStart;
  key.ticket = static_cast<uint64_t>(step);
  key.position = static_cast<uint64_t>(example);
  const uint64_t size = task.train_size();
  const uint64_t index = size > 0 ? RandomBelow(key, size) : RandomU64(key);
  const uint64_t seed = task.TrainSeed(options.seed, index);
  const std::optional<Demonstration> demonstration = task.Demonstrate(seed);
  if (!demonstration.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("trainer.warm_start.steps = ", options.warm_start.steps,
                                                      ", but task ", task.name(),
                                                      " has no demonstrations; set it to 0, or use another task"));
  }
  return MakeDemonstrationSequence(*demonstration, tokenizer);
}

// Supervised passes over one step's examples; keeps its buffers between steps.
class SupervisedPass {
 public:
  explicit SupervisedPass(Transformer<float>* model) : model_(model) {}

  // Adds the gradient of the mean negative log-probability over all examples; returns that mean.
  absl::StatusOr<double> Run(const std::vector<DemonstrationSequence>& examples, int64_t micro_batch_tokens,
                             absl::Span<float> gradients) {
    int64_t targets = 0;
    for (const DemonstrationSequence& example : examples) targets += static_cast<int64_t>(example.positions.size());
    double loss = 0;
    ExampleBatch batch;
    for (size_t i = 0; i < examples.size(); ++i) {
      Append(examples[i], &batch);
      const bool is_last = i + 1 == examples.size();
      const size_t tokens = batch.sequences.tokens.size();
      if (!is_last && static_cast<int64_t>(tokens + examples[i + 1].tokens.size()) <= micro_batch_tokens) continue;
      LEEWAY_RETURN_IF_ERROR(
          model_->Score(batch.sequences, batch.positions, batch.legal_sets, /*keep_activations=*/true, &scores_));
      for (float logprob : scores_.logprobs) loss -= logprob / static_cast<double>(targets);
      by_logprob_.assign(batch.positions.size(), static_cast<float>(-1.0 / static_cast<double>(targets)));
      by_entropy_.assign(batch.positions.size(), 0.0f);
      LEEWAY_RETURN_IF_ERROR(model_->Backward(by_logprob_, by_entropy_, gradients));
      batch = ExampleBatch();
    }
    return loss;
  }

 private:
  Transformer<float>* const model_;
  PositionScores<float> scores_;
  std::vector<float> by_logprob_;
  std::vector<float> by_entropy_;
};

}  // namespace

absl::StatusOr<DemonstrationSequence> MakeDemonstrationSequence(const Demonstration& demonstration,
                                                                const Tokenizer& tokenizer) {
  DemonstrationSequence sequence;
  std::vector<int32_t> ids = {tokenizer.beginning_id()};
  for (const auto& [observation, answer] : demonstration.turns) {
    LEEWAY_ASSIGN_OR_RETURN(const std::vector<int32_t> observed, tokenizer.Encode(observation.text));
    LEEWAY_ASSIGN_OR_RETURN(std::vector<int32_t> answered, tokenizer.Encode(answer));
    ids.insert(ids.end(), observed.begin(), observed.end());
    if (static_cast<int64_t>(answered.size()) > observation.max_answer_tokens) {
      return absl::InvalidArgumentError(absl::StrCat("the demonstrated answer \"", answer, "\" has ", answered.size(),
                                                     " tokens, the turn allows ", observation.max_answer_tokens));
    }
    int32_t legal_set = -1;
    const bool may_end = !observation.legal_characters.has_value() || observation.end_of_text_is_legal;
    if (observation.legal_characters.has_value()) {
      LEEWAY_ASSIGN_OR_RETURN(std::vector<int32_t> legal,
                              LegalIds(tokenizer, *observation.legal_characters, observation.end_of_text_is_legal));
      legal_set = static_cast<int32_t>(sequence.legal_sets.size());
      sequence.legal_sets.push_back(std::move(legal));
    }
    if (may_end && static_cast<int64_t>(answered.size()) < observation.max_answer_tokens) {
      answered.push_back(tokenizer.end_of_text_id());
    }
    for (int32_t id : answered) {
      if (legal_set >= 0 &&
          !std::binary_search(sequence.legal_sets[legal_set].begin(), sequence.legal_sets[legal_set].end(), id)) {
        return absl::InvalidArgumentError(absl::StrCat("the demonstrated answer \"", answer, "\" is not legal"));
      }
      sequence.positions.push_back({static_cast<int64_t>(ids.size()) - 1, id, 1.0f, legal_set});
      ids.push_back(id);
    }
  }
  if (sequence.positions.empty()) return absl::InvalidArgumentError("a demonstration without an answered token");
  ids.resize(static_cast<size_t>(sequence.positions.back().row) + 1);
  sequence.tokens = std::move(ids);
  return sequence;
}

absl::StatusOr<WarmStartResult> RunWarmStart(const TrainerOptions& options, const Task& task,
                                             const Tokenizer& tokenizer, const std::atomic<bool>& stop,
                                             ParallelFor* parallel, std::vector<float>* parameters) {
  OptimizerOptions optimizer_options = options.optimizer;
  optimizer_options.weight_decay = 0;
  AdamW optimizer(optimizer_options, ParameterLayout(options.model), parallel);
  Transformer<float> model(options.model, parallel);
  SupervisedPass pass(&model);
  std::vector<float> gradients(parameters->size());
  WarmStartResult result;
  LivenessLog liveness;
  for (int64_t step = 1; step <= options.warm_start.steps; ++step) {
    if (stop.load()) {
      result.was_stopped = true;
      return result;
    }
    std::vector<DemonstrationSequence> examples;
    for (int64_t i = 0; i < options.warm_start.examples_per_step; ++i) {
      LEEWAY_ASSIGN_OR_RETURN(DemonstrationSequence example, ExampleOf(options, task, tokenizer, step, i));
      examples.push_back(std::move(example));
    }
    std::fill(gradients.begin(), gradients.end(), 0.0f);
    model.SetParameters(*parameters);
    LEEWAY_ASSIGN_OR_RETURN(const double loss,
                            pass.Run(examples, options.micro_batch_tokens, absl::MakeSpan(gradients)));
    const double norm = GlobalNorm(gradients, parallel);
    if (!std::isfinite(loss) || !std::isfinite(norm)) {
      return absl::InternalError(absl::StrCat("warm start: loss ", loss, ", gradient norm ", norm, " in step ", step,
                                              "; lower trainer.warm_start.learning_rate"));
    }
    optimizer.Step(options.warm_start.learning_rate, ClipScale(norm, optimizer_options.max_grad_norm), gradients,
                   absl::MakeSpan(*parameters));
    if (step == 1) result.first_loss = loss;
    result.last_loss = loss;
    if (liveness.IsDue() || step % kStepsPerLogLine == 0 || step == options.warm_start.steps) {
      liveness.Begin();
      LEEWAY_LOG_INFO("warm start: step {} of {}, loss {:.4f}", step, options.warm_start.steps, loss);
    }
  }
  return result;
}

}  // namespace leeway
