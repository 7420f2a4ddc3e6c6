#ifndef LEEWAY_ROLLOUT_ENGINE_ENGINE_H_
#define LEEWAY_ROLLOUT_ENGINE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/executor.h"
#include "base/random.h"
#include "leeway/v1/types.pb.h"
#include "model/transformer/transformer.h"
#include "rollout/engine/sampler.h"

namespace leeway {

// What happens to turns under way and to KV caches when weights change (DESIGN 3.4).
enum class UpdateMode {
  kFinish,     // the turn ends on the old weights; no new turn begins until all have ended
  kKeep,       // goes on at the next token, on the KV cache that the old weights filled
  kRecompute,  // goes on at the next token, KV cache filled again by the new weights
  kRestart,    // the turn begins again, with the same random numbers
};
// "finish" | "keep" | "recompute" | "restart". INVALID_ARGUMENT names them.
absl::StatusOr<UpdateMode> ParseUpdateMode(const std::string& name);

// Names the weights that produced a token's logits: the wire's WeightsVersion as a plain value.
struct WeightsId {
  uint64_t lineage = 0;
  uint64_t version = 0;
  friend bool operator==(WeightsId a, WeightsId b) { return a.lineage == b.lineage && a.version == b.version; }
};
struct TokenRun {
  WeightsId weights;
  uint32_t count = 0;
};

struct EngineOptions {
  uint64_t seed = 0;
  int32_t end_of_text = 0;
  UpdateMode update_mode = UpdateMode::kFinish;
  // New tokens in one forward pass; decodes always run, prefills are cut to what is left.
  int64_t token_budget = 4096;
};

// One episode's place in the engine: its ids so far and their KV cache. Never reused for another episode. 0 = none.
using EpisodeHandle = uint64_t;

// Whose random numbers an episode draws.
struct EpisodeIdentity {
  RandomPurpose purpose = RandomPurpose::kSampling;
  uint64_t ticket = 0;
  uint32_t member = 0;
};

// The sampling part of one turn.
struct TurnRequest {
  SamplingParameters sampling;
  // Strictly ascending ids; null or empty = the whole vocabulary.
  std::shared_ptr<const std::vector<int32_t>> legal_ids;
  int32_t max_new_tokens = 1;
  bool stop_at_end_of_text = true;
};

// A turn that ended in the last Step. The spans point into the engine: valid until StartTurn or Close of that episode,
// or a Step.
struct FinishedTurn {
  EpisodeHandle episode = 0;
  // INTERNAL: the logits were not finite (broken weights); the ids before stand.
  absl::Status status;
  absl::Span<const int32_t> ids;  // sampled, a sampled end-of-text included
  absl::Span<const float> logprobs;
  absl::Span<const TokenRun> versions;
  v1::StopReason stop = v1::STOP_REASON_UNSPECIFIED;  // END_OF_TEXT | LENGTH | CONTEXT_FULL
  // False when any token of the episode so far came from a KV cache that older weights had filled (mode `keep`).
  bool kv_cache_consistent = true;
};

// Counts since construction.
struct EngineCounters {
  int64_t steps = 0;
  int64_t tokens_generated = 0;   // sampled, those thrown away by restarts included
  int64_t tokens_processed = 0;   // through the forward pass: prefill, decode, recomputation
  int64_t tokens_recomputed = 0;  // processed again since the weights had changed
  int64_t tokens_discarded = 0;   // sampled and thrown away (restart, closed episodes)
  int64_t swaps = 0;
  double flops = 0;  // of the matrix products and attention, estimated from the shape
};

// Continuous batching over Transformer<float>::Decode.
//
//   OpenEpisode ──► idle ──StartTurn──► waiting ──(Step, if admitted)──► running ──(Step: end-of-text, length,
//   context)──► idle …
//                    └───────────────────────────────── Close ─────────────────────────────────┘
//
// Step is one forward pass over everything runnable: decodes (one token each) and prefills (cut to the budget), then
// one sampled token for each sequence whose prefill is complete. A token boundary is the time between two Steps. The KV
// cache stays with the episode between its turns; a cache of older weights is computed again before it is used, unless
// the mode is `keep`.
//
// Results of a turn depend on (weights at each token, ids, request, random key) alone: not on what else runs, on the
// order of arrival or on the budget, to the bit. Token i of turn n draws RandomKey{seed, purpose, ticket, member,
// interaction n, position i}.
//
// No threads of its own and no clock; one caller at a time; nothing blocks. Memory of closed episodes is kept and
// reused.
class Engine {
 public:
  // `transformer` and `parallel` outlive the engine; the engine is the transformer's only caller.
  Engine(const EngineOptions& options, Transformer<float>* transformer, ParallelFor* parallel);
  ~Engine();

  // ---- weights ----------------------------------------------------------------------------------------------------
  // Unset before the first Swap; no turn runs before it.
  WeightsId weights() const;
  // Whether newer weights lie ready: then mode `finish` admits no more turns, so that ready_to_swap comes. Other modes
  // need no warning. Swap takes the request back.
  void SetSwapRequested(bool is_requested);
  // Whether the weights may change at this token boundary. Who pins an episode to its weights (evaluation) does not
  // ask.
  bool ready_to_swap() const;
  // REQUIRES ready_to_swap(). `same_bytes`: a relabel, nothing but the name changes (no cache is dropped, no turn
  // restarted) and `parameters` is not read. INVALID_ARGUMENT: the number of parameters is not the shape's.
  absl::Status Swap(WeightsId weights, const WeightSpan<float>& parameters, bool same_bytes);

  // ---- episodes ---------------------------------------------------------------------------------------------------
  EpisodeHandle OpenEpisode(const EpisodeIdentity& identity);
  // Appends `new_ids` to the episode's ids and asks for one turn. The episode must be idle. Errors leave the episode as
  // it was: INVALID_ARGUMENT (ids or legal set out of range, empty context, limits), OUT_OF_RANGE (no room for a
  // sampled token behind the ids).
  absl::Status StartTurn(EpisodeHandle episode, absl::Span<const int32_t> new_ids, const TurnRequest& request);
  // At any time; a turn under way is dropped.
  void Close(EpisodeHandle episode);
  // Ids so far. Valid as FinishedTurn's spans are.
  absl::Span<const int32_t> ids(EpisodeHandle episode) const;

  // ---- work -------------------------------------------------------------------------------------------------------
  // Whether Step would do something.
  bool runnable() const;
  // One forward pass. `finished` is cleared and filled. Does nothing when not runnable. INTERNAL: the forward pass
  // failed (our bug).
  absl::Status Step(std::vector<FinishedTurn>* finished);

  int open_episodes() const;
  // Turns admitted and not ended; turns not yet admitted.
  int running_turns() const;
  int waiting_turns() const;
  const EngineCounters& counters() const;
  const ModelShape& shape() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leeway

#endif  // LEEWAY_ROLLOUT_ENGINE_ENGINE_H_
