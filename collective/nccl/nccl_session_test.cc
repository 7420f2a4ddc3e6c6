#include "collective/nccl/nccl_session.h"

#include <memory>
#include <string>
#include <vector>

#include "collective/nccl/fake_nccl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using State = NcclSession::State;
using ::testing::ElementsAre;

class NcclSessionTest : public ::testing::Test {
 protected:
  NcclSession::Options Options() {
    NcclSession::Options options;
    options.name = "weights";
    options.rank = 2;
    options.size = 4;
    options.connect_timeout = absl::Seconds(60);
    options.timeout = absl::Seconds(10);
    options.abort_timeout = absl::Seconds(3);
    return options;
  }

  void Connect() {
    ASSERT_TRUE(session_.Connect({}).ok());
    nccl_.calls.clear();
  }

  absl::Status Run() {
    return session_.Run(
        "broadcast",
        [this](NcclComm) {
          nccl_.calls.push_back("broadcast");
          return enqueue_result_;
        },
        nullptr);
  }

  absl::Duration Elapsed() { return nccl_.clock.Now() - start_; }

  FakeNccl nccl_;
  NcclResult enqueue_result_ = NcclResult::kInProgress;
  NcclSession session_{nccl_.Environment(), Options()};
  MonotonicTime start_ = nccl_.clock.Now();
};

TEST_F(NcclSessionTest, ConnectsRunsAndCloses) {
  EXPECT_EQ(session_.state(), State::kNew);
  nccl_.polls_in_progress = 5;
  EXPECT_TRUE(session_.Connect({}).ok());
  EXPECT_EQ(session_.state(), State::kReady);
  nccl_.polls_in_progress = 3;
  EXPECT_TRUE(Run().ok());
  EXPECT_TRUE(Run().ok());
  nccl_.polls_in_progress = 2;
  EXPECT_TRUE(session_.Close().ok());
  EXPECT_EQ(session_.state(), State::kClosed);
  EXPECT_TRUE(session_.Release().ok());
  EXPECT_THAT(nccl_.calls, ElementsAre("init", "broadcast", "broadcast", "finalize", "destroy"));
  EXPECT_EQ(Run(), absl::FailedPreconditionError("weights: broadcast on rank 2 of a session that is over"));
}

TEST_F(NcclSessionTest, NothingRunsBeforeTheConnection) {
  EXPECT_EQ(Run(), absl::FailedPreconditionError("weights: broadcast on rank 2 of a session that is not connected"));
  EXPECT_THAT(nccl_.calls, ElementsAre());
}

TEST_F(NcclSessionTest, ARankThatNeverConnectsEndsTheWaitAtTheDeadline) {
  nccl_.polls_in_progress = 1 << 30;
  const absl::Status status = session_.Connect({});
  EXPECT_EQ(status, absl::DeadlineExceededError("weights: connect on rank 2 is not over within 1m; NCCL does not tell "
                                                "which rank is missing"));
  EXPECT_EQ(Elapsed(), absl::Seconds(60));
  EXPECT_EQ(session_.state(), State::kEnded);
  EXPECT_THAT(nccl_.calls, ElementsAre("init", "abort"));
  EXPECT_EQ(Run(), status);
}

TEST_F(NcclSessionTest, AFailedInitHasNothingToAbort) {
  nccl_.init_result = NcclResult::kUnhandledCudaError;
  nccl_.last_error = "no CUDA-capable device is detected";
  EXPECT_EQ(session_.Connect({}), absl::UnavailableError("weights: connect on rank 2: ncclUnhandledCudaError: no "
                                                         "CUDA-capable device is detected"));
  EXPECT_EQ(session_.state(), State::kEnded);
  EXPECT_THAT(nccl_.calls, ElementsAre("init"));
}

TEST_F(NcclSessionTest, AnEmptyStreamIsNotDoneWhileTheEnqueueIsInProgress) {
  Connect();
  nccl_.polls_in_progress = 3;
  nccl_.stream_state = StreamState::kDone;
  int pauses = 0;
  nccl_.on_pause = [&] { ++pauses; };
  EXPECT_TRUE(Run().ok());
  EXPECT_EQ(pauses, 3);
}

