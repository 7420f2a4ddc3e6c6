#ifndef LEEWAY_MODEL_TRANSFORMER_PARAMETER_STREAM_H_
#define LEEWAY_MODEL_TRANSFORMER_PARAMETER_STREAM_H_

// How a Transformer works with parameters and gradients that are not all on its rank (ZeRO stages 2 and 3; Rajbhandari
// et al., arXiv 1910.02054): unit by unit (ParameterUnits), in an order that depends on the shape only, also for a
// batch without tokens. Implemented by trainer/parallel.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/weight_format.h"

namespace leeway {

// Called by the Transformer's caller's thread; may block on other ranks.
template <typename Real>
class ParameterStream {
 public:
  virtual ~ParameterStream() = default;
  // All parameters of the unit, valid until the next call of Acquire. `next` is the unit that will be asked for after
  // it, so that its gathering may begin; -1 = none.
  virtual absl::StatusOr<WeightSpan<Real>> Acquire(int64_t unit, int64_t next) = 0;
};

template <typename Real>
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // The whole gradient of a unit, once a backward pass; valid during the call.
  virtual absl::Status Add(int64_t unit, absl::Span<const Real> gradient) = 0;
};

}  // namespace leeway

#endif  // LEEWAY_MODEL_TRANSFORMER_PARAMETER_STREAM_H_
