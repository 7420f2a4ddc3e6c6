#include "collective/communication_thread.h"

#include <atomic>
#include <vector>

#include "base/status_macros.h"
#include "collective/in_process/in_process_group.h"
#include "collective/in_process/run_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kAmple = absl::Seconds(60);

TEST(CommunicationThreadTest, RunsInTheOrderOfIssue) {
  InProcessGroup group(1, "one", kAmple);
  const std::unique_ptr<Communicator> communicator = group.Take(0);
  std::vector<int> order;
  {
    CommunicationThread thread(communicator.get());
    for (int i = 0; i < 5; ++i) {
      thread.Issue([&order, i](Communicator*) {
        order.push_back(i);
        return absl::OkStatus();
      });
    }
  }
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4));
}

TEST(CommunicationThreadTest, TheCallerGoesOnWhileThePeerIsMissing) {
  const absl::Status status = RunRanksToStatus(2, kAmple, [](int rank, Communicator* communicator) -> absl::Status {
    LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> prefetch, communicator->Split(0, "prefetch"));
    CommunicationThread thread(prefetch.get());
    std::vector<float> gathered(2), own(1, static_cast<float>(rank + 1));
    PendingOperation pending;
    const auto issue = [&] {
      pending = thread.Issue([&](Communicator* c) {
        return c->AllGather(DType::kF32, own.data(), {1, 1}, gathered.data());
      });
    };
    if (rank == 0) {
      issue();
      // Rank 1 has not issued its part before this barrier.
      if (pending.IsDone()) return absl::InternalError("done without the peer");
    }
    LEEWAY_RETURN_IF_ERROR(communicator->Barrier());
    if (rank == 1) issue();
    LEEWAY_RETURN_IF_ERROR(pending.Wait());
    if (!pending.IsDone()) return absl::InternalError("not done");
    return gathered == std::vector<float>{1, 2} ? absl::OkStatus() : absl::InternalError("wrong parts");
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(CommunicationThreadTest, ErrorsComeOutOfWait) {
  InProcessGroup group(2, "pair", absl::Milliseconds(5));
  const std::unique_ptr<Communicator> zero = group.Take(0), one = group.Take(1);
  CommunicationThread thread(zero.get());
  const PendingOperation first = thread.Issue([](Communicator* c) { return c->Barrier(); });
  const PendingOperation second = thread.Issue([](Communicator* c) { return c->Barrier(); });
  const absl::Status expected = absl::DeadlineExceededError("pair: barrier #1: rank 1 did not arrive within 5ms");
  EXPECT_EQ(second.Wait(), expected);
  EXPECT_EQ(first.Wait(), expected);
}

}  // namespace
}  // namespace leeway
