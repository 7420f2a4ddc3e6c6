#ifndef LEEWAY_TRAINER_LOSS_TRAIN_BATCH_H_
#define LEEWAY_TRAINER_LOSS_TRAIN_BATCH_H_

// From leased groups to what the model scores: sequences back to back without padding, and for every sampled token a
// position with what was recorded about it. All lengths are checked here, before any arithmetic; nothing missing is
// ever filled in.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "model/transformer/transformer.h"
#include "queue/queue_client.h"
#include "trainer/loss/advantages.h"
#include "trainer/loss/objective.h"
#include "trainer/parallel/flops.h"

namespace leeway {

struct TrainBatchOptions {
  uint64_t step = 0;  // t: a token's lag is t - version
  // Tokens with a larger lag: mask 0 with `breach_masks`, otherwise an error.
  uint64_t lag_limit = 0;
  bool breach_masks = false;
  AdvantageKind advantage = AdvantageKind::kGrpo;
  int64_t vocabulary = 0;
  int64_t max_positions = 0;
  // A micro-batch holds whole sequences, at most so many tokens, or one sequence.
  int64_t micro_batch_tokens = 0;
  // Minibatches of whole groups, one optimizer update each.
  int64_t updates = 1;
  // Of several ranks that train parts of each update: which one this is, and what a sequence costs them.
  int64_t data_ranks = 1;
  int64_t data_rank = 0;
  LengthCost cost;
};

// A group that can not be trained; the queue keeps it aside and gives another one.
struct RefusedGroup {
  uint64_t ticket = 0;
  std::string reason;  // stable: "logprob_mismatch", "malformed_trajectory"
  std::string detail;  // for people: member, place, values
};

// One trained episode: positions [begin, end) of the arrays below.
struct TrainSequence {
  uint64_t ticket = 0;
  uint32_t member = 0;
  int64_t group = 0;  // index in ticket order
  int64_t begin = 0;
  int64_t end = 0;
  int64_t trained = 0;  // positions with mask 1
  double advantage = 0;
  // The recorded log-probabilities are exactly reproducible where the lag is 0.
  bool is_exact = false;
};

// Whole sequences that go through the model together: what Transformer::Score takes, ready made. Positions are those of
// the sequences, in order; they count rows from the first token of the micro-batch.
struct MicroBatch {
  std::vector<int64_t> members;  // indices into TrainBatch::sequences, rising
  PackedSequences sequences;
  std::vector<ScoredPosition> positions;
};

// What one optimizer update trains on.
struct UpdateRange {
  int64_t micro_begin = 0;
  int64_t micro_end = 0;
  LossNormaliser normaliser;
};

// Episodes without a reward are left out altogether. Sorted by ticket, then member, whatever order the groups came in.
// The same on every rank but for the micro-batches, of which a rank has its own: as many as every other rank, in each
// update, whatever the lengths (some perhaps without a sequence).
struct TrainBatch {
  std::vector<TrainSequence> sequences;
  std::vector<MicroBatch> micro_batches;  // one rank: runs of sequences, in order; several: PackBalanced
  std::vector<UpdateRange> updates;
  std::vector<std::vector<int32_t>> legal_sets;

  // One entry a position.
  std::vector<double> mu;  // recorded log-probability (a float, widened)
  std::vector<uint32_t> lag;
  std::vector<uint8_t> mask;

  // Rewards of the scored members, in the same order.
  std::vector<double> rewards;
  int64_t unscored = 0;        // members left out
  int64_t trained_tokens = 0;  // positions with mask 1
  int64_t masked_tokens = 0;   // positions with mask 0
  SequenceWork work;           // of the model

  int64_t position_count() const { return static_cast<int64_t>(mu.size()); }
};

// Builds `batch` (its memory is used again). Malformed groups are listed in `refused` and then the batch is not usable.
// INTERNAL: a token breaks the staleness bound (naming ticket, member, token, versions) or a group stands
// twice in the batch.
absl::Status BuildTrainBatch(const TrainBatchOptions& options, absl::Span<const BatchGroup> groups, TrainBatch* batch,
                             std::vector<RefusedGroup>* refused);

// Again over the finished batch: no position with mask 1 has a larger lag than the limit. INTERNAL.
absl::Status CheckStalenessBound(const TrainBatch& batch, uint64_t lag_limit);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_LOSS_TRAIN_BATCH_H_
