#include "trainer/optimizer/adamw.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

constexpr int64_t kNormBlock = 4'096;
// Elements below which a second thread costs more than it saves.
constexpr int64_t kMinimumPerThread = 16'384;

void Check(bool ok, const char* field, std::string message, std::vector<ConfigProblem>* problems) {
  if (!ok) problems->push_back({absl::StrCat("optimizer.", field), std::move(message)});
}

// Sum of squares in double; eight accumulators so that it vectorises, joined in one fixed order.
double SumOfSquares(const float* values, int64_t count) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < count; ++i) {
    const double value = values[i];
    lanes[0] += value * value;
  }
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

// Constants of one update, folded in double.
struct UpdateConstants {
  float scale = 1;
  float beta1 = 0;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float step_size = 0;     // learning_rate / (1 - beta1^k)
  float inverse_root = 0;  // 1 / sqrt(1 - beta2^k)
  float epsilon = 0;
  float keep = 1;  // 1 - learning_rate * weight_decay
};

// p = p * keep - step_size * m / (sqrt(v) * inverse_root + epsilon). The pointers do not overlap, so that the loop is
// vectorised.
void UpdateElements(const UpdateConstants& c, int64_t count, const float* __restrict gradients, float* __restrict first,
                    float* __restrict second, float* __restrict parameters) {
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = gradients[i] * c.scale;
    first[i] = c.beta1 * first[i] + c.one_minus_beta1 * gradient;
    second[i] = c.beta2 * second[i] + c.one_minus_beta2 * gradient * gradient;
    parameters[i] =
        parameters[i] * c.keep - c.step_size * first[i] / (std::sqrt(second[i]) * c.inverse_root + c.epsilon);
  }
}

}  // namespace

std::vector<ConfigProblem> OptimizerProblems(const OptimizerOptions& options) {
  std::vector<ConfigProblem> problems;
  const LearningRateSchedule& schedule = options.schedule;
  Check(schedule.peak >= 0 && std::isfinite(schedule.peak), "learning_rate",
        absl::StrCat(schedule.peak, " is not a number >= 0"), &problems);
  Check(schedule.warmup_steps >= 0, "warmup_steps", absl::StrCat(schedule.warmup_steps, " is negative"), &problems);
  Check(schedule.kind == ScheduleKind::kConstant || schedule.total_steps > schedule.warmup_steps, "warmup_steps",
        absl::StrCat(schedule.warmup_steps, " leaves none of the run's ", schedule.total_steps,
                     " steps to decay over; lower it, or use schedule = \"constant\""),
        &problems);
  Check(schedule.final_fraction >= 0 && schedule.final_fraction <= 1, "final_fraction",
        absl::StrCat(schedule.final_fraction, " is not between 0 and 1"), &problems);
  Check(options.beta1 >= 0 && options.beta1 < 1, "beta1", absl::StrCat(options.beta1, " is not in [0, 1)"), &problems);
  Check(options.beta2 >= 0 && options.beta2 < 1, "beta2", absl::StrCat(options.beta2, " is not in [0, 1)"), &problems);
  Check(options.epsilon > 0 && std::isfinite(options.epsilon), "epsilon",
        absl::StrCat(options.epsilon, " is not a number > 0"), &problems);
  Check(options.weight_decay >= 0 && std::isfinite(options.weight_decay), "weight_decay",
        absl::StrCat(options.weight_decay, " is not a number >= 0"), &problems);
  Check(options.max_grad_norm >= 0 && std::isfinite(options.max_grad_norm), "max_grad_norm",
        absl::StrCat(options.max_grad_norm, " is not a number >= 0 (0 = no clipping)"), &problems);
  return problems;
}

double GlobalNorm(absl::Span<const float> gradients, ParallelFor* parallel) {
  const int64_t count = static_cast<int64_t>(gradients.size());
  const int64_t blocks = (count + kNormBlock - 1) / kNormBlock;
  std::vector<double> partial(blocks);
  parallel->Run(blocks, kMinimumPerThread / kNormBlock, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kNormBlock;
      partial[block] = SumOfSquares(gradients.data() + first, std::min(kNormBlock, count - first));
    }
  });
  double sum = 0;
  for (double value : partial) sum += value;
  return std::sqrt(sum);
}

AdamW::AdamW(const OptimizerOptions& options, const std::vector<ParameterInfo>& layout, ParallelFor* parallel)
    : options_(options), parallel_(parallel) {
  int64_t total = 0;
  for (const ParameterInfo& parameter : layout) {
    const bool decays = parameter.shape.size() > 1;
    LEEWAY_CHECK(parameter.offset == total) << parameter.name << " at " << parameter.offset << ", expected " << total;
    total += parameter.element_count;
    if (!segments_.empty() && segments_.back().decays == decays) {
      segments_.back().end = total;
    } else {
      segments_.push_back({parameter.offset, total, decays});
    }
  }
  state_.first_moment.assign(total, 0.0f);
  state_.second_moment.assign(total, 0.0f);
}

void AdamW::Step(double learning_rate, double gradient_scale, absl::Span<const float> gradients,
                 absl::Span<float> parameters) {
  LEEWAY_CHECK(gradients.size() == state_.first_moment.size() && parameters.size() == gradients.size())
      << gradients.size() << " gradients, " << parameters.size() << " parameters, " << state_.first_moment.size()
      << " moments";
  ++state_.updates;
  const double updates = static_cast<double>(state_.updates);
  UpdateConstants constants;
  constants.scale = static_cast<float>(gradient_scale);
  constants.beta1 = static_cast<float>(options_.beta1);
  constants.one_minus_beta1 = static_cast<float>(1.0 - options_.beta1);
  constants.beta2 = static_cast<float>(options_.beta2);
  constants.one_minus_beta2 = static_cast<float>(1.0 - options_.beta2);
  constants.step_size = static_cast<float>(learning_rate / (1.0 - std::pow(options_.beta1, updates)));
  constants.inverse_root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options_.beta2, updates)));
  constants.epsilon = static_cast<float>(options_.epsilon);
  for (const Segment& segment : segments_) {
    constants.keep = segment.decays ? static_cast<float>(1.0 - learning_rate * options_.weight_decay) : 1.0f;
    parallel_->Run(segment.end - segment.begin, kMinimumPerThread, [&](int64_t begin, int64_t end) {
      const int64_t at = segment.begin + begin;
      UpdateElements(constants, end - begin, gradients.data() + at, state_.first_moment.data() + at,
                     state_.second_moment.data() + at, parameters.data() + at);
    });
  }
}

void AdamW::set_state(State state) {
  LEEWAY_CHECK(state.first_moment.size() == state_.first_moment.size() &&
               state.second_moment.size() == state_.second_moment.size())
      << "optimizer state of " << state.first_moment.size() << " elements for " << state_.first_moment.size();
  state_ = std::move(state);
}

}  // namespace leeway
