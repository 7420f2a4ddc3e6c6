#ifndef LEEWAY_QUEUE_LEDGER_LINEAGE_HISTORY_H_
#define LEEWAY_QUEUE_LEDGER_LINEAGE_HISTORY_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace leeway {

// Which (lineage, version) exist, have become void, or never were.
//
// Lineage l restored the end of step c_l and committed the versions c_l+1, c_l+2, ... A later lineage that restores the
// end of step c throws away everything after version c+1. So in lineage L, (l, v) exists iff it was committed and v <=
// min over the restores of lineages l+1 .. L of (c + 1); a committed one beyond that is void, for good.
//
// Thread-compatible value. O(log lives) a question.
class LineageHistory {
 public:
  enum class Existence { kExists, kVoid, kUnknown };

  struct Life {
    uint64_t lineage = 0;
    uint64_t restored_step = 0;   // c
    uint64_t last_committed = 0;  // version; 0 = none yet

    friend bool operator==(const Life& a, const Life& b) {
      return a.lineage == b.lineage && a.restored_step == b.restored_step && a.last_committed == b.last_committed;
    }
  };

  // FAILED_PRECONDITION unless `lineage` is larger than all before.
  absl::Status Restore(uint64_t lineage, uint64_t step);
  // The newest life committed `version`. FAILED_PRECONDITION unless it is the next one (the first: restored_step + 1).
  absl::Status Commit(uint64_t lineage, uint64_t version);

  // The newest life has committed everything up to `version` (0 = nothing): how a saved history comes back.
  void AdoptCommits(uint64_t version) { lives_.back().last_committed = version; }

  Existence Check(uint64_t lineage, uint64_t version) const;
  bool Exists(uint64_t lineage, uint64_t version) const { return Check(lineage, version) == Existence::kExists; }

  // Ascending by lineage. Lineages that were allocated but never restored anything do not appear.
  const std::vector<Life>& lives() const { return lives_; }

 private:
  std::vector<Life> lives_;

  // By life: min over the lives after it of (restored_step + 1).
  std::vector<uint64_t> survives_to_;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_LEDGER_LINEAGE_HISTORY_H_
