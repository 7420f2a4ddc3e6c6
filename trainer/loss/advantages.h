#ifndef LEEWAY_TRAINER_LOSS_ADVANTAGES_H_
#define LEEWAY_TRAINER_LOSS_ADVANTAGES_H_

// From the rewards of a batch of groups to one advantage a member. Pure functions, arithmetic in double, fixed order of
// sums.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "leeway/v1/types.pb.h"

namespace leeway {

// R = reward, mean and std over the scored members of one group unless "batch" is said.
// Every standard deviation here is the unbiased one (divides by n-1), plus 1e-6.
enum class AdvantageKind {
  kGrpo,                       // "grpo"                    (R - mean) / (std + 1e-6)
  kDrGrpo,                     // "dr_grpo"                 R - mean
  kRloo,                       // "rloo"                    R - mean of the others = n/(n-1) * (R - mean)
  kReinforcePlusPlusBaseline,  // "reinforce_pp_baseline"  R - mean, then (A - batch mean) / (batch std + 1e-6) over all
                               // scored members
};

// INVALID_ARGUMENT naming the possible values.
absl::StatusOr<AdvantageKind> ParseAdvantageKind(absl::string_view name);
absl::string_view AdvantageKindName(AdvantageKind kind);
const std::vector<std::string>& AdvantageKindNames();

// The reward that counts: present exactly when the episode completed and was scored. UNSCORED, SCORING_FAILED and
// failed episodes have none: they enter no baseline and are not trained. A score of 0 is a reward.
std::optional<double> TrainableReward(const v1::Trajectory& trajectory);

// `rewards[g][m]` as TrainableReward gives them; `zero_advantage[g]` = the group counts but carries no advantage (its
// rewards stay out of batch statistics too). Result: same shape; absent where the reward is absent. A group with fewer
// than two rewards, or whose rewards are all equal, gets exactly 0.
std::vector<std::vector<std::optional<double>>> ComputeAdvantages(
    AdvantageKind kind, const std::vector<std::vector<std::optional<double>>>& rewards,
    const std::vector<bool>& zero_advantage);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_LOSS_ADVANTAGES_H_
