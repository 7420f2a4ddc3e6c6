#include "trainer/optimizer/adamw.h"

#include <cmath>
#include <utility>

#include "base/status_macros.h"

namespace leeway {
namespace {

// Elements below which a second thread costs more than it saves.
constexpr int64_t kMinimumPerThread = 16'384;

std::vector<OptimizerPart> WholeParameters(const std::vector<ParameterInfo>& layout) {
  std::vector<OptimizerPart> parts;
  int64_t total = 0;
  for (const ParameterInfo& parameter : layout) {
    LEEWAY_CHECK(parameter.offset == total) << parameter.name << " at " << parameter.offset << ", expected " << total;
    total += parameter.element_count;
    parts.push_back({parameter, 0, parameter.element_count});
  }
  return parts;
}

}  // namespace

// p = p * keep - step_size * m / (sqrt(v) * inverse_root + epsilon). The pointers do not overlap, so that the loop is
// vectorised.
template <typename Real>
void BasicAdamW<Real>::UpdateElements(const Constants& c, int64_t count, const Real* __restrict gradients,
                                      Real* __restrict first, Real* __restrict second, Real* __restrict values) {
  for (int64_t i = 0; i < count; ++i) {
    const Real gradient = gradients[i] * c.scale;
    first[i] = c.beta1 * first[i] + c.one_minus_beta1 * gradient;
    second[i] = c.beta2 * second[i] + c.one_minus_beta2 * gradient * gradient;
    values[i] = values[i] * c.keep - c.step_size * first[i] / (std::sqrt(second[i]) * c.inverse_root + c.epsilon);
  }
}

template <typename Real>
BasicAdamW<Real>::BasicAdamW(const OptimizerOptions& options, absl::Span<const OptimizerPart> parts,
                             ParallelFor* parallel)
    : options_(options), parallel_(parallel) {
  for (const OptimizerPart& part : parts) {
    parts_.push_back({total_, part.count, part.parameter.shape.size() > 1});
    total_ += part.count;
  }
  state_.first_moment.assign(static_cast<size_t>(total_), Real{0});
  state_.second_moment.assign(static_cast<size_t>(total_), Real{0});
}

template <typename Real>
BasicAdamW<Real>::BasicAdamW(const OptimizerOptions& options, const std::vector<ParameterInfo>& layout,
                             ParallelFor* parallel)
    : BasicAdamW(options, WholeParameters(layout), parallel) {}

template <typename Real>
void BasicAdamW<Real>::Begin(double learning_rate, double gradient_scale) {
  ++state_.updates;
  const double updates = static_cast<double>(state_.updates);
  constants_.scale = static_cast<Real>(gradient_scale);
  constants_.beta1 = static_cast<Real>(options_.beta1);
  constants_.one_minus_beta1 = static_cast<Real>(1.0 - options_.beta1);
  constants_.beta2 = static_cast<Real>(options_.beta2);
  constants_.one_minus_beta2 = static_cast<Real>(1.0 - options_.beta2);
  constants_.step_size = static_cast<Real>(learning_rate / (1.0 - std::pow(options_.beta1, updates)));
  constants_.inverse_root = static_cast<Real>(1.0 / std::sqrt(1.0 - std::pow(options_.beta2, updates)));
  constants_.epsilon = static_cast<Real>(options_.epsilon);
  keep_ = static_cast<Real>(1.0 - learning_rate * options_.weight_decay);
}

template <typename Real>
void BasicAdamW<Real>::UpdateRange(int64_t offset, int64_t count, bool decays, const Real* gradients, Real* values) {
  Constants constants = constants_;
  constants.keep = decays ? keep_ : Real{1};
  parallel_->Run(count, kMinimumPerThread, [&](int64_t begin, int64_t end) {
    UpdateElements(constants, end - begin, gradients + begin, state_.first_moment.data() + offset + begin,
                   state_.second_moment.data() + offset + begin, values + begin);
  });
}

template <typename Real>
absl::Status BasicAdamW<Real>::Update(absl::Span<const PartUpdate<Real>> parts) {
  for (const PartUpdate<Real>& update : parts) {
    const Part& part = parts_[static_cast<size_t>(update.part)];
    UpdateRange(part.offset, part.count, part.decays, update.gradients, update.values);
  }
  return absl::OkStatus();
}

template <typename Real>
void BasicAdamW<Real>::Step(double learning_rate, double gradient_scale, absl::Span<const Real> gradients,
                            absl::Span<Real> parameters) {
  LEEWAY_CHECK(static_cast<int64_t>(gradients.size()) == total_ && parameters.size() == gradients.size())
      << gradients.size() << " gradients, " << parameters.size() << " parameters, " << total_ << " moments";
  Begin(learning_rate, gradient_scale);
  // Neighbours that are treated alike go together: there are many small parameters.
  for (size_t first = 0; first < parts_.size();) {
    size_t last = first + 1;
    while (last < parts_.size() && parts_[last].decays == parts_[first].decays) ++last;
    const int64_t offset = parts_[first].offset;
    const int64_t end = parts_[last - 1].offset + parts_[last - 1].count;
    UpdateRange(offset, end - offset, parts_[first].decays, gradients.data() + offset, parameters.data() + offset);
    first = last;
  }
}

template <typename Real>
std::vector<PartState<Real>> BasicAdamW<Real>::PartStates() {
  std::vector<PartState<Real>> states;
  for (size_t p = 0; p < parts_.size(); ++p) {
    const auto slice = [&](std::vector<Real>& moments) {
      return absl::MakeSpan(moments).subspan(static_cast<size_t>(parts_[p].offset),
                                             static_cast<size_t>(parts_[p].count));
    };
    states.push_back({"first_moment", static_cast<int64_t>(p), slice(state_.first_moment)});
    states.push_back({"second_moment", static_cast<int64_t>(p), slice(state_.second_moment)});
  }
  return states;
}

template <typename Real>
void BasicAdamW<Real>::set_state(State state) {
  LEEWAY_CHECK(state.first_moment.size() == state_.first_moment.size() &&
               state.second_moment.size() == state_.second_moment.size())
      << "optimizer state of " << state.first_moment.size() << " elements for " << state_.first_moment.size();
  state_ = std::move(state);
}

template class BasicAdamW<float>;
template class BasicAdamW<double>;

}  // namespace leeway
