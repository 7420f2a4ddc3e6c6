#ifndef LEEWAY_TRAINER_OPTIMIZER_SGD_H_
#define LEEWAY_TRAINER_OPTIMIZER_SGD_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/optimizer_options.h"

namespace leeway {

// Gradient descent without momentum, with AdamW's decoupled weight decay: values * (1 - rate * decay) - rate *
// gradient. No state: what is left of a model's memory is itself and its gradients; and a step shows the gradient as it
// is.
template <typename Real>
class Sgd : public Optimizer<Real> {
 public:
  Sgd(const OptimizerOptions& options, absl::Span<const OptimizerPart> parts) : options_(options) {
    for (const OptimizerPart& part : parts) {
      parts_.push_back({part.count, part.parameter.shape.size() > 1});
    }
  }

  void Begin(double learning_rate, double gradient_scale) override {
    ++updates_;
    rate_ = static_cast<Real>(learning_rate * gradient_scale);
    keep_ = static_cast<Real>(1.0 - learning_rate * options_.weight_decay);
  }

  absl::Status Update(absl::Span<const PartUpdate<Real>> parts) override {
    for (const PartUpdate<Real>& update : parts) {
      const Part& part = parts_[static_cast<size_t>(update.part)];
      const Real keep = part.decays ? keep_ : Real(1);
      for (int64_t i = 0; i < part.count; ++i) {
        update.values[i] = update.values[i] * keep - rate_ * update.gradients[i];
      }
    }
    return absl::OkStatus();
  }

  int64_t updates() const override { return updates_; }
  void set_updates(int64_t updates) override { updates_ = updates; }
  std::vector<PartState<Real>> PartStates() override { return {}; }
  int64_t state_bytes() const override { return 0; }

 private:
  struct Part {
    int64_t count = 0;
    bool decays = false;
  };

  const OptimizerOptions options_;
  std::vector<Part> parts_;
  int64_t updates_ = 0;
  Real rate_ = 0;
  Real keep_ = 1;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_OPTIMIZER_SGD_H_
