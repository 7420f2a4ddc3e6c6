#ifndef LEEWAY_TRAINER_PARALLEL_FLOPS_H_
#define LEEWAY_TRAINER_PARALLEL_FLOPS_H_

// Floating-point operations of training, counted from the model's shape and sums over sequences; a multiply-add is two.
//
// Two conventions for attention, which differ by a third at long contexts, so that every figure names its own: *causal*
// counts the pairs at or below the diagonal at half of the square (what Megatron reports), *full* the whole square (the
// papers' formulas: 72BLsh^2(1 + s/6h + V/12hL)). Norms, softmax, rotary positions, the optimizer and the scores that a
// fused attention kernel forms again in its own backward pass are not counted.
// Pure functions.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/recompute.h"
#include "model/shape.h"

namespace leeway {

enum class AttentionCount { kCausal, kFull };

// INVALID_ARGUMENT naming the possible values: "none", "selective", "full".
absl::StatusOr<Recompute> ParseRecompute(absl::string_view name);
const std::vector<std::string>& RecomputeNames();

// What went through the model: metrics of a batch, and additive.
struct SequenceWork {
  int64_t tokens = 0;           // sum of lengths L
  int64_t squared_lengths = 0;  // sum of L^2
  int64_t scored = 0;           // positions that went through the output head

  void Add(int64_t length, int64_t scored_positions) {
    tokens += length;
    squared_lengths += length * length;
    scored += scored_positions;
  }
};

// One pass forward: a score pass, and the unit of all others.
struct ForwardFlops {
  double linear = 0;     // projections and feed-forward of all layers
  double attention = 0;  // QK^T and AV of all layers
  double head = 0;
  double total() const { return linear + attention + head; }
};
ForwardFlops CountForward(const ModelShape& shape, const SequenceWork& work, AttentionCount convention);

// Forward and backward, three times the forward pass: the numerator of MFU.
double ModelFlops(const ModelShape& shape, const SequenceWork& work, AttentionCount convention);

// The same with what `recompute` repeats, the numerator of hardware utilisation: kSelective the products of gate and
// up, kFull everything in a layer up to them. (The papers' formula for full recomputation repeats the last product
// too.) The head's products that are formed again where a micro-batch's logits do not fit into one chunk are not
// counted.
double HardwareFlops(const ModelShape& shape, const SequenceWork& work, AttentionCount convention, Recompute recompute);

// What a sequence of length L costs, linear * L + quadratic * L^2, up to a factor: for balancing. The head is counted
// at every token.
struct LengthCost {
  double linear = 1;
  double quadratic = 0;
  double Of(int64_t length) const {
    const double l = static_cast<double>(length);
    return linear * l + quadratic * l * l;
  }
};
LengthCost CostOfLength(const ModelShape& shape);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_PARALLEL_FLOPS_H_
