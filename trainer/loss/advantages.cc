#include "trainer/loss/advantages.h"

#include <algorithm>
#include <cmath>

#include "trainer/enum_names.h"

namespace leeway {
namespace {

constexpr double kStdEpsilon = 1e-6;

constexpr internal::EnumName<AdvantageKind> kKinds[] = {
    {AdvantageKind::kGrpo, "grpo"},
    {AdvantageKind::kDrGrpo, "dr_grpo"},
    {AdvantageKind::kRloo, "rloo"},
    {AdvantageKind::kReinforcePlusPlusBaseline, "reinforce_pp_baseline"},
};

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Unbiased. REQUIRES: two values or more.
double StandardDeviation(const std::vector<double>& values, double mean) {
  double squares = 0;
  for (double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

bool AllEqual(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [&](double value) { return value == values.front(); });
}

// Advantages of one group's rewards before any batch statistics.
std::vector<double> GroupAdvantages(AdvantageKind kind, const std::vector<double>& rewards) {
  std::vector<double> advantages(rewards.size(), 0.0);
  // Equal rewards are recognised as such: their mean may differ from them by rounding, which a division by a tiny std
  // would blow up.
  if (rewards.size() < 2 || AllEqual(rewards)) return advantages;
  const double count = static_cast<double>(rewards.size());
  const double mean = Mean(rewards);
  double scale = 1.0;
  if (kind == AdvantageKind::kGrpo) scale = 1.0 / (StandardDeviation(rewards, mean) + kStdEpsilon);
  if (kind == AdvantageKind::kRloo) scale = count / (count - 1.0);
  for (size_t i = 0; i < rewards.size(); ++i) advantages[i] = (rewards[i] - mean) * scale;
  return advantages;
}

// (A - mean) / (std + epsilon) over all present advantages of the groups that count.
void NormaliseOverBatch(const std::vector<bool>& zero_advantage,
                        std::vector<std::vector<std::optional<double>>>* advantages) {
  std::vector<double> present;
  for (size_t g = 0; g < advantages->size(); ++g) {
    if (zero_advantage[g]) continue;
    for (const std::optional<double>& advantage : (*advantages)[g]) {
      if (advantage.has_value()) present.push_back(*advantage);
    }
  }
  if (present.size() < 2 || AllEqual(present)) return;
  const double mean = Mean(present);
  const double scale = 1.0 / (StandardDeviation(present, mean) + kStdEpsilon);
  for (size_t g = 0; g < advantages->size(); ++g) {
    if (zero_advantage[g]) continue;
    // A group whose members did equally well says nothing about which of them was better: its zeros stay zeros.
    const auto is_zero = [](const std::optional<double>& advantage) { return advantage.value_or(0.0) == 0.0; };
    if (std::all_of((*advantages)[g].begin(), (*advantages)[g].end(), is_zero)) continue;
    for (std::optional<double>& advantage : (*advantages)[g]) {
      if (advantage.has_value()) advantage = (*advantage - mean) * scale;
    }
  }
}

}  // namespace

absl::StatusOr<AdvantageKind> ParseAdvantageKind(absl::string_view name) {
  return internal::ParseEnum(kKinds, "advantage", name);
}

absl::string_view AdvantageKindName(AdvantageKind kind) { return internal::NameOfEnum(kKinds, kind); }

const std::vector<std::string>& AdvantageKindNames() {
  static const auto* const names = new std::vector<std::string>(internal::EnumNames(kKinds));
  return *names;
}

std::optional<double> TrainableReward(const v1::Trajectory& trajectory) {
  if (trajectory.outcome() != v1::COMPLETED || trajectory.score().status() != v1::Score::SCORED) return std::nullopt;
  if (!trajectory.score().has_reward()) return std::nullopt;
  return trajectory.score().reward();
}

std::vector<std::vector<std::optional<double>>> ComputeAdvantages(
    AdvantageKind kind, const std::vector<std::vector<std::optional<double>>>& rewards,
    const std::vector<bool>& zero_advantage) {
  std::vector<std::vector<std::optional<double>>> advantages(rewards.size());
  for (size_t g = 0; g < rewards.size(); ++g) {
    std::vector<double> present;
    for (const std::optional<double>& reward : rewards[g]) {
      if (reward.has_value()) present.push_back(*reward);
    }
    std::vector<double> of_present(present.size(), 0.0);
    if (!zero_advantage[g]) of_present = GroupAdvantages(kind, present);
    size_t next = 0;
    for (const std::optional<double>& reward : rewards[g]) {
      advantages[g].push_back(reward.has_value() ? std::optional<double>(of_present[next++]) : std::nullopt);
    }
  }
  if (kind == AdvantageKind::kReinforcePlusPlusBaseline) NormaliseOverBatch(zero_advantage, &advantages);
  return advantages;
}

}  // namespace leeway
