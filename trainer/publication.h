#ifndef LEEWAY_TRAINER_PUBLICATION_H_
#define LEEWAY_TRAINER_PUBLICATION_H_

// How a version becomes visible: the trainer's half of the design's five stages of a publish.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/shape.h"
#include "queue/queue_client.h"
#include "trainer/queue_patience.h"
#include "trainer/trainer_options.h"
#include "weightsync/weight_publisher.h"

namespace leeway {

// What a publish did.
struct PublishFacts {
  v1::LedgerCounts counts;  // of the queue's answer to the commit
  std::string digest;
  double seconds = 0;  // announce to commit
  uint64_t bytes = 0;
  uint64_t members = 0;
  uint64_t fenced = 0;
};

// One version on its way to the receivers, in the only order that is safe: the receivers prove that they hold the
// bytes, the queue makes the version visible, then the receivers may swap in.
//
//   publisher Prepare -> (queue FenceWorker for each failed member) -> queue Commit -> publisher Commit
//
// Blocks up to the timeouts of the options. Used by the driving loop only.
class Publication {
 public:
  Publication(const TrainerOptions& options, const std::vector<ParameterInfo>& layout, QueueTrainerClient* queue,
              WeightPublisher* publisher, QueuePatience* patience)
      : options_(options), layout_(layout), queue_(queue), publisher_(publisher), patience_(patience) {}

  // Publishes `parameters` (flat, ParameterLayout order), as bf16 if the model computes with such. `tickets`: the
  // groups that the version was trained on; `initial`: the first publish of a lineage. ABORTED: the queue refused the
  // commit (another lineage, or groups that are not leased): the publish is abandoned, restore and start again.
  // UNAVAILABLE, DEADLINE_EXCEEDED: the queue is gone.
  absl::StatusOr<PublishFacts> Publish(const v1::WeightsVersion& weights, absl::Span<const float> parameters,
                                       const std::vector<uint64_t>& tickets, bool initial);

 private:
  absl::Status FenceMembers(const v1::WeightsVersion& weights, const std::vector<PreparedPublish::Fenced>& fenced);

  const TrainerOptions& options_;
  const std::vector<ParameterInfo>& layout_;
  QueueTrainerClient* const queue_;
  WeightPublisher* const publisher_;
  QueuePatience* const patience_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_PUBLICATION_H_
