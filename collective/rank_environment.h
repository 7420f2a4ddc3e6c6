#ifndef LEEWAY_COLLECTIVE_RANK_ENVIRONMENT_H_
#define LEEWAY_COLLECTIVE_RANK_ENVIRONMENT_H_

// Which rank of how many this process is, told by whoever started it: a pure function of the environment's variables.

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace leeway {

struct RankEnvironment {
  // "torchrun" (also leeway's own launcher and Kubernetes' training operator, which set the same variables), "MPI",
  // "Slurm", or "none": a process that was started alone.
  std::string launcher = "none";
  int rank = 0;
  int size = 1;
  // Among the ranks of this machine, for the choice of a device; 0 where the launcher does not say.
  int local_rank = 0;
  // Where rank 0's machine may host the rendezvous. Empty and 0 where no variable says so; a launcher that hosts it
  // elsewhere has its own ways.
  std::string address;
  int port = 0;
  // Changes whenever the launcher starts the same ranks anew: for the rendezvous' generation. "" for "none".
  std::string attempt;

  friend bool operator==(const RankEnvironment&, const RankEnvironment&) = default;
};

// Reads, and the first that is there wins, because it was started last:
//   torchrun  RANK WORLD_SIZE [LOCAL_RANK] [TORCHELASTIC_RUN_ID] [TORCHELASTIC_RESTART_COUNT]
//   MPI       OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE [OMPI_COMM_WORLD_LOCAL_RANK] (Open MPI), or
//             PMI_RANK PMI_SIZE [MPI_LOCALRANKID] (MPICH, Intel MPI)
//   Slurm     SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID, of a step made by srun; a batch script is not a rank
// and for all of them MASTER_ADDR with MASTER_PORT; Slurm without these: the first node of the step, and a port made of
// the job's number.
// INVALID_ARGUMENT lists everything that is missing, not a number or contradictory, by variable and value.
absl::StatusOr<RankEnvironment> FindRankEnvironment(const std::map<std::string, std::string>& variables);

// This process's variables.
std::map<std::string, std::string> ProcessVariables();

// The first host of a Slurm list: "gpu[007-009,12],login" -> "gpu007". Empty for an empty list.
std::string FirstSlurmHost(const std::string& list);

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_RANK_ENVIRONMENT_H_
