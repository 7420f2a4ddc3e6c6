// The same protocol between real processes, killed with SIGKILL or hung at failpoints. The other process is this test
// binary, told by its environment what to be.

#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weightsync/fake_loopback.h"
#include "weightsync/transport/shared_memory.h"

extern char** environ;

namespace leeway {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// ---- what the other process does ----

// Receives and takes versions until it is killed.
TEST(WeightChildProcess, Receiver) {
  // In the tests' own process there is nothing to do.
  if (Environment("CHILD_ADDRESS").empty()) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  GrpcWeightSubscriber::Options options;
  options.publisher_address = Environment("CHILD_ADDRESS");
  options.name = "child";
  options.expected = LoopbackModel::Layout();
  options.transport = Environment("CHILD_TRANSPORT");
  auto subscriber = *GrpcWeightSubscriber::Create(options);
  subscriber->SetIdentity(Identity(50, std::stoull(Environment("CHILD_EPOCH"))));
  while (true) {
    subscriber->WaitForNewer(absl::Minutes(1));
    if (const auto newer = subscriber->TakeNewer(); newer.has_value())
      subscriber->ReportSwapped(newer->weights, absl::ZeroDuration());
  }
}

// Publishes versions 1 and 2 of lineage 1 to two receivers.
TEST(WeightChildProcess, Publisher) {
  if (Environment("CHILD_ADDRESS").empty()) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  GrpcWeightPublisher::Options options = LoopbackPublisherOptions();
  options.address = Environment("CHILD_ADDRESS");
  auto publisher = *GrpcWeightPublisher::Create(options);
  ASSERT_TRUE(Eventually([&] { return publisher->member_count() == 2; }));
  for (uint64_t version = 1; version <= 2; ++version) {
    ASSERT_TRUE(publisher->Prepare(Version(1, version), LoopbackModel(version).Views(), kLong).ok());
    publisher->Commit(Version(1, version));
  }
  while (true) pause();
}

// ---- the tests' side ----

class ChildProcess {
 public:
  ChildProcess(const std::string& role, const std::vector<std::string>& settings) {
    const std::string filter = absl::StrCat("--gtest_filter=WeightChildProcess.", role);
    std::vector<std::string> words = {"weightsync_test", filter, "--gtest_brief=1"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    std::vector<std::string> variables = settings;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      if (!absl::StartsWith(*variable, "LEEWAY_FAILPOINTS=")) variables.emplace_back(*variable);
    }
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, arguments.data(), environment.data()), 0);
  }
  ~ChildProcess() { Kill(); }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    WaitForEnd();
  }
  // The signal that ended it, 0 for none.
  int WaitForEnd() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  pid_t pid_ = 0;
};

using Committed = std::map<std::pair<uint64_t, uint64_t>, std::string>;

struct KillCase {
  const char* transport;
  const char* failpoint;
  // What happens to the publish of version 2.
  const char* reason;
};

class ReceiverKillLoopbackTest : public ::testing::TestWithParam<KillCase> {};

INSTANTIATE_TEST_SUITE_P(
    Points, ReceiverKillLoopbackTest,
    ::testing::Values(KillCase{"shared_memory", "weights_receiver_mid_transfer=kill@30", "connection lost"},
                      KillCase{"grpc", "weights_receiver_mid_transfer=kill@30", "connection lost"},
                      KillCase{"shared_memory", "weights_receiver_before_verify=kill@2", "connection lost"},
                      KillCase{"grpc", "weights_receiver_after_verify=kill@2", "connection lost"},
                      KillCase{"shared_memory", "weights_receiver_mid_transfer=hang@30", "deadline"},
                      KillCase{"grpc", "weights_receiver_before_verify=hang@2", "deadline"},
                      KillCase{"grpc", "weights_receiver_before_verify=error@2", "failpoint"}));

