#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "collective/communicator_test_suite.h"
#include "collective/in_process/in_process_group.h"
#include "collective/in_process/run_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::StartsWith;

constexpr absl::Duration kAmple = absl::Seconds(60);
constexpr absl::Duration kShort = absl::Milliseconds(20);

class InProcessConformanceTest : public ::testing::TestWithParam<std::tuple<CommunicatorCheck, int>> {};

TEST_P(InProcessConformanceTest, Holds) {
  const auto [check, size] = GetParam();
  const absl::Status status =
      RunRanksToStatus(size, kAmple, [run = check.run](int, Communicator* communicator) { return run(communicator); });
  EXPECT_TRUE(status.ok()) << status;
}

INSTANTIATE_TEST_SUITE_P(Checks, InProcessConformanceTest,
                         ::testing::Combine(::testing::ValuesIn(CommunicatorChecks()), ::testing::Values(1, 2, 3, 4)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "On" +
                                  std::to_string(std::get<1>(info.param));
                         });

// Ranks 0 and 3 call, 1 and 2 never do.
TEST(InProcessGroupTest, ATimeoutNamesTheMissingRanksOnAllThatWait) {
  InProcessGroup group(4, "data", kShort);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(group.Take(rank));
  absl::Status of_three;
  std::vector<double> data(5), other(5);
  std::thread three([&] { of_three = ranks[3]->AllReduce(ReduceOp::kSum, DType::kF64, other.data(), 5); });
  const absl::Status of_zero = ranks[0]->AllReduce(ReduceOp::kSum, DType::kF64, data.data(), 5);
  three.join();
  EXPECT_EQ(of_three, of_zero);
  EXPECT_EQ(of_zero.code(), absl::StatusCode::kDeadlineExceeded);
  // Whichever of the two times out first; the other may not have come yet.
  const std::string text(of_zero.message());
  EXPECT_THAT(text, StartsWith("data: all_reduce #1 (sum, F64, 5 elements): ranks "));
  EXPECT_THAT(text, AnyOf(EndsWith(": ranks 1 and 2 did not arrive within 20ms"),
                          EndsWith(": ranks 0, 1 and 2 did not arrive within 20ms"),
                          EndsWith(": ranks 1, 2 and 3 did not arrive within 20ms")));
  // Who comes late gets the first error too.
  EXPECT_EQ(ranks[1]->Barrier(), of_zero);
  EXPECT_EQ(ranks[2]->Split(0, "part").status(), of_zero);
}

TEST(InProcessGroupTest, AMissingPeerOfAMessageIsNamed) {
  for (const bool sends : {true, false}) {
    InProcessGroup group(2, "pair", kShort);
    const std::unique_ptr<Communicator> zero = group.Take(0), one = group.Take(1);
    int64_t value = 0;
    const absl::Status status =
        sends ? zero->Send(DType::kI64, &value, 1, 1) : zero->Receive(DType::kI64, &value, 1, 1);
    EXPECT_EQ(status, absl::DeadlineExceededError(std::string("pair: ") + (sends ? "send" : "receive") +
                                                  " #1 (I64, 1 elements): rank 1 did not arrive within 20ms"));
    EXPECT_EQ(one->Barrier(), status);
  }
}

TEST(InProcessGroupTest, ARankThatLeavesEndsTheWaitAtOnce) {
  InProcessGroup group(3, "data", kAmple);
  const std::unique_ptr<Communicator> zero = group.Take(0), one = group.Take(1);
  group.Take(2).reset();
  EXPECT_EQ(zero->Barrier(), absl::UnavailableError("data: barrier #1: rank 2 is gone"));
  EXPECT_EQ(one->Barrier(), absl::UnavailableError("data: barrier #1: rank 2 is gone"));
}

TEST(InProcessGroupTest, MessagesOfAPartNameTheRanksOfTheWhole) {
  const std::vector<absl::Status> statuses = RunRanks(4, kAmple, [](int rank, Communicator* communicator) {
    absl::StatusOr<std::unique_ptr<Communicator>> part = communicator->Split(rank / 2, rank < 2 ? "low" : "high");
    if (!part.ok()) return part.status();
    if (rank == 3) part->reset();  // rank 1 of "high"
    if (rank == 2) return (*part)->Barrier();
    return communicator->Barrier();
  });
  EXPECT_THAT(statuses, Each(absl::UnavailableError("high: barrier #1: rank 3 is gone")));
}

TEST(InProcessGroupTest, ABarrierWaitsForAll) {
  std::atomic<int> arrived = 0;
  const absl::Status status = RunRanksToStatus(4, kAmple, [&](int, Communicator* communicator) {
    for (int round = 1; round <= 100; ++round) {
      ++arrived;
      if (absl::Status barrier = communicator->Barrier(); !barrier.ok()) return barrier;
      if (arrived < 4 * round) return absl::InternalError("somebody is still before the barrier");
      if (absl::Status barrier = communicator->Barrier(); !barrier.ok()) return barrier;
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// What the thread sanitizer and the address sanitizer look at: memory of an aborted operation is free at once.
TEST(InProcessGroupTest, AbortsRaceWithOperations) {
  for (int round = 0; round < 60; ++round) {
    const std::vector<absl::Status> statuses = RunRanks(3, kAmple, [&](int rank, Communicator* communicator) {
      for (int i = 0;; ++i) {
        if (rank == round % 3 && i == round % 7) communicator->Abort("enough");
        std::vector<float> data(20'000, 1.0f);
        if (absl::Status s = communicator->AllReduce(ReduceOp::kSum, DType::kF32, data.data(), 20'000); !s.ok()) {
          return s;
        }
      }
    });
    EXPECT_THAT(statuses, Each(absl::AbortedError("ranks: aborted by rank " + std::to_string(round % 3) + ": enough")));
  }
}

TEST(RunRanksTest, AFailedRankEndsTheOthers) {
  const auto body = [](int rank, Communicator* communicator) {
    return rank == 1 ? absl::DataLossError("bad shard") : communicator->Barrier();
  };
  const std::vector<absl::Status> statuses = RunRanks(3, kAmple, body);
  EXPECT_EQ(statuses[1], absl::DataLossError("bad shard"));
  EXPECT_EQ(statuses[0], absl::AbortedError("ranks: aborted by rank 1: DATA_LOSS: bad shard"));
  EXPECT_EQ(statuses[2], statuses[0]);
  EXPECT_EQ(RunRanksToStatus(3, kAmple, body), absl::DataLossError("bad shard"));
}

}  // namespace
}  // namespace leeway