TEST_F(NcclSessionTest, AnAsynchronousErrorEndsAnOperationThatNeverCompletes) {
  Connect();
  nccl_.stream_state = StreamState::kBusy;
  nccl_.on_pause = [&] { nccl_.async_state = NcclResult::kRemoteError; };
  const absl::Status status = Run();
  EXPECT_EQ(status, absl::UnavailableError("weights: broadcast on rank 2: ncclRemoteError"));
  EXPECT_LT(Elapsed(), absl::Seconds(1));
  EXPECT_EQ(session_.state(), State::kFailed);
  nccl_.async_state = NcclResult::kSuccess;
  nccl_.stream_state = StreamState::kDone;
  EXPECT_EQ(Run(), status) << "the first error stays";
  EXPECT_EQ(session_.Close(), status);
}

TEST_F(NcclSessionTest, AnOperationThatHangsEndsAtItsDeadline) {
  Connect();
  nccl_.stream_state = StreamState::kBusy;
  EXPECT_EQ(Run().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Elapsed(), absl::Seconds(10));
}

TEST_F(NcclSessionTest, ADeadPeerThatNcclDoesNotSeeIsNamedByTheControlPlane) {
  Connect();
  nccl_.stream_state = StreamState::kBusy;
  nccl_.on_pause = [&] { nccl_.liveness = absl::UnavailableError("rank 3 has sent no heartbeat for 5s"); };
  EXPECT_EQ(Run(), absl::UnavailableError("rank 3 has sent no heartbeat for 5s"));
  EXPECT_LT(Elapsed(), absl::Seconds(1));
}

TEST_F(NcclSessionTest, AFailedEnqueueAndAFailedStreamAreErrors) {
  Connect();
  enqueue_result_ = NcclResult::kInvalidUsage;
  EXPECT_EQ(Run(), absl::UnavailableError("weights: broadcast on rank 2: ncclInvalidUsage"));
  NcclSession other(nccl_.Environment(), Options());
  ASSERT_TRUE(other.Connect({}).ok());
  nccl_.stream_state = StreamState::kFailed;
  EXPECT_EQ(other.Run(
                "sum", [](NcclComm) { return NcclResult::kSuccess; }, nullptr),
            absl::UnavailableError("weights: sum on rank 2: ncclUnhandledCudaError"));
}

TEST_F(NcclSessionTest, ARequestToAbortEndsTheOperationInFlight) {
  Connect();
  nccl_.stream_state = StreamState::kBusy;
  nccl_.on_pause = [&] {
    session_.RequestAbort("the launcher says so");
    session_.RequestAbort("another reason");
  };
  const absl::Status expected = absl::AbortedError("weights: aborted by rank 2: the launcher says so");
  EXPECT_EQ(Run(), expected);
  EXPECT_THAT(nccl_.calls, ElementsAre("broadcast")) << "only the owner calls NCCL";
  EXPECT_EQ(Run(), expected);
  EXPECT_TRUE(session_.Release().ok());
  EXPECT_THAT(nccl_.calls, ElementsAre("broadcast", "abort"));
  EXPECT_EQ(session_.state(), State::kEnded);
}

TEST_F(NcclSessionTest, ARequestBetweenOperationsStopsTheNext) {
  Connect();
  session_.RequestAbort("enough");
  EXPECT_EQ(Run(), absl::AbortedError("weights: aborted by rank 2: enough"));
  EXPECT_THAT(nccl_.calls, ElementsAre());
}

TEST_F(NcclSessionTest, AnAbortThatHangsIsLeftBehind) {
  Connect();
  nccl_.aborts_hang = true;
  EXPECT_EQ(session_.Release(),
            absl::DeadlineExceededError("weights: ncclCommAbort on rank 2 did not return within 3s"));
  EXPECT_EQ(Elapsed(), absl::Seconds(3));
  EXPECT_EQ(session_.state(), State::kAbandoned);
  EXPECT_TRUE(session_.Release().ok()) << "nothing is left to abort";
}

TEST_F(NcclSessionTest, AnAbortThatIsLateIsWaitedFor) {
  Connect();
  nccl_.aborts_hang = true;
  nccl_.on_pause = [&] {
    if (Elapsed() < absl::Seconds(2)) return;
    for (const auto& task : nccl_.hanging) task();
    nccl_.hanging.clear();
  };
  EXPECT_TRUE(session_.Release().ok());
  EXPECT_EQ(session_.state(), State::kEnded);
  EXPECT_THAT(nccl_.calls, ElementsAre("abort"));
}

TEST_F(NcclSessionTest, AnAbortMayReturnAfterItsSession) {
  nccl_.aborts_hang = true;
  {
    NcclSession session(nccl_.Environment(), Options());
    ASSERT_TRUE(session.Connect({}).ok());
  }
  ASSERT_EQ(nccl_.hanging.size(), 1u);
  nccl_.hanging[0]();
  EXPECT_THAT(nccl_.calls, ElementsAre("init", "abort"));
}

