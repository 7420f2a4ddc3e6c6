#include "queue/ledger/trajectory_summary.h"

#include <algorithm>

namespace leeway {

void AddVersion(uint64_t lineage, uint64_t version, VersionUse* use) {
  AddVersions({LineageUse{lineage, version, version}}, use);
}

void AddVersions(const VersionUse& other, VersionUse* use) {
  for (const LineageUse& added : other) {
    auto place = std::lower_bound(use->begin(), use->end(), added.lineage,
                                  [](const LineageUse& a, uint64_t lineage) { return a.lineage < lineage; });
    if (place == use->end() || place->lineage != added.lineage) {
      use->insert(place, added);
    } else {
      place->oldest = std::min(place->oldest, added.oldest);
      place->newest = std::max(place->newest, added.newest);
    }
  }
}

uint64_t OldestVersion(const VersionUse& use) {
  uint64_t oldest = 0;
  for (const LineageUse& entry : use) oldest = oldest == 0 ? entry.oldest : std::min(oldest, entry.oldest);
  return oldest;
}

TrajectorySummary Summarize(const v1::Trajectory& trajectory) {
  TrajectorySummary summary;
  summary.key = trajectory.key();
  summary.evaluation = trajectory.evaluation();
  const bool has_scoring_failed = trajectory.score().status() == v1::Score::SCORING_FAILED;
  summary.completed = trajectory.outcome() == v1::COMPLETED && !has_scoring_failed;
  if (trajectory.outcome() != v1::COMPLETED) {
    summary.failure_code = trajectory.failure().code();
  } else if (has_scoring_failed) {
    summary.failure_code = "scoring_failed";
  }
  if (trajectory.score().status() == v1::Score::SCORED && trajectory.score().has_reward()) {
    summary.reward = trajectory.score().reward();
  }
  for (const v1::Span& span : trajectory.spans()) {
    if (!span.sampled()) continue;
    summary.sampled_tokens += span.ids_size();
    for (const v1::VersionRun& run : span.versions()) {
      AddVersion(run.weights().lineage(), run.weights().version(), &summary.versions);
    }
  }
  return summary;
}

}  // namespace leeway
