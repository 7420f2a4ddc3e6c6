#include "queue/ledger/lineage_history.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace leeway {

absl::Status LineageHistory::Restore(uint64_t lineage, uint64_t step) {
  if (lineage == 0 || (!lives_.empty() && lineage <= lives_.back().lineage)) {
    return absl::FailedPreconditionError(
        absl::StrCat("lineage ", lineage, " restores after lineage ", lives_.empty() ? 0 : lives_.back().lineage));
  }
  for (uint64_t& limit : survives_to_) limit = std::min(limit, step + 1);
  lives_.push_back(Life{lineage, step, 0});
  survives_to_.push_back(std::numeric_limits<uint64_t>::max());
  return absl::OkStatus();
}

absl::Status LineageHistory::Commit(uint64_t lineage, uint64_t version) {
  if (lives_.empty() || lives_.back().lineage != lineage) {
    return absl::FailedPreconditionError(
        absl::StrCat("lineage ", lineage, " commits version ", version, " but has restored nothing"));
  }
  Life& life = lives_.back();
  const uint64_t next = (life.last_committed == 0 ? life.restored_step : life.last_committed) + 1;
  if (version != next) {
    return absl::FailedPreconditionError(
        absl::StrCat("lineage ", lineage, " commits version ", version, ", the next one is ", next));
  }
  life.last_committed = version;
  return absl::OkStatus();
}

LineageHistory::Existence LineageHistory::Check(uint64_t lineage, uint64_t version) const {
  const auto life = std::lower_bound(lives_.begin(), lives_.end(), lineage,
                                     [](const Life& a, uint64_t wanted) { return a.lineage < wanted; });
  if (life == lives_.end() || life->lineage != lineage) return Existence::kUnknown;
  if (version <= life->restored_step || version > life->last_committed) return Existence::kUnknown;
  return version <= survives_to_[life - lives_.begin()] ? Existence::kExists : Existence::kVoid;
}

}  // namespace leeway
