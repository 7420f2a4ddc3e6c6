#ifndef LEEWAY_COLLECTIVE_NCCL_FAKE_NCCL_H_
#define LEEWAY_COLLECTIVE_NCCL_FAKE_NCCL_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/fake_clock.h"
#include "collective/nccl/nccl_session.h"

namespace leeway {

// An NCCL without GPUs that a test leads: each call is written down and answers what the test has set. Time passes only
// in pauses. One thread.
class FakeNccl : public Executor {
 public:
  FakeNccl() {
    api->version = 22809;
    api->init_rank = [this](NcclComm* comm, int, const NcclUniqueId&, int) {
      calls.push_back("init");
      if (init_result == NcclResult::kSuccess || init_result == NcclResult::kInProgress) *comm = NewComm();
      return init_result;
    };
    api->async_error = [this](NcclComm, NcclResult* state) {
      *state = polls_in_progress-- > 0 ? NcclResult::kInProgress : async_state;
      return NcclResult::kSuccess;
    };
    api->abort = [this](NcclComm) {
      calls.push_back("abort");
      return NcclResult::kSuccess;
    };
    api->finalize = [this](NcclComm) {
      calls.push_back("finalize");
      return finalize_result;
    };
    api->destroy = [this](NcclComm) {
      calls.push_back("destroy");
      return NcclResult::kSuccess;
    };
    api->shrink = [this](NcclComm, std::vector<int>, NcclComm* result) {
      calls.push_back("shrink");
      if (shrink_result == NcclResult::kSuccess || shrink_result == NcclResult::kInProgress) *result = NewComm();
      return shrink_result;
    };
    api->revoke = [this](NcclComm) {
      calls.push_back("revoke");
      async_state = NcclResult::kSuccess;
      return NcclResult::kInProgress;
    };
    api->last_error = [this](NcclComm) { return last_error; };
    api->query_stream = [this](CudaStream) { return stream_state; };
  }

  NcclSession::Environment Environment() {
    return {api, &clock, this,
            [this](absl::Duration duration) {
              clock.Advance(duration);
              if (on_pause) on_pause();
            },
            [this] { return liveness; }};
  }

  // Aborts: at once, or only when the test says so.
  void Schedule(std::function<void()> task) override {
    if (aborts_hang) {
      hanging.push_back(std::move(task));
    } else {
      task();
    }
  }

  std::shared_ptr<NcclApi> api = std::make_shared<NcclApi>();
  FakeClock clock;
  std::vector<std::string> calls;
  NcclResult init_result = NcclResult::kInProgress;
  NcclResult finalize_result = NcclResult::kInProgress;
  NcclResult shrink_result = NcclResult::kInProgress;
  // How often async_error says "in progress" before it says async_state.
  int polls_in_progress = 0;
  NcclResult async_state = NcclResult::kSuccess;
  StreamState stream_state = StreamState::kDone;
  std::string last_error;
  absl::Status liveness;
  std::function<void()> on_pause;
  bool aborts_hang = false;
  std::vector<std::function<void()>> hanging;

 private:
  NcclComm NewComm() { return reinterpret_cast<NcclComm>(++comms_); }

  uintptr_t comms_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_NCCL_FAKE_NCCL_H_