TEST_P(ReceiverKillLoopbackTest, TheOthersReachTheVersionAndASuccessorComesBack) {
  auto publisher = *GrpcWeightPublisher::Create(LoopbackPublisherOptions());
  LoopbackReceiver healthy(publisher->address(), GetParam().transport, 1);
  const std::string address = absl::StrCat("CHILD_ADDRESS=", publisher->address());
  const std::string transport = absl::StrCat("CHILD_TRANSPORT=", GetParam().transport);
  ChildProcess child("Receiver",
                     {address, transport, "CHILD_EPOCH=1", absl::StrCat("LEEWAY_FAILPOINTS=", GetParam().failpoint)});
  ASSERT_TRUE(Eventually([&] { return publisher->member_count() == 2; }));
  Committed committed;
  const auto publish = [&](uint64_t version, absl::Duration timeout) {
    const LoopbackModel model(version);
    auto prepared = publisher->Prepare(Version(1, version), model.Views(), timeout);
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    committed[{1, version}] = model.digest();
    publisher->Commit(Version(1, version));
    EXPECT_TRUE(healthy.Reach(Version(1, version), committed));
    return *prepared;
  };
  EXPECT_THAT(publish(1, kLong).members, SizeIs(2));
  const bool is_at_once = std::string(GetParam().reason) != "deadline";
  const absl::Duration timeout = is_at_once ? kLong : absl::Seconds(1);
  const MonotonicTime started = RealClock()->Now();
  const PreparedPublish second = publish(2, timeout);
  EXPECT_LT(RealClock()->Now() - started, is_at_once ? kLong : kLong / 2);
  EXPECT_THAT(second.members, SizeIs(1));
  ASSERT_THAT(second.fenced, SizeIs(1));
  EXPECT_THAT(second.fenced[0].reason, HasSubstr(GetParam().reason));
  EXPECT_EQ(second.fenced[0].name, "child");

  child.Kill();
  ChildProcess successor("Receiver", {address, transport, "CHILD_EPOCH=2"});
  ASSERT_TRUE(Eventually([&] { return publisher->member_count() == 2; }));
  EXPECT_THAT(publish(3, kLong).members, SizeIs(2));
}

struct PublisherKillCase {
  const char* transport;
  const char* failpoint;
  // What the queue had committed when the publisher died.
  uint64_t committed;
};

class PublisherKillLoopbackTest : public ::testing::TestWithParam<PublisherKillCase> {};

INSTANTIATE_TEST_SUITE_P(
    Points, PublisherKillLoopbackTest,
    ::testing::Values(PublisherKillCase{"shared_memory", "weights_publisher_before_announce=kill@1", 0},
                      PublisherKillCase{"shared_memory", "weights_publisher_after_announce=kill@1", 0},
                      PublisherKillCase{"grpc", "weights_publisher_mid_transfer=kill@5", 0},
                      PublisherKillCase{"grpc", "weights_publisher_before_announce=kill@2", 1},
                      PublisherKillCase{"grpc", "weights_publisher_mid_transfer=kill@50", 1},
                      PublisherKillCase{"shared_memory", "weights_publisher_before_commit=kill@2", 2},
                      PublisherKillCase{"grpc", "weights_publisher_before_commit=kill@2", 2},
                      PublisherKillCase{"shared_memory", "weights_publisher_after_commit=kill@2", 2}));

TEST_P(PublisherKillLoopbackTest, ReceiversHoldWhatTheQueueCommittedAndTheNextPublisherGoesOn) {
  GrpcWeightPublisher::Options options = LoopbackPublisherOptions();
  LoopbackReceiver first(options.address, GetParam().transport, 1);
  LoopbackReceiver second(options.address, GetParam().transport, 2);
  Committed committed;
  for (uint64_t version = 1; version <= GetParam().committed; ++version)
    committed[{1, version}] = LoopbackModel(version).digest();
  ChildProcess child("Publisher", {absl::StrCat("CHILD_ADDRESS=", options.address),
                                   absl::StrCat("LEEWAY_FAILPOINTS=", GetParam().failpoint)});
  EXPECT_EQ(child.WaitForEnd(), SIGKILL);
  // The queue's heartbeats name its newest version.
  for (LoopbackReceiver* receiver : {&first, &second}) {
    if (GetParam().committed == 0) {
      EXPECT_FALSE(receiver->subscriber()->WaitForNewer(absl::Milliseconds(50)));
      continue;
    }
    const v1::WeightsVersion newest = Version(1, GetParam().committed);
    receiver->subscriber()->NoteCommitted(newest, committed[{1, GetParam().committed}]);
    if (GetParam().committed == 1) {
      // Either taken in time, or given up for version 2, whose transfer had begun.
      receiver->Take(committed);
    } else {
      EXPECT_TRUE(receiver->Reach(newest, committed));
    }
  }

  // The restarted trainer: higher lineage, and a version that is not higher.
  auto publisher = *GrpcWeightPublisher::Create(options);
  EXPECT_THAT(RemoveStaleSegments(), IsEmpty()) << "a new publisher cleans up after dead ones";
  ASSERT_TRUE(Eventually([&] { return publisher->member_count() == 2; }));
  const LoopbackModel restored(99);
  const auto prepared = publisher->Prepare(Version(2, 1), restored.Views(), kLong);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_THAT(prepared->members, SizeIs(2));
  committed[{2, 1}] = restored.digest();
  publisher->Commit(Version(2, 1));
  EXPECT_TRUE(first.Reach(Version(2, 1), committed));
  EXPECT_TRUE(second.Reach(Version(2, 1), committed));
}

}  // namespace
}  // namespace leeway
