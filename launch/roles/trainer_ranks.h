#ifndef LEEWAY_LAUNCH_ROLES_TRAINER_RANKS_H_
#define LEEWAY_LAUNCH_ROLES_TRAINER_RANKS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "collective/communicator.h"
#include "collective/cpu/file_rendezvous_store.h"
#include "collective/rank_environment.h"
#include "launch/config/config.h"
#include "launch/run/run_directory.h"

namespace leeway {

// The communicators of one of several trainer processes; none of one that is alone.
struct TrainerRanks {
  std::unique_ptr<FileRendezvousStore> store;
  std::unique_ptr<Communicator> world;
  std::unique_ptr<Communicator> commands;
};

// Which rank this process is, by the variables of leeway's launcher, torchrun, MPI or Slurm. INVALID_ARGUMENT: they
// contradict themselves or trainer.ranks.
absl::StatusOr<RankEnvironment> FindTrainerRank(const Config& config);

// Meets the other ranks in the run directory, which all of them see. Blocks until they are there, for ten times
// trainer.rank_timeout at most. Errors as CreateGlooCommunicator.
absl::StatusOr<TrainerRanks> JoinTrainerRanks(const Config& config, const RunPaths& paths,
                                              const RankEnvironment& environment);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_ROLES_TRAINER_RANKS_H_
