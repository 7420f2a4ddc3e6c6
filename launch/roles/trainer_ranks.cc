#include "launch/roles/trainer_ranks.h"

#include <algorithm>

#include "base/status_macros.h"
#include "collective/cpu/gloo_communicator.h"
#include "fmt/format.h"

namespace leeway {
namespace {

// Longer than anything that rank 0 waits for between two commands: a queue that is away, a publish, evaluations.
constexpr absl::Duration kCommandTimeout = absl::Minutes(15);

}  // namespace

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
  options.generation = environment.attempt + "-work";
  LEEWAY_ASSIGN_OR_RETURN(ranks.world, CreateGlooCommunicator(options));
  options.name = "commands";
  options.generation = environment.attempt + "-commands";
  options.timeout = std::max(kCommandTimeout, options.timeout);
  LEEWAY_ASSIGN_OR_RETURN(ranks.commands, CreateGlooCommunicator(options));
  return ranks;
}

}  // namespace leeway
