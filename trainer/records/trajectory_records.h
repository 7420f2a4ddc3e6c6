#ifndef LEEWAY_TRAINER_RECORDS_TRAJECTORY_RECORDS_H_
#define LEEWAY_TRAINER_RECORDS_TRAJECTORY_RECORDS_H_

// Trajectories as lines of JSON, for people and for replay. Pure functions; no newline at the end of a line.

#include <cstdint>
#include <string>

#include "leeway/v1/types.pb.h"
#include "queue/queue_client.h"
#include "tokenizer/tokenizer.h"
#include "trainer/loss/train_batch.h"

namespace leeway {

// A line of schedule.jsonl: which groups formed the batch of a step, in ticket order, and which versions produced the
// sampled tokens of each member, as runs [lineage, version, tokens]:
//   {"step":3,"groups":[{"ticket":7,"issue":1,"members":[[[1,2,5]],[[1,2,4],[1,3,1]]]}]}
std::string FormatScheduleLine(uint64_t step, const LeasedBatch& batch);

// All of one episode: key, reward (absent when there is none), text by span, ids, log-probabilities, versions.
std::string FormatTrajectoryLine(uint64_t step, const v1::Trajectory& trajectory, const Tokenizer& tokenizer);

// A whole batch whose step could not be applied, one line a trained episode: what FormatTrajectoryLine says, plus its
// advantage and the recomputed log-probabilities of its sampled tokens (numbers that are not finite as text).
std::string FormatFailedStep(uint64_t step, const LeasedBatch& leased, const TrainBatch& batch,
                             absl::Span<const double> recomputed, const Tokenizer& tokenizer);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_RECORDS_TRAJECTORY_RECORDS_H_
