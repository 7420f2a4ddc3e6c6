#ifndef LEEWAY_TRAINER_OPTIMIZER_OPTIMIZER_H_
#define LEEWAY_TRAINER_OPTIMIZER_OPTIMIZER_H_

// The update rules behind one interface. An optimizer keeps state for the part of every parameter that this rank
// updates (a run of whole rows; of a one-dimensional parameter, of elements), so that the same rules serve a whole
// model and a shard of it.
//
// One update: Begin, then Update with the parts of every parameter once, in any grouping that all ranks share.
// One caller at a time. Real = float (product) or double (the tests' oracle).

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "model/shape.h"

namespace leeway {

// What this rank updates of one parameter; `count` 0 = nothing, but the parameter takes part all the same.
struct OptimizerPart {
  ParameterInfo parameter;
  int64_t first_row = 0;
  int64_t count = 0;  // elements
};

// One part's memory in an update.
template <typename Real>
struct PartUpdate {
  int64_t part = 0;                 // index into the parts that the optimizer was made with
  const Real* gradients = nullptr;  // before scaling
  Real* values = nullptr;
};

// A state array of one part, for checkpoints: "first_moment" of part 3.
template <typename Real>
struct PartState {
  const char* name = "";
  int64_t part = 0;
  absl::Span<Real> values;
};

template <typename Real>
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // The next update multiplies gradients by `gradient_scale`.
  virtual void Begin(double learning_rate, double gradient_scale) = 0;
  // May communicate (then its errors are the communicator's, and the state is useless after one).
  virtual absl::Status Update(absl::Span<const PartUpdate<Real>> parts) = 0;

  // Updates made. Together with the arrays of PartStates all there is to the state.
  virtual int64_t updates() const = 0;
  virtual void set_updates(int64_t updates) = 0;
  virtual std::vector<PartState<Real>> PartStates() = 0;
  virtual int64_t state_bytes() const = 0;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_OPTIMIZER_OPTIMIZER_H_
