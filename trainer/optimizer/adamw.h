#ifndef LEEWAY_TRAINER_OPTIMIZER_ADAMW_H_
#define LEEWAY_TRAINER_OPTIMIZER_ADAMW_H_

// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", arXiv 1711.05101), elementwise: neither
// threads nor the way in which parameters are cut into parts change a bit.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/executor.h"
#include "model/shape.h"
#include "trainer/optimizer/global_norm.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/optimizer_options.h"

namespace leeway {

// State: first and second moment per element, parts back to back, and the number of updates made.
template <typename Real>
class BasicAdamW : public Optimizer<Real> {
 public:
  struct State {
    std::vector<Real> first_moment;
    std::vector<Real> second_moment;
    int64_t updates = 0;
  };

  // Zero state. `parallel` outlives the object.
  BasicAdamW(const OptimizerOptions& options, absl::Span<const OptimizerPart> parts, ParallelFor* parallel);
  // For whole parameters.
  BasicAdamW(const OptimizerOptions& options, const std::vector<ParameterInfo>& layout, ParallelFor* parallel);

  void Begin(double learning_rate, double gradient_scale) override;
  absl::Status Update(absl::Span<const PartUpdate<Real>> parts) override;

  // One update of all parts, whose gradients and values lie back to back. REQUIRES: sizes as in the layout.
  void Step(double learning_rate, double gradient_scale, absl::Span<const Real> gradients, absl::Span<Real> parameters);

  int64_t updates() const override { return state_.updates; }
  void set_updates(int64_t updates) override { state_.updates = updates; }
  std::vector<PartState<Real>> PartStates() override;
  int64_t state_bytes() const override { return 2 * total_ * static_cast<int64_t>(sizeof(Real)); }

  const State& state() const { return state_; }
  // REQUIRES: sizes as in the layout.
  void set_state(State state);

 private:
  // Constants of one update, folded in double.
  struct Constants {
    Real scale = 1;
    Real beta1 = 0;
    Real one_minus_beta1 = 0;
    Real beta2 = 0;
    Real one_minus_beta2 = 0;
    Real step_size = 0;     // learning_rate / (1 - beta1^k)
    Real inverse_root = 0;  // 1 / sqrt(1 - beta2^k)
    Real epsilon = 0;
    Real keep = 1;  // 1 - learning_rate * weight_decay
  };
  struct Part {
    int64_t offset = 0;  // into the moments
    int64_t count = 0;
    bool decays = false;
  };

  static void UpdateElements(const Constants& c, int64_t count, const Real* gradients, Real* first, Real* second,
                             Real* values);
  void UpdateRange(int64_t offset, int64_t count, bool decays, const Real* gradients, Real* values);

  const OptimizerOptions options_;
  ParallelFor* const parallel_;
  std::vector<Part> parts_;
  int64_t total_ = 0;  // elements
  State state_;
  Constants constants_;
  Real keep_ = 1;  // of parameters that decay
};

using AdamW = BasicAdamW<float>;

extern template class BasicAdamW<float>;
extern template class BasicAdamW<double>;

}  // namespace leeway

#endif  // LEEWAY_TRAINER_OPTIMIZER_ADAMW_H_
