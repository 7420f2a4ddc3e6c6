#ifndef LEEWAY_COLLECTIVE_NCCL_NCCL_SESSION_H_
#define LEEWAY_COLLECTIVE_NCCL_NCCL_SESSION_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "collective/nccl/nccl_api.h"

namespace leeway {

// One rank's life in one NCCL communicator. NCCL never ends an operation whose peer is gone, may block in any call that
// waits, and may hang even in its abort; so everything here is non-blocking below and polled with a deadline above:
//
//   new ─Connect─► connecting ─► ready ─Run─► ready … ─Close─► closed
//                      │           │
//                      ▼           ▼  error · deadline · dead peer · RequestAbort
//                    ended       failed ─Shrink─► ended, and a new session in ready
//                                  └────Release─► ended      (abort hangs: abandoned)
//
// One thread makes all calls but RequestAbort, which any thread makes and which the polling thread carries out: no two
// threads are ever inside NCCL. Waiting is `pause` of the environment, so that tests need no time.
class NcclSession {
 public:
  enum class State { kNew, kConnecting, kReady, kFailed, kEnded, kAbandoned, kClosed };

  struct Options {
    std::string name;  // in messages
    int rank = 0;
    int size = 1;
    absl::Duration connect_timeout;
    absl::Duration timeout;        // of one operation
    absl::Duration abort_timeout;  // after which an abort that hangs is left behind
  };

  // What a session needs of the world; all must outlive it, and what an executor runs may outlive even that.
  struct Environment {
    std::shared_ptr<const NcclApi> api;
    const Clock* clock = RealClock();
    // Runs ncclCommAbort, which may never return.
    Executor* executor = nullptr;
    std::function<void(absl::Duration)> pause;
    // OK, or the control plane's word that a peer is dead, which NCCL itself cannot know. Asked at every poll.
    std::function<absl::Status()> liveness;
  };

  NcclSession(Environment environment, Options options);
  // Release.
  ~NcclSession();
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;

  // Blocks until all ranks of `id` are connected. DEADLINE_EXCEEDED, liveness's error, ABORTED, UNAVAILABLE (NCCL's
  // error); then the session has ended.
  absl::Status Connect(const NcclUniqueId& id);

  // Lets `enqueue` put work on `stream` and blocks until that is done. Errors as Connect's; the session has failed then
  // and every later call returns the first error. `operation` is for messages: "broadcast of bucket 3".
  absl::Status Run(absl::string_view operation, const std::function<NcclResult(NcclComm comm)>& enqueue,
                   CudaStream stream);

  // After a failure: the communicator of the ranks that are left, without `lost` (ascending, this one not among them).
  // All survivors call it with the same list, agreed outside NCCL, and lost ranks stay until it is over if they live.
  // This session ends. UNIMPLEMENTED where NCCL cannot (before 2.27.3): connect anew with a fresh id.
  absl::StatusOr<std::unique_ptr<NcclSession>> Shrink(const std::vector<int>& lost);

  // A clean end; all ranks call it.
  absl::Status Close();

  // Ends without the others: aborts, at most for abort_timeout. An error means that NCCL's abort hangs and goes on
  // hanging behind: memory that it may touch must stay, and the process should exit soon. No-op without a communicator.
  absl::Status Release();

  // Makes the call in progress, and all later ones, fail with ABORTED. Does not block; any thread.
  void RequestAbort(absl::string_view reason) LEEWAY_EXCLUDES(mutex_);

  State state() const { return state_; }
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }

 private:
  // Polls `comm` until it is no longer in progress (and `stream` done, if there is one).
  absl::Status Poll(absl::string_view what, NcclComm comm, const CudaStream* stream, absl::Duration timeout)
      LEEWAY_EXCLUDES(mutex_);
  absl::Status NcclError(absl::string_view what, NcclResult result, NcclComm comm) const;
  absl::Status Fail(const absl::Status& error);
  absl::Status Unready(absl::string_view what) const;

  const Environment environment_;
  const Options options_;
  State state_ = State::kNew;
  NcclComm comm_ = nullptr;
  absl::Status failure_;

  Mutex mutex_;
  absl::Status abort_request_ LEEWAY_GUARDED_BY(mutex_);
};

// Gives every task a thread of its own that nobody waits for: for calls that may never return.
class DetachedThreads final : public Executor {
 public:
  void Schedule(std::function<void()> task) override;
};

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_NCCL_NCCL_SESSION_H_
