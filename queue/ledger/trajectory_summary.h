#ifndef LEEWAY_QUEUE_LEDGER_TRAJECTORY_SUMMARY_H_
#define LEEWAY_QUEUE_LEDGER_TRAJECTORY_SUMMARY_H_

// What the queue keeps in its table of a trajectory, beside the bytes: enough to judge staleness, variance and failures
// without parsing the payload again.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "leeway/v1/types.pb.h"

namespace leeway {

// The versions of one lineage that sampled tokens carry.
struct LineageUse {
  uint64_t lineage = 0;
  uint64_t oldest = 0;  // smallest version
  uint64_t newest = 0;  // largest version

  friend bool operator==(const LineageUse& a, const LineageUse& b) {
    return a.lineage == b.lineage && a.oldest == b.oldest && a.newest == b.newest;
  }
};
// Nearly always one entry. Sorted by lineage.
using VersionUse = absl::InlinedVector<LineageUse, 1>;

// Adds one (lineage, version) or all of `other` to `use`.
void AddVersion(uint64_t lineage, uint64_t version, VersionUse* use);
void AddVersions(const VersionUse& other, VersionUse* use);
// Smallest version number over all lineages; 0 when there is none.
uint64_t OldestVersion(const VersionUse& use);

struct TrajectorySummary {
  v1::EpisodeKey key;
  bool evaluation = false;
  // False = outcome FAILED, or an episode whose scoring failed; then `failure_code` says why (`scoring_failed`).
  bool completed = false;
  std::string failure_code;
  // Present when the score's status is SCORED. Absent from a completed episode: it was not scored, which is no failure.
  std::optional<double> reward;
  uint64_t sampled_tokens = 0;
  VersionUse versions;
};

// O(version runs). Does not validate: fields of a malformed trajectory are taken as they are.
TrajectorySummary Summarize(const v1::Trajectory& trajectory);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_LEDGER_TRAJECTORY_SUMMARY_H_
