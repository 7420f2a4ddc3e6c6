#include "collective/nccl/nccl_session.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

// The first polls come quickly, since most operations are short.
constexpr absl::Duration kFirstPause = absl::Microseconds(20), kLongestPause = absl::Milliseconds(5);

}  // namespace

NcclSession::NcclSession(Environment environment, Options options)
    : environment_(std::move(environment)), options_(std::move(options)) {}

NcclSession::~NcclSession() { (void)Release(); }

absl::Status NcclSession::NcclError(absl::string_view what, NcclResult result, NcclComm comm) const {
  const std::string detail = environment_.api->last_error(comm);
  return absl::UnavailableError(absl::StrCat(options_.name, ": ", what, " on rank ", options_.rank, ": ",
                                             NcclResultName(result), detail.empty() ? "" : ": ", detail));
}

absl::Status NcclSession::Fail(const absl::Status& error) {
  if (failure_.ok()) failure_ = error;
  state_ = State::kFailed;
  return failure_;
}

absl::Status NcclSession::Unready(absl::string_view what) const {
  if (!failure_.ok()) return failure_;
  return absl::FailedPreconditionError(absl::StrCat(options_.name, ": ", what, " on rank ", options_.rank,
                                                    " of a session that is ",
                                                    state_ == State::kNew     ? "not connected"
                                                    : state_ == State::kReady ? "ready"
                                                                              : "over"));
}

absl::Status NcclSession::Poll(absl::string_view what, NcclComm comm, const CudaStream* stream,
                               absl::Duration timeout) {
  const Deadline deadline = Deadline::After(timeout, environment_.clock);
  absl::Duration pause = kFirstPause;
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (!abort_request_.ok()) return abort_request_;
    }
    NcclResult state = NcclResult::kSuccess;
    if (const NcclResult result = environment_.api->async_error(comm, &state); result != NcclResult::kSuccess) {
      return NcclError(what, result, comm);
    }
    if (state == NcclResult::kSuccess) {
      // Before this point the work may not be on the stream yet, which then looks done.
      const StreamState work = stream == nullptr ? StreamState::kDone : environment_.api->query_stream(*stream);
      if (work == StreamState::kDone) return absl::OkStatus();
      if (work == StreamState::kFailed) return NcclError(what, NcclResult::kUnhandledCudaError, comm);
    } else if (state != NcclResult::kInProgress) {
      return NcclError(what, state, comm);
    }
    if (environment_.liveness != nullptr) LEEWAY_RETURN_IF_ERROR(environment_.liveness());
    if (deadline.HasPassed()) {
      return absl::DeadlineExceededError(absl::StrCat(options_.name, ": ", what, " on rank ", options_.rank,
                                                      " is not over within ", absl::FormatDuration(timeout),
                                                      "; NCCL does not tell which rank is missing"));
    }
    environment_.pause(std::min(pause, deadline.Remaining()));
    pause = std::min(2 * pause, kLongestPause);
  }
}

absl::Status NcclSession::Connect(const NcclUniqueId& id) {
  if (state_ != State::kNew) return Unready("connect");
  state_ = State::kConnecting;
  const NcclResult result = environment_.api->init_rank(&comm_, options_.size, id, options_.rank);
  absl::Status status;
  if (comm_ == nullptr || (result != NcclResult::kSuccess && result != NcclResult::kInProgress)) {
    status = NcclError("connect", result, comm_);
  } else {
    status = Poll("connect", comm_, nullptr, options_.connect_timeout);
  }
  if (status.ok()) {
    state_ = State::kReady;
    return status;
  }
  (void)Fail(status);
  // Half a communicator is of no use to Shrink.
  (void)Release();
  return failure_;
}

absl::Status NcclSession::Run(absl::string_view operation, const std::function<NcclResult(NcclComm)>& enqueue,
                              CudaStream stream) {
  if (state_ != State::kReady) return Unready(operation);
  {
    MutexLock lock(&mutex_);
    if (!abort_request_.ok()) return Fail(abort_request_);
  }
  const NcclResult result = enqueue(comm_);
  if (result != NcclResult::kSuccess && result != NcclResult::kInProgress) {
    return Fail(NcclError(operation, result, comm_));
  }
  const absl::Status status = Poll(operation, comm_, &stream, options_.timeout);
  return status.ok() ? status : Fail(status);
}

