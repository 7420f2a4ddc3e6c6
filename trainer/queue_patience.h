#ifndef LEEWAY_TRAINER_QUEUE_PATIENCE_H_
#define LEEWAY_TRAINER_QUEUE_PATIENCE_H_

// Which answers of the queue the trainer waits out, which end this life of it, and which are its own business.

#include <algorithm>
#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/logging.h"
#include "base/state_clock.h"

namespace leeway {

namespace internal {
inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}
}  // namespace internal

// The queue refused a call as out of order (FAILED_PRECONDITION): its ledger and this trainer no longer agree, and only
// a restore brings them together again. ABORTED, which the launcher answers by starting the trainer anew. Everything
// else is passed on.
inline absl::Status RefusalMeansRestart(absl::string_view what, const absl::Status& status) {
  if (status.code() != absl::StatusCode::kFailedPrecondition) return status;
  return absl::AbortedError(absl::StrCat("the queue refused ", what, " (", std::string(status.message()),
                                         "); a new start restores the newest checkpoint"));
}

// Calls a queue that may be away for a moment: UNAVAILABLE and DEADLINE_EXCEEDED are asked again, with growing pauses,
// until `limit` has passed since the first asking, or two seconds once the trainer is to stop: then the queue may well
// be stopped too. All calls of the trainer are idempotent, so asking again is safe. Everything else is passed on.
//
// Blocks the caller: in state wait:queue_answer while the queue has the word, unless the caller said already what it
// waits for, and in wait:queue_unavailable between two askings. Used by the driving loop only.
class QueuePatience {
 public:
  QueuePatience(absl::Duration limit, const std::atomic<bool>* stop, StateClock* states, const Clock* clock)
      : limit_(limit), stop_(stop), states_(states), clock_(clock) {}

  template <typename Call>
  auto operator()(absl::string_view what, Call call) -> decltype(call()) {
    const Deadline deadline = Deadline::After(limit_, clock_);
    const Deadline deadline_of_stop = Deadline::After(std::min(limit_, absl::Seconds(2)), clock_);
    absl::Duration pause = absl::Milliseconds(20);
    while (true) {
      auto result = Ask(call);
      const absl::Status& status = internal::StatusOf(result);
      const bool is_away =
          status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kDeadlineExceeded;
      if (status.code() == absl::StatusCode::kFailedPrecondition) return RefusalMeansRestart(what, status);
      if (!is_away || deadline.HasPassed() || (stop_->load() && deadline_of_stop.HasPassed())) return result;
      LEEWAY_LOG_WARNING("{} found no queue and is asked again: {}", std::string(what), status.ToString());
      ScopedState waiting(states_, "wait:queue_unavailable");
      absl::SleepFor(std::min(pause, deadline.Remaining()));
      pause = std::min(pause * 2, absl::Seconds(1));
    }
  }

 private:
  template <typename Call>
  auto Ask(Call& call) -> decltype(call()) {
    const std::string before = states_->current();
    ScopedState waiting(states_, absl::StartsWith(before, "wait:") ? before : "wait:queue_answer");
    return call();
  }

  const absl::Duration limit_;
  const std::atomic<bool>* const stop_;
  StateClock* const states_;
  const Clock* const clock_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_QUEUE_PATIENCE_H_
