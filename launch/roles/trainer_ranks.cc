#include "launch/roles/trainer_ranks.h"

#include "base/failpoint.h"
#include "base/status_macros.h"
#include "collective/cpu/gloo_communicator.h"
#include "fmt/format.h"

namespace leeway {

absl::StatusOr<RankEnvironment> FindTrainerRank(const Config& config) {
  LEEWAY_ASSIGN_OR_RETURN(const RankEnvironment environment, FindRankEnvironment(ProcessVariables()));
  const int64_t ranks = config.GetInteger("trainer.ranks");
  if (environment.size == ranks) return environment;
  if (environment.launcher == "none") {
    return absl::InvalidArgumentError(
        fmt::format("trainer.ranks = {}, but this process was started alone: use `leeway train`, or start {} of them "
                    "with torchrun, srun or mpirun",
                    ranks, ranks));
  }
  // A job of other programs may have started a trainer that is meant to be alone.
  if (ranks == 1) return RankEnvironment();
  return absl::InvalidArgumentError(
      fmt::format("trainer.ranks = {}, but {} started {} processes", ranks, environment.launcher, environment.size));
}

absl::StatusOr<TrainerRanks> JoinTrainerRanks(const Config& config, const RunPaths& paths,
                                              const RankEnvironment& environment) {
  TrainerRanks ranks;
  if (environment.size == 1) return ranks;
  ranks.store = std::make_unique<FileRendezvousStore>(paths.rendezvous());
  GlooOptions options;
  options.rank = environment.rank;
  options.size = environment.size;
  options.store = ranks.store.get();
  options.interface = config.GetString("trainer.interface");
  options.timeout = absl::Seconds(config.GetReal("trainer.rank_timeout"));
  options.rendezvous_timeout = 10 * options.timeout;
  options.name = "trainer";
  options.generation = environment.attempt;
  LEEWAY_FAILPOINT("trainer_before_join");
  LEEWAY_ASSIGN_OR_RETURN(ranks.world, CreateGlooCommunicator(options));
  LEEWAY_FAILPOINT("trainer_after_join");
  LEEWAY_ASSIGN_OR_RETURN(ranks.commands, ranks.world->Split(0, "commands"));
  return ranks;
}

}  // namespace leeway