absl::StatusOr<std::unique_ptr<NcclSession>> NcclSession::Shrink(const std::vector<int>& lost) {
  if (state_ != State::kFailed || comm_ == nullptr) return Unready("shrink");
  if (environment_.api->shrink == nullptr) {
    return absl::UnimplementedError(absl::StrCat(options_.name, ": NCCL ", NcclVersionName(environment_.api->version),
                                                 " cannot shrink a communicator (2.27.3 can): connect anew"));
  }
  if (lost.empty() || lost.front() < 0 || lost.back() >= options_.size ||
      std::adjacent_find(lost.begin(), lost.end(), std::greater_equal<int>()) != lost.end() ||
      std::find(lost.begin(), lost.end(), options_.rank) != lost.end()) {
    return absl::InvalidArgumentError(absl::StrCat(options_.name, ": the lost ranks must be ascending, below ",
                                                   options_.size, " and not rank ", options_.rank, " itself"));
  }
  Options options = options_;
  options.size -= static_cast<int>(lost.size());
  options.rank -= static_cast<int>(std::lower_bound(lost.begin(), lost.end(), options_.rank) - lost.begin());
  auto survivors = std::make_unique<NcclSession>(environment_, options);
  {
    // The request was for what failed; the survivors start without it.
    MutexLock lock(&mutex_);
    abort_request_ = absl::OkStatus();
  }
  absl::Status status;
  if (environment_.api->revoke != nullptr) {
    const NcclResult result = environment_.api->revoke(comm_);
    status = result == NcclResult::kSuccess || result == NcclResult::kInProgress
                 ? Poll("revoke", comm_, nullptr, options_.abort_timeout)
                 : NcclError("revoke", result, comm_);
  }
  if (status.ok()) {
    const NcclResult result = environment_.api->shrink(comm_, lost, &survivors->comm_);
    if ((result != NcclResult::kSuccess && result != NcclResult::kInProgress) || survivors->comm_ == nullptr) {
      status = NcclError("shrink", result, comm_);
    } else {
      status = Poll("shrink", survivors->comm_, nullptr, options_.connect_timeout);
    }
  }
  // The parent is aborted on every survivor and never destroyed, which would wait for the lost ranks.
  const absl::Status release = Release();
  if (status.ok()) status = release;
  if (!status.ok()) return status;
  survivors->state_ = State::kReady;
  return survivors;
}

absl::Status NcclSession::Close() {
  if (state_ != State::kReady) return Unready("close");
  const NcclResult finalized = environment_.api->finalize(comm_);
  absl::Status status = finalized == NcclResult::kSuccess || finalized == NcclResult::kInProgress
                            ? Poll("close", comm_, nullptr, options_.timeout)
                            : NcclError("close", finalized, comm_);
  if (status.ok()) {
    const NcclResult destroyed = environment_.api->destroy(comm_);
    if (destroyed == NcclResult::kSuccess) {
      comm_ = nullptr;
      state_ = State::kClosed;
      return status;
    }
    status = NcclError("close", destroyed, comm_);
  }
  (void)Fail(status);
  (void)Release();
  return failure_;
}

absl::Status NcclSession::Release() {
  if (comm_ == nullptr) {
    if (state_ == State::kFailed) state_ = State::kEnded;
    return absl::OkStatus();
  }
  const auto result = std::make_shared<std::atomic<int>>(-1);
  environment_.executor->Schedule([api = environment_.api, comm = std::exchange(comm_, nullptr), result] {
    *result = static_cast<int>(api->abort(comm));
  });
  const Deadline deadline = Deadline::After(options_.abort_timeout, environment_.clock);
  absl::Duration pause = kFirstPause;
  while (*result < 0 && !deadline.HasPassed()) {
    environment_.pause(std::min(pause, deadline.Remaining()));
    pause = std::min(2 * pause, kLongestPause);
  }
  if (failure_.ok()) failure_ = absl::AbortedError(absl::StrCat(options_.name, ": released on rank ", options_.rank));
  if (*result < 0) {
    state_ = State::kAbandoned;
    return absl::DeadlineExceededError(absl::StrCat(options_.name, ": ncclCommAbort on rank ", options_.rank,
                                                    " did not return within ",
                                                    absl::FormatDuration(options_.abort_timeout)));
  }
  state_ = State::kEnded;
  return absl::OkStatus();
}

void NcclSession::RequestAbort(absl::string_view reason) {
  MutexLock lock(&mutex_);
  if (abort_request_.ok()) {
    abort_request_ = absl::AbortedError(absl::StrCat(options_.name, ": aborted by rank ", options_.rank, ": ", reason));
  }
}

void DetachedThreads::Schedule(std::function<void()> task) { std::thread(std::move(task)).detach(); }

}  // namespace leeway
