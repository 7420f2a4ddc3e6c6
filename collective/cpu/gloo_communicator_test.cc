#include "collective/cpu/gloo_communicator.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collective/cpu/fake_rendezvous_store.h"
#include "collective/cpu/rank_address.h"
#include "gloo/transport/context.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/tcp/device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Processes as threads, each with its own connections.
class GlooCommunicatorTest : public ::testing::Test {
 protected:
  GlooOptions Options(int rank, int size) {
    GlooOptions options;
    options.rank = rank;
    options.size = size;
    options.name = "data";
    options.timeout = absl::Seconds(60);
    options.rendezvous_timeout = absl::Seconds(60);
    options.store = &store_;
    options.generation = "1";
    return options;
  }

  std::vector<absl::StatusOr<std::unique_ptr<Communicator>>> ConnectAll(const std::vector<GlooOptions>& options) {
    std::vector<absl::StatusOr<std::unique_ptr<Communicator>>> results(options.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < options.size(); ++i) {
      threads.emplace_back([&, i] { results[i] = CreateGlooCommunicator(options[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  FakeRendezvousStore store_;
};

TEST_F(GlooCommunicatorTest, ARankThatNeverComesIsNamedByAll) {
  std::vector<GlooOptions> options = {Options(0, 4), Options(2, 4)};
  for (GlooOptions& of_rank : options) of_rank.rendezvous_timeout = absl::Milliseconds(50);
  for (const auto& result : ConnectAll(options)) {
    EXPECT_EQ(result.status(),
              absl::DeadlineExceededError("data: rendezvous 1: ranks 1 and 3 did not come within 50ms"));
  }
}

TEST_F(GlooCommunicatorTest, TwoProcessesCannotBeTheSameRank) {
  const std::vector<GlooOptions> options = {Options(0, 2), Options(1, 2)};
  auto ranks = ConnectAll(options);
  ASSERT_TRUE(ranks[0].ok() && ranks[1].ok());
  EXPECT_EQ(CreateGlooCommunicator(Options(1, 2)).status(),
            absl::AlreadyExistsError("data: another process is or was rank 1 of generation 1"));
  (*ranks[0])->Abort("end");
}

TEST_F(GlooCommunicatorTest, RanksThatDisagreeOnTheirNumberAreToldSo) {
  const std::vector<GlooOptions> options = {Options(0, 2), Options(1, 3)};
  std::vector<GlooOptions> impatient = options;
  impatient[1].rendezvous_timeout = absl::Milliseconds(50);
  const auto results = ConnectAll(impatient);
  EXPECT_EQ(results[0].status(), absl::InvalidArgumentError("data: rank 1 is one of 3 ranks, rank 0 one of 2"));
  EXPECT_EQ(results[1].status(), absl::InvalidArgumentError("data: rank 0 is one of 2 ranks, rank 1 one of 3"));
}

TEST_F(GlooCommunicatorTest, ARankThatDiesWhileAllMeetIsNamedByAll) {
  // Rank 2 has said where it is, and is there no more.
  RankAddresses dead{3, "1/1", {"", "", ""}};
  {
    gloo::transport::tcp::attr attributes("127.0.0.1");
    const std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
    const std::shared_ptr<gloo::transport::Context> context = device->createContext(2, 3);
    for (int peer = 0; peer < 2; ++peer) {
      const std::vector<char> address = context->createPair(peer)->address().bytes();
      dead.addresses[static_cast<size_t>(peer)].assign(address.begin(), address.end());
    }
  }
  ASSERT_TRUE(store_.SetOnce("1/rank/2", dead.Encode(), Deadline::Infinite()).ok());
  std::vector<GlooOptions> options = {Options(0, 3), Options(1, 3)};
  for (GlooOptions& of_rank : options) of_rank.rendezvous_timeout = absl::Seconds(1);
  for (const auto& result : ConnectAll(options)) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(result.status().message()), StartsWith("data: rendezvous 1: rank 2 is gone ("));
  }
}

TEST_F(GlooCommunicatorTest, AWaitThatTimesOutNamesTheRankOnBothSides) {
  std::vector<GlooOptions> options = {Options(0, 2), Options(1, 2)};
  for (GlooOptions& of_rank : options) of_rank.timeout = absl::Milliseconds(30);
  auto ranks = ConnectAll(options);
  ASSERT_TRUE(ranks[0].ok() && ranks[1].ok());
  const absl::Status expected =
      absl::DeadlineExceededError("data: receive #1 (F32, 1 elements): rank 1 did not arrive within 30ms");
  float value = 0;
  EXPECT_EQ((*ranks[0])->Receive(DType::kF32, &value, 1, 1), expected);
  EXPECT_EQ((*ranks[1])->Barrier(), expected);
}

TEST_F(GlooCommunicatorTest, WhoWaitsForAHungRankIsNotTakenForHung) {
  std::vector<GlooOptions> options;
  for (int rank = 0; rank < 4; ++rank) {
    options.push_back(Options(rank, 4));
    options.back().timeout = absl::Seconds(1);
  }
  auto ranks = ConnectAll(options);
  // Rank 0 does nothing. Rank 2 waits for it, ranks 1 and 3 for both.
  std::vector<std::unique_ptr<Communicator>> pairs(4);
  std::vector<absl::Status> ends(4);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(ranks[rank].ok()) << ranks[rank].status();
    threads.emplace_back([&, rank] {
      pairs[rank] = (*ranks[rank])->Split(static_cast<int>(rank) % 2, "pair").value();
      if (rank > 0) ends[rank] = rank == 2 ? pairs[rank]->Barrier() : (*ranks[rank])->Barrier();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const size_t rank : {1, 2, 3}) {
    EXPECT_THAT(std::string(ends[rank].message()), EndsWith(": rank 0 did not arrive within 1s"));
  }
}

TEST_F(GlooCommunicatorTest, ALeavingRankWaitsForTheOthers) {
  auto ranks = ConnectAll({Options(0, 2), Options(1, 2)});
  ASSERT_TRUE(ranks[0].ok() && ranks[1].ok());
  // Larger than what sockets hold: it is on its way when rank 0 has written the last of it.
  std::vector<double> sent(3'000'000, 7.0), received(sent.size());
  std::thread zero([&] {
    EXPECT_TRUE((*ranks[0])->Send(DType::kF64, sent.data(), static_cast<int64_t>(sent.size()), 1).ok());
    ranks[0]->reset();
  });
  EXPECT_TRUE((*ranks[1])->Receive(DType::kF64, received.data(), static_cast<int64_t>(sent.size()), 0).ok());
  ranks[1]->reset();
  zero.join();
  EXPECT_EQ(received, sent);
}

TEST_F(GlooCommunicatorTest, AStoreThatIsGoneLeavesTheRankItsOwnError) {
  class Broken final : public RendezvousStore {
   public:
    explicit Broken(RendezvousStore* store) : store_(store) {}
    absl::StatusOr<std::string> SetOnce(const std::string& key, const std::string& value,
                                        const Deadline& deadline) override {
      if (key == "1/failure") return absl::UnavailableError("the launcher is gone");
      return store_->SetOnce(key, value, deadline);
    }
    absl::StatusOr<std::string> Get(const std::string& key, const Deadline& deadline) override {
      return store_->Get(key, deadline);
    }

   private:
    RendezvousStore* const store_;
  } broken(&store_);
  std::vector<GlooOptions> options = {Options(0, 2), Options(1, 2)};
  for (GlooOptions& of_rank : options) of_rank.store = &broken;
  auto ranks = ConnectAll(options);
  ASSERT_TRUE(ranks[0].ok() && ranks[1].ok());
  (*ranks[0])->Abort("why");
  EXPECT_EQ((*ranks[0])->Barrier(), absl::AbortedError("data: aborted by rank 0: why"));
  EXPECT_EQ((*ranks[1])->Barrier().code(), absl::StatusCode::kUnavailable);
}

TEST_F(GlooCommunicatorTest, OneRankNeedsNoStore) {
  GlooOptions options = Options(0, 1);
  options.store = nullptr;
  const auto communicator = CreateGlooCommunicator(options);
  ASSERT_TRUE(communicator.ok()) << communicator.status();
  double value = 3;
  EXPECT_TRUE((*communicator)->AllReduce(ReduceOp::kSum, DType::kF64, &value, 1).ok());
  EXPECT_EQ(value, 3);
}

TEST_F(GlooCommunicatorTest, BadOptionsAreRefused) {
  EXPECT_THAT(CreateGlooCommunicator(Options(2, 2)).status().ToString(), HasSubstr("rank 2 of 2"));
  GlooOptions options = Options(0, 2);
  options.store = nullptr;
  EXPECT_THAT(CreateGlooCommunicator(options).status().ToString(), HasSubstr("no rendezvous store"));
  options = Options(0, 2);
  options.timeout = absl::ZeroDuration();
  EXPECT_THAT(CreateGlooCommunicator(options).status().ToString(), HasSubstr("timeouts must be positive"));
  options = Options(0, 2);
  options.interface = "no-such-interface";
  const absl::Status status = CreateGlooCommunicator(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.ToString(), HasSubstr("no-such-interface"));
}

}  // namespace
}  // namespace leeway