TEST_F(NcclSessionTest, ACloseThatHangsEndsInAnAbort) {
  Connect();
  nccl_.polls_in_progress = 1 << 30;
  EXPECT_EQ(session_.Close().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(nccl_.calls, ElementsAre("finalize", "abort"));
  EXPECT_EQ(session_.state(), State::kEnded);
}

TEST_F(NcclSessionTest, SurvivorsGoOnInASmallerCommunicator) {
  Connect();
  nccl_.async_state = NcclResult::kRemoteError;
  EXPECT_FALSE(Run().ok());
  nccl_.calls.clear();
  auto survivors = session_.Shrink({0, 3});
  ASSERT_TRUE(survivors.ok()) << survivors.status();
  EXPECT_EQ((*survivors)->size(), 2);
  EXPECT_EQ((*survivors)->rank(), 1);  // ranks 1 and 2 are left
  EXPECT_EQ((*survivors)->state(), State::kReady);
  EXPECT_EQ(session_.state(), State::kEnded);
  EXPECT_THAT(nccl_.calls, ElementsAre("revoke", "shrink", "abort"));
  EXPECT_TRUE((*survivors)
                  ->Run(
                      "sum", [](NcclComm) { return NcclResult::kSuccess; }, nullptr)
                  .ok());
}

TEST_F(NcclSessionTest, AnAbortedOperationCanShrinkToo) {
  Connect();
  session_.RequestAbort("rank 3 is dead");
  EXPECT_FALSE(Run().ok());
  EXPECT_TRUE(session_.Shrink({3}).ok());
}

TEST_F(NcclSessionTest, WithoutRevokeShrinkAloneEndsTheParent) {
  Connect();
  nccl_.api->revoke = nullptr;
  nccl_.stream_state = StreamState::kBusy;
  EXPECT_FALSE(Run().ok());
  nccl_.calls.clear();
  const auto survivors = session_.Shrink({3});
  EXPECT_TRUE(survivors.ok()) << survivors.status();
  EXPECT_THAT(nccl_.calls, ElementsAre("shrink", "abort"));
}

TEST_F(NcclSessionTest, AnOldNcclCannotShrinkAndSaysSo) {
  Connect();
  nccl_.api->shrink = nullptr;
  nccl_.api->version = 22605;
  nccl_.stream_state = StreamState::kBusy;
  EXPECT_FALSE(Run().ok());
  EXPECT_EQ(session_.Shrink({3}).status(),
            absl::UnimplementedError("weights: NCCL 2.26.5 cannot shrink a communicator (2.27.3 can): connect anew"));
  EXPECT_EQ(session_.state(), State::kFailed);
}

TEST_F(NcclSessionTest, AShrinkThatHangsAbortsBoth) {
  Connect();
  nccl_.stream_state = StreamState::kBusy;
  EXPECT_FALSE(Run().ok());
  nccl_.calls.clear();
  nccl_.api->revoke = nullptr;
  nccl_.polls_in_progress = 1 << 30;
  EXPECT_EQ(session_.Shrink({3}).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(nccl_.calls, ElementsAre("shrink", "abort", "abort"));
  EXPECT_EQ(session_.state(), State::kEnded);
}

TEST_F(NcclSessionTest, OnlyAFailedSessionShrinksAndOnlyByOtherRanks) {
  Connect();
  EXPECT_EQ(session_.Shrink({3}).status(),
            absl::FailedPreconditionError("weights: shrink on rank 2 of a session that is ready"));
  nccl_.stream_state = StreamState::kBusy;
  EXPECT_FALSE(Run().ok());
  for (const std::vector<int>& lost : {std::vector<int>{}, {2}, {3, 1}, {1, 1}, {4}, {-1}}) {
    EXPECT_EQ(session_.Shrink(lost).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(DetachedThreadsTest, RunEachTask) {
  struct Signal {
    Mutex mutex;
    CondVar changed;
    bool is_set LEEWAY_GUARDED_BY(mutex) = false;
  };
  const auto signal = std::make_shared<Signal>();
  DetachedThreads().Schedule([signal] {
    MutexLock lock(&signal->mutex);
    signal->is_set = true;
    signal->changed.NotifyAll();
  });
  MutexLock lock(&signal->mutex);
  while (!signal->is_set) signal->changed.WaitFor(&signal->mutex, absl::Seconds(60));
}

}  // namespace
}  // namespace leeway
