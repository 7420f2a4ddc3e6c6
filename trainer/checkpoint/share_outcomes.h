#ifndef LEEWAY_TRAINER_CHECKPOINT_SHARE_OUTCOMES_H_
#define LEEWAY_TRAINER_CHECKPOINT_SHARE_OUTCOMES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "collective/communicator.h"
#include "trainer/checkpoint/share_writer.h"

namespace leeway {

// Every rank gives its own and gets those of all, rank 0's first. Collective; its errors are the communicator's.
absl::StatusOr<std::vector<ShareOutcome>> GatherOutcomes(Communicator* ranks, const ShareOutcome& own);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_CHECKPOINT_SHARE_OUTCOMES_H_
