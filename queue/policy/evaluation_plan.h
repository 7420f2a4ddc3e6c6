#ifndef LEEWAY_QUEUE_POLICY_EVALUATION_PLAN_H_
#define LEEWAY_QUEUE_POLICY_EVALUATION_PLAN_H_

// Evaluation of committed versions: which held-out episodes are still to be run, by whom, and what came of them.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "leeway/v1/queue.pb.h"
#include "leeway/v1/queue_records.pb.h"
#include "leeway/v1/types.pb.h"
#include "queue/ledger/trajectory_summary.h"
#include "queue/store/queue_store.h"

namespace leeway {

struct EvaluationOptions {
  // Versions with (version - 1) divisible by `every` are evaluated, so is the last one (steps + 1). 0 = no evaluation
  // at all.
  uint64_t every = 0;
  // Episodes per evaluated version, ids 1 .. episodes.
  uint32_t episodes = 0;
  // From the commit of a version; then its missing episodes count as failed.
  absl::Duration deadline = absl::Minutes(10);
};

// Role: the queue's other kind of ticket. Episodes have an id space of their own, never touch ledger, pacing or bounds,
// and are pinned: an episode of version v is only given to a worker that holds v or is going to hold it, and only
// tokens of v count.
//
//   pending ──Acquire──► assigned ──Push, Fail──► done         assigned ──WorkerLost──► pending
//
// The newest committed version is also in reach of a worker that holds an older one or none: what it loads next is that
// version. If a newer one overtook it, its episode comes back as `version_gone` and is pending again.
// An evaluation is over when all its episodes are done, at its deadline, or when no live worker can reach its version
// any more: then the missing ones count as failed. A failed or unscored episode is reported as failed and never enters
// the mean. Threads: thread-compatible. Never blocks. Deterministic. Workers are named by their producer id; a worker's
// identity is the caller's business (a new epoch means WorkerLost first).
class EvaluationPlan {
 public:
  // `last_version` = steps + 1.
  EvaluationPlan(const EvaluationOptions& options, uint64_t last_version);

  // Version `weights` was committed and `members` proved that they hold it: plans its evaluation. False: none is due.
  bool OnCommit(const v1::WeightsVersion& weights, const std::vector<uint64_t>& members, MonotonicTime now);
  // The trainer went back to the end of step `step`: evaluations of later versions are forgotten, they will be
  // committed again.
  void OnRestore(uint64_t step);

  struct Assignment {
    v1::WeightsVersion weights;
    uint32_t id = 0;     // 1 .. episodes
    uint32_t issue = 0;  // rises with every assignment of this id, over all versions
  };
  // A live worker holds `weights` now.
  void OnHeld(const v1::WeightsVersion& weights);
  // The newest version is to be evaluated, and no worker has said yet that it holds it. While a newer one is committed
  // all of them may go past it, and nobody could evaluate it any more; so the next step waits for one, but not long.
  bool AwaitsHolder(MonotonicTime now) const;
  // Hands out at most `max_episodes` pending episodes: oldest version first, by id, of versions that are in reach of a
  // worker that holds `holds` now.
  std::vector<Assignment> Acquire(uint64_t worker, const v1::WeightsVersion& holds, uint64_t max_episodes);
  // Pending episodes that Acquire would hand to this worker if it had slots enough.
  uint64_t Reachable(uint64_t worker, const v1::WeightsVersion& holds) const;
  // Everything assigned to `worker` is pending again, and it holds nothing any more.
  void WorkerLost(uint64_t worker);
  // Judges and records a result of `worker`; `*reason` is set for all answers but ACCEPTED. A trajectory with tokens of
  // another version is REJECTED and has failed.
  v1::PushResult Push(uint64_t worker, const TrajectorySummary& summary, std::string* reason);
  // A trajectory that was refused at the door: the episode that it names, if it is this worker's, has failed.
  void Fail(uint64_t worker, const v1::EpisodeKey& key);

  // Ends evaluations past their deadline; names them.
  std::vector<std::string> Tick(MonotonicTime now);
  // Deadlines come so much later.
  void Postpone(absl::Duration by);
  // A live worker and what it holds.
  struct Holder {
    uint64_t worker = 0;
    v1::WeightsVersion holds;
  };
  // Ends evaluations of overtaken versions that none of `live` can reach and none is working on; names them.
  std::vector<std::string> EndUnreachable(const std::vector<Holder>& live);
  // Infinite if there is none.
  MonotonicTime NextDeadline() const;

  // No evaluation is unfinished.
  bool idle() const { return unfinished_ == 0; }
  // Of every unfinished evaluation and the kKeptResults that finished last, oldest version first.
  std::vector<v1::EvaluationResult> Results() const;

  // ---- records of a durable queue ----

  // Adds a record for every evaluation that has changed since the last call, and removals of forgotten ones.
  void TakeChanges(std::vector<StoreRecord>* records);
  void MarkAllChanged();
  void SaveCounters(v1::HeadRecord* head) const;
  // A new plan becomes the one that was written, counters first, then evaluations ascending. Those that are not over
  // have all of their time again. DATA_LOSS: malformed.
  void RecoverCounters(const v1::HeadRecord& head);
  absl::Status RecoverEvaluation(const v1::EvaluationRecord& record, MonotonicTime now);

  static constexpr size_t kKeptResults = 64;
  // Longer than a worker needs for a swap, in all but broken cases.
  static constexpr absl::Duration kHolderPatience = absl::Seconds(10);

 private:
  struct Episode {
    enum class State : uint8_t { kPending, kAssigned, kDone };
    State state = State::kPending;
    // Of the latest assignment.
    uint64_t worker = 0;
    // Of the latest assignment; 0 = never handed out.
    uint32_t issue = 0;
    // Of a done episode that was scored.
    std::optional<double> reward;
  };

  struct Evaluation {
    v1::WeightsVersion weights;
    MonotonicTime deadline;
    bool was_held = false;
    // Who proved to hold `weights`, and was not lost since.
    absl::btree_set<uint64_t> members;
    // By id - 1.
    std::vector<Episode> episodes;
    // Ids in state pending.
    absl::btree_set<uint32_t> pending;
    // What Results tells; up to date once `is_over`. Then the members above are empty.
    v1::EvaluationResult result;
    bool is_over = false;
    // Rises from one end to the next.
    uint64_t end_number = 0;
    // Since TakeChanges.
    bool has_changed = true;
  };

  bool IsInReach(const Evaluation& evaluation, uint64_t worker, const v1::WeightsVersion& holds) const;
  // The unfinished evaluation in which `key` is the latest assignment of its id.
  Evaluation* FindAssigned(const v1::EpisodeKey& key);
  template <typename Predicate>
  void Forget(Predicate is_forgotten);
  void Finish(Evaluation* evaluation, uint32_t id, std::optional<double> reward);
  void End(Evaluation* evaluation);
  // Forgets the results that have been known longest, beyond kKeptResults.
  void Prune();
  static v1::EvaluationResult ResultOf(const Evaluation& evaluation);

  const EvaluationOptions options_;

  const uint64_t last_version_;

  // Oldest version first.
  std::deque<Evaluation> evaluations_;

  // Of them, those that are not over.
  size_t unfinished_ = 0;

  // Evaluations that are over, forgotten ones too.
  uint64_t ends_ = 0;

  // The newest committed version, evaluated or not.
  v1::WeightsVersion newest_;

  // Last issue number given, by id - 1.
  std::vector<uint32_t> issues_;

  // Evaluations that were forgotten since TakeChanges.
  std::vector<v1::WeightsVersion> forgotten_;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_POLICY_EVALUATION_PLAN_H_
