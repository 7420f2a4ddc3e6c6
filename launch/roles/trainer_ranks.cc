#include "launch/roles/trainer_ranks.h"

#include "base/failpoint.h"
#include "base/status_macros.h"
#include "collective/cpu/gloo_communicator.h"
#include "fmt/format.h"

namespace leeway {

absl::StatusOr<RankEnvironment> FindTrainerRank(const Config& config) {
  const int64_t ranks = config.GetInteger("trainer.ranks");
  const absl::StatusOr<RankEnvironment> found = FindRankEnvironment(ProcessVariables());
  // A trainer that is alone needs none of it, whatever shell it was started from.
  if (!found.ok()) return ranks == 1 ? RankEnvironment() : absl::StatusOr<RankEnvironment>(found.status());
  if (found->size == ranks) return *found;
  if (found->launcher == "none") {
    return absl::InvalidArgumentError(
        fmt::format("trainer.ranks = {}, but this process was started alone: use `leeway train`, or start {} of them "
                    "with torchrun, srun or mpirun",
                    ranks, ranks));
  }
  return absl::InvalidArgumentError(
      fmt::format("trainer.ranks = {}, but {} started {} processes", ranks, found->launcher, found->size));
}

absl::StatusOr<TrainerRanks> JoinTrainerRanks(const Config& config, const RunPaths& paths,
                                              const RankEnvironment& environment) {
  TrainerRanks ranks;
  if (environment.size == 1) return ranks;
  // Who knows a rank's addresses could connect in its place.
  LEEWAY_RETURN_IF_ERROR(MakePrivateFolder(paths.rendezvous()));
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
  absl::StatusOr<std::unique_ptr<Communicator>> world = CreateGlooCommunicator(options);
  if (absl::IsAlreadyExists(world.status())) {
    return absl::AlreadyExistsError(fmt::format(
        "{}; if it has died while the ranks met, remove {} and start all of them again, or give every start another "
        "name (torchrun --rdzv-id)",
        std::string(world.status().message()), paths.rendezvous()));
  }
  LEEWAY_RETURN_IF_ERROR(world.status());
  ranks.world = *std::move(world);
  LEEWAY_FAILPOINT("trainer_after_join");
  // All have met: what they told each other is of no more use, and a later start may bear the same name.
  LEEWAY_RETURN_IF_ERROR(ranks.world->Barrier());
  if (environment.rank == 0) ranks.store->Clear();
  LEEWAY_ASSIGN_OR_RETURN(ranks.commands, ranks.world->Split(0, "commands"));
  return ranks;
}

}  // namespace leeway
