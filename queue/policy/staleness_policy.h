#ifndef LEEWAY_QUEUE_POLICY_STALENESS_POLICY_H_
#define LEEWAY_QUEUE_POLICY_STALENESS_POLICY_H_

// How far rollout may run ahead of training: pacing first, judgement second. Pure functions of their arguments: no
// table, no threads, no clock, so that all of it can be enumerated in a test.
//
// With order `ticket` the bound needs no judgement: step t trains the live tickets of rank (t-1)*B+1 .. t*B; a ticket
// of rank r is issued at a version v with r <= (v+S)*B and ranks never rise within one history, so it is trained in a
// step <= v+S with tokens of version >= v: lag <= S.

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

enum class StalenessMode { kAsync, kSync };
// In which order ready groups are taken.
enum class StalenessOrder { kTicket, kOldest, kReady };
// What happens to a group beyond the budget.
enum class StalenessBreach { kDrop, kMask, kWait };

// From the words of the configuration ("async", "ticket", "drop", ...). INVALID_ARGUMENT lists the words that are
// known.
absl::StatusOr<StalenessMode> ParseStalenessMode(absl::string_view text);
absl::StatusOr<StalenessOrder> ParseStalenessOrder(absl::string_view text);
absl::StatusOr<StalenessBreach> ParseStalenessBreach(absl::string_view text);

struct StalenessOptions {
  StalenessMode mode = StalenessMode::kAsync;
  StalenessOrder order = StalenessOrder::kTicket;
  StalenessBreach breach = StalenessBreach::kWait;
  // S, in versions.
  uint64_t budget = 0;
  // B.
  uint64_t groups_per_step = 1;
  // trainer.steps: no ticket beyond what so many steps consume.
  uint64_t steps = 1;
};

// Thread-compatible value.
class StalenessPolicy {
 public:
  // INVALID_ARGUMENT: B or steps is 0, or breach `wait` with an order other than `ticket`.
  static absl::StatusOr<StalenessPolicy> Create(const StalenessOptions& options);

  // ---- pacing ---------------------------------------------------------------------------------------------------
  // Any issue, first or repeated, needs rank <= this. `step` is the step that trains next (= the committed version);
  // `requested_step` the newest step that the trainer has asked a batch for (only `sync` looks at it: there the request
  // itself admits the groups).
  uint64_t RankLimit(uint64_t step, uint64_t requested_step) const;

  // ---- order ----------------------------------------------------------------------------------------------------
  // Ready groups are taken by ascending key. `completion` numbers groups in the order in which they became ready.
  using OrderKey = std::pair<uint64_t, uint64_t>;
  OrderKey KeyOf(uint64_t ticket, uint64_t oldest_version, uint64_t completion) const;

  // ---- judgement ------------------------------------------------------------------------------------------------
  enum class Verdict {
    kTrain,  // within the budget
    kMask,   // train it, but only its tokens within the budget
    kStale,  // retire it
    kBreach  // must not happen (order `ticket` keeps the bound by construction): the caller's bug
  };
  // `oldest_version`: of any token in the group; lag = step - oldest_version, 0 if the group has no token.
  Verdict Judge(uint64_t step, uint64_t oldest_version) const;
  // The largest lag of a token that may have a gradient.
  uint64_t lag_limit() const;

  const StalenessOptions& options() const { return options_; }

 private:
  explicit StalenessPolicy(const StalenessOptions& options) : options_(options) {}

  StalenessOptions options_;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_POLICY_STALENESS_POLICY_H_
