#ifndef LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_H_
#define LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_H_

// One decoder-only transformer for both sides: the engine's forward pass and the trainer's are the same functions, so
// that the log-probability recorded and the one recomputed on the same weights are equal to the bit (DESIGN 3.8).
//
// Real = float (product) or double (the tests' oracle). Explicitly instantiated in transformer.cc.
// Results of a sequence do not depend on: what else is in the call, chunking, cache or no cache, threads, instruction
// set.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/executor.h"
#include "model/recompute.h"
#include "model/shape.h"
#include "model/tensor_parallel.h"
#include "model/transformer/parameter_stream.h"
#include "model/weight_format.h"

namespace leeway {

// Keys and values of one sequence so far, in all layers. Owned by the caller (one per running request). Grows by
// blocks.
template <typename Real>
class KeyValueCache {
 public:
  explicit KeyValueCache(const ModelShape& shape);
  ~KeyValueCache();
  KeyValueCache(KeyValueCache&&) noexcept;
  KeyValueCache& operator=(KeyValueCache&&) noexcept;

  // Tokens held.
  int64_t length() const;
  // Forgets everything (weights changed, KV recomputed) but keeps the memory.
  void Clear();
  size_t size_bytes() const;

  struct State;
  State* state() { return state_.get(); }

 private:
  std::unique_ptr<State> state_;
};

// New tokens of one sequence, appended behind what its cache holds.
template <typename Real>
struct SequenceChunk {
  KeyValueCache<Real>* cache = nullptr;
  absl::Span<const int32_t> tokens;
  // Whether the logits after the last token of the chunk are wanted.
  bool wants_logits = false;
};

// Sequences packed one behind the other without padding: sequence i has rows starts[i] .. starts[i+1].
struct PackedSequences {
  std::vector<int32_t> tokens;
  std::vector<int64_t> starts = {0};
  int64_t sequence_count() const { return static_cast<int64_t>(starts.size()) - 1; }
};

// "The logits at `row`, divided by temperature and restricted to a legal set, gave `target`."
struct ScoredPosition {
  int64_t row = 0;
  int32_t target = 0;
  float temperature = 1.0f;
  // Index into the legal sets of the call; -1 = the whole vocabulary.
  int32_t legal_set = -1;
};

// Per scored position, in order.
template <typename Real>
struct PositionScores {
  std::vector<Real> logprobs;
  std::vector<Real> entropies;  // of the same (tempered, restricted) distribution
};

struct TransformerOptions {
  TensorParallel tensor_parallel;
  Recompute recompute = Recompute::kNone;
  // Not kReal: only where Real is float.
  WeightFormat weights = WeightFormat::kReal;
};

// The weights, packed for the kernels, and the passes over them.  One caller at a time; uses `parallel` for its own
// parallelism.
//
// With tensor-parallel ranks each rank holds its share (TensorShard) and all of them make the same calls with the same
// sequences; every rank gets all scores, the same bits at every number of ranks. Calls then block on the other ranks,
// within the communicator's timeout, and return its error; after one the object is of no more use.
template <typename Real>
class Transformer {
 public:
  // `shape`, of the whole model, must be valid and pass CheckTensorParallel. `parallel` outlives the object.
  Transformer(const ModelShape& shape, ParallelFor* parallel, const TransformerOptions& options = {});
  ~Transformer();

  const ModelShape& shape() const;
  // Of this rank's share; shape() when there is one rank.
  const ModelShape& shard() const;

  // Copies and packs weights given in ParameterLayout order of the share (element_count = shard().ParameterCount()).
  void SetParameters(const WeightSpan<Real>& flat);

  // Instead of SetParameters: every pass takes its weights from `stream`, which outlives the object, and holds one
  // layer of them at a time (and the head). For Score and Backward only.
  void StreamParameters(ParameterStream<Real>* stream);

  // Engine, one rank only: runs all chunks as one batch, extends their caches, and writes the logits of those that want
  // them, one row of `vocabulary` values each, in the order of the chunks. INVALID_ARGUMENT: id out of range, or past
  // max_positions.
  absl::Status Decode(absl::Span<const SequenceChunk<Real>> chunks, std::vector<Real>* logits);

  // Trainer: log-probabilities and entropies of the positions. With `keep_activations` a Backward may follow.
  absl::Status Score(const PackedSequences& sequences, absl::Span<const ScoredPosition> positions,
                     absl::Span<const std::vector<int32_t>> legal_sets, bool keep_activations,
                     PositionScores<Real>* scores);

  // Adds to `gradients` (flat, ParameterLayout order of the share) the gradient of sum_i(logprob_gradients[i]*logprob_i
  // + entropy_gradients[i]*entropy_i) of the last Score with keep_activations. Deterministic: fixed order of sums;
  // those of replicated parameters are equal on all ranks. Errors: the communicator's.
  absl::Status Backward(absl::Span<const Real> logprob_gradients, absl::Span<const Real> entropy_gradients,
                        absl::Span<Real> gradients);
  // The same, unit by unit: the last, then the layers downwards, then the embedding.
  absl::Status Backward(absl::Span<const Real> logprob_gradients, absl::Span<const Real> entropy_gradients,
                        GradientSink<Real>* sink);

  // Bytes that the last Score with keep_activations keeps for Backward (ActivationBytes says them beforehand).
  int64_t kept_bytes() const;
  // Bytes of the weights as they are held for the passes done so far (PackedWeightBytes).
  int64_t weight_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Random initialisation from (seed, RandomPurpose::kWeights): normal(0, 0.02), residual projections scaled by
// 1/sqrt(2*layers), norms 1, biases 0. Flat, ParameterLayout order.
std::vector<float> RandomParameters(const ModelShape& shape, uint64_t seed);

// In place: logits -> log-probabilities of softmax(logits / temperature) over the legal ids (ascending; empty = all);
// -infinity elsewhere. The same routine as in Score. Returns the entropy.
template <typename Real>
Real LogSoftmaxRow(absl::Span<Real> logits, float temperature, absl::Span<const int32_t> legal_ids);

}  // namespace leeway

#endif  // LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_H_
