// Publisher and receivers over real gRPC on a unix socket, both transports, all faults of a publish. Everything that is
// taken out of a subscriber is checked by digest against what the "queue" of the test committed.

#include <map>
#include <thread>

#include "base/failpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weightsync/fake_loopback.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class WeightLoopbackTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { StartPublisher(); }

  void StartPublisher() {
    auto made = GrpcWeightPublisher::Create(options_);
    ASSERT_TRUE(made.ok()) << made.status();
    publisher_ = *std::move(made);
  }
  std::unique_ptr<LoopbackReceiver> Attach(uint64_t producer) {
    const int before = publisher_->member_count();
    auto receiver = std::make_unique<LoopbackReceiver>(publisher_->address(), GetParam(), producer);
    EXPECT_TRUE(Eventually([&] { return publisher_->member_count() > before; }));
    return receiver;
  }
  PreparedPublish Prepare(const v1::WeightsVersion& weights, const LoopbackModel& model,
                          absl::Duration timeout = kLong) {
    auto prepared = publisher_->Prepare(weights, model.Views(), timeout);
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    return prepared.ok() ? *prepared : PreparedPublish();
  }
  void NoteInQueue(const v1::WeightsVersion& weights, const LoopbackModel& model) {
    committed_[{weights.lineage(), weights.version()}] = model.digest();
  }
  PreparedPublish Publish(const v1::WeightsVersion& weights, const LoopbackModel& model,
                          absl::Duration timeout = kLong) {
    PreparedPublish prepared = Prepare(weights, model, timeout);
    NoteInQueue(weights, model);
    publisher_->Commit(weights);
    return prepared;
  }

  GrpcWeightPublisher::Options options_ = LoopbackPublisherOptions();
  std::unique_ptr<GrpcWeightPublisher> publisher_;
  std::map<std::pair<uint64_t, uint64_t>, std::string> committed_;
};

INSTANTIATE_TEST_SUITE_P(Transports, WeightLoopbackTest, ::testing::Values("shared_memory", "grpc"),
                         [](const auto& info) { return info.param; });

TEST_P(WeightLoopbackTest, ThreeReceiversReachManyVersions) {
  std::vector<std::unique_ptr<LoopbackReceiver>> receivers;
  for (uint64_t producer = 1; producer <= 3; ++producer) receivers.push_back(Attach(producer));
  for (uint64_t version = 1; version <= 8; ++version) {
    const PreparedPublish prepared = Publish(Version(1, version), LoopbackModel(version));
    EXPECT_THAT(prepared.members, SizeIs(3));
    EXPECT_THAT(prepared.fenced, IsEmpty());
    EXPECT_EQ(prepared.bytes_sent, 3u * 20346u);
    EXPECT_EQ(prepared.manifest.digest(), LoopbackModel(version).digest());
    for (auto& receiver : receivers) EXPECT_TRUE(receiver->Reach(Version(1, version), committed_));
  }
}

TEST_P(WeightLoopbackTest, NothingIsHandedOutBeforeTheCommit) {
  auto receiver = Attach(1);
  Prepare(Version(1, 1), LoopbackModel(1));
  EXPECT_FALSE(receiver->subscriber()->WaitForNewer(absl::Milliseconds(100)));
  EXPECT_FALSE(receiver->subscriber()->TakeNewer().has_value());
  NoteInQueue(Version(1, 1), LoopbackModel(1));
  publisher_->Commit(Version(1, 1));
  EXPECT_TRUE(receiver->Reach(Version(1, 1), committed_));
}

TEST_P(WeightLoopbackTest, AnAbandonedVersionIsNeverHandedOut) {
  auto receiver = Attach(1);
  Publish(Version(1, 1), LoopbackModel(1));
  ASSERT_TRUE(receiver->Reach(Version(1, 1), committed_));
  Prepare(Version(1, 2), LoopbackModel(2));
  publisher_->Abandon(Version(1, 2), "the queue refused");
  EXPECT_FALSE(receiver->subscriber()->WaitForNewer(absl::Milliseconds(100)));
  receiver->subscriber()->NoteCommitted(Version(1, 2), LoopbackModel(2).digest());
  EXPECT_FALSE(receiver->subscriber()->TakeNewer().has_value());
  Publish(Version(1, 3), LoopbackModel(3));
  EXPECT_TRUE(receiver->Reach(Version(1, 3), committed_));
}

TEST_P(WeightLoopbackTest, KilledStalledAndCorruptedReceiversDoNotHoldUpTheOthers) {
  auto healthy = Attach(1);
  auto killed = Attach(2);
  auto stalled = Attach(3);
  auto corrupted = Attach(4);
  Publish(Version(1, 1), LoopbackModel(1));
  for (LoopbackReceiver* receiver : {healthy.get(), killed.get(), stalled.get(), corrupted.get()})
    ASSERT_TRUE(receiver->Reach(Version(1, 1), committed_));

  // Buckets 0..20 were the first load.
  killed->transport()->SetFaults({.stall = {30}});
  stalled->transport()->SetFaults({.stall = {25}});
  corrupted->transport()->SetFaults({.corrupt = {40}});
  std::thread killer([&] {
    EXPECT_TRUE(killed->transport()->WaitForStall(kLong));
    killed->Kill();
  });
  const absl::Duration timeout = absl::Seconds(2);
  const MonotonicTime started = RealClock()->Now();
  const PreparedPublish prepared = Publish(Version(1, 2), LoopbackModel(2), timeout);
  EXPECT_LT(RealClock()->Now() - started, timeout + absl::Seconds(2));
  killer.join();
  ASSERT_THAT(prepared.members, SizeIs(1));
  EXPECT_EQ(prepared.members[0].producer_id(), 1);
  std::map<uint64_t, std::string> reasons;
  for (const PreparedPublish::Fenced& fenced : prepared.fenced) reasons[fenced.identity.producer_id()] = fenced.reason;
  ASSERT_THAT(reasons, SizeIs(3));
  EXPECT_THAT(reasons[2], HasSubstr("connection lost"));
  EXPECT_THAT(reasons[3], HasSubstr("deadline"));
  EXPECT_THAT(reasons[4], HasSubstr("wrong tensors: \"large\""));
  EXPECT_TRUE(healthy->Reach(Version(1, 2), committed_));

  // The bad ones hand out nothing and come back only under a new identity, by a full load.
  for (LoopbackReceiver* receiver : {stalled.get(), corrupted.get()}) {
    EXPECT_TRUE(Eventually([&] { return receiver->subscriber()->is_fenced(); }));
    EXPECT_FALSE(receiver->subscriber()->TakeNewer().has_value());
    receiver->transport()->SetFaults({});
    const uint64_t loads = receiver->transport()->loads();
    receiver->RegisterAgain();
    EXPECT_FALSE(receiver->subscriber()->is_fenced());
    EXPECT_TRUE(receiver->Reach(Version(1, 2), committed_));
    EXPECT_EQ(receiver->transport()->loads(), loads + 1);
  }
  EXPECT_THAT(Publish(Version(1, 3), LoopbackModel(3)).members, SizeIs(3));
  for (LoopbackReceiver* receiver : {healthy.get(), stalled.get(), corrupted.get()})
    EXPECT_TRUE(receiver->Reach(Version(1, 3), committed_));
}

TEST_P(WeightLoopbackTest, AFencedIdentityStaysOut) {
  auto receiver = Attach(1);
  receiver->transport()->SetFaults({.fail = {3}});
  const PreparedPublish prepared = Publish(Version(1, 1), LoopbackModel(1));
  EXPECT_THAT(prepared.members, IsEmpty());
  ASSERT_THAT(prepared.fenced, SizeIs(1));
  EXPECT_THAT(prepared.fenced[0].reason, HasSubstr("injected"));
  ASSERT_TRUE(Eventually([&] { return receiver->subscriber()->is_fenced(); }));
  // Another process that claims the same identity is told so.
  LoopbackReceiver impostor(publisher_->address(), GetParam(), 1);
  EXPECT_TRUE(Eventually([&] { return impostor.subscriber()->is_fenced(); }));
  EXPECT_THAT(impostor.subscriber()->fence_reason(), HasSubstr("register again"));
  EXPECT_EQ(publisher_->member_count(), 0);
}

TEST_P(WeightLoopbackTest, ALoadThatWasGivenUpIsKnownUntilItComesBack) {
  auto receiver = Attach(1);
  Publish(Version(1, 1), LoopbackModel(1));
  ASSERT_TRUE(receiver->Reach(Version(1, 1), committed_));
  EXPECT_FALSE(receiver->subscriber()->has_abandoned_load());
  // Nothing wakes the loader from this: no cancellation reaches it.
  ASSERT_TRUE(FailpointArm("weights_receiver_mid_transfer=delay:1500@3").ok());
  EXPECT_THAT(Publish(Version(1, 2), LoopbackModel(2), absl::Milliseconds(300)).fenced, SizeIs(1));
  ASSERT_TRUE(Eventually([&] { return receiver->subscriber()->is_fenced(); }));
  EXPECT_TRUE(receiver->subscriber()->has_abandoned_load());
  EXPECT_TRUE(Eventually([&] { return !receiver->subscriber()->has_abandoned_load(); }));
  FailpointDisarmAll();
}

TEST_P(WeightLoopbackTest, APublishWithoutReceiversCommitsAndJoinersGetIt) {
  const PreparedPublish prepared = Publish(Version(1, 1), LoopbackModel(1));
  EXPECT_THAT(prepared.members, IsEmpty());
  EXPECT_EQ(prepared.bytes_sent, 0);
  auto joiner = Attach(1);
  EXPECT_TRUE(joiner->Reach(Version(1, 1), committed_));
  EXPECT_THAT(Publish(Version(1, 2), LoopbackModel(2)).members, SizeIs(1));
  EXPECT_TRUE(joiner->Reach(Version(1, 2), committed_));
}

TEST_P(WeightLoopbackTest, AJoinerDuringAPublishWaitsForItsEnd) {
  Publish(Version(1, 1), LoopbackModel(1));
  Prepare(Version(1, 2), LoopbackModel(2));
  auto joiner = Attach(1);
  EXPECT_FALSE(joiner->subscriber()->WaitForNewer(absl::Milliseconds(100)));
  NoteInQueue(Version(1, 2), LoopbackModel(2));
  publisher_->Commit(Version(1, 2));
  EXPECT_TRUE(joiner->Reach(Version(1, 2), committed_));
}

TEST_P(WeightLoopbackTest, RelabelMovesNoBytes) {
  auto receiver = Attach(1);
  Publish(Version(1, 1), LoopbackModel(1));
  ASSERT_TRUE(receiver->Reach(Version(1, 1), committed_));
  const std::byte* bytes = receiver->held().bytes.get();
  const uint64_t buckets = receiver->transport()->buckets();
  for (uint64_t version = 2; version <= 5; ++version) {
    const PreparedPublish prepared = Publish(Version(1, version), LoopbackModel(1));
    EXPECT_THAT(prepared.members, SizeIs(1));
    EXPECT_EQ(prepared.bytes_sent, 0);
    ASSERT_TRUE(receiver->Reach(Version(1, version), committed_));
    EXPECT_EQ(receiver->held().bytes.get(), bytes);
  }
  EXPECT_EQ(receiver->transport()->buckets(), buckets);
  // And back to real loads.
  Publish(Version(1, 6), LoopbackModel(6));
  EXPECT_TRUE(receiver->Reach(Version(1, 6), committed_));
}

TEST_P(WeightLoopbackTest, ASlowEngineSkipsVersions) {
  auto receiver = Attach(1);
  for (uint64_t version = 1; version <= 6; ++version)
    EXPECT_THAT(Publish(Version(1, version), LoopbackModel(version)).members, SizeIs(1));
  EXPECT_TRUE(receiver->Reach(Version(1, 6), committed_));
}

TEST_P(WeightLoopbackTest, HeldVersionsKeepTheirBytes) {
  auto receiver = Attach(1);
  Publish(Version(1, 1), LoopbackModel(1));
  ASSERT_TRUE(receiver->Reach(Version(1, 1), committed_));
  CommittedWeights first = receiver->held();
  Publish(Version(1, 2), LoopbackModel(2));
  ASSERT_TRUE(receiver->Reach(Version(1, 2), committed_));
  // Both buffers are in use now: the next load waits for the engine.
  std::thread publish([&] { EXPECT_THAT(Publish(Version(1, 3), LoopbackModel(3)).members, SizeIs(1)); });
  EXPECT_FALSE(receiver->subscriber()->WaitForNewer(absl::Milliseconds(200)));
  EXPECT_EQ(Digest128(first.bytes.get(), first.total_bytes), LoopbackModel(1).digest());
  EXPECT_EQ(Digest128(receiver->held().bytes.get(), first.total_bytes), LoopbackModel(2).digest());
  first = CommittedWeights();
  publish.join();
  EXPECT_TRUE(receiver->Reach(Version(1, 3), committed_));
}

TEST_P(WeightLoopbackTest, RepeatedPublishesAreIdempotentAndWrongOnesRefused) {
  auto receiver = Attach(1);
  const PreparedPublish first = Prepare(Version(1, 2), LoopbackModel(2));
  const PreparedPublish again = Prepare(Version(1, 2), LoopbackModel(2));
  EXPECT_EQ(again.manifest.digest(), first.manifest.digest());
  EXPECT_THAT(again.members, SizeIs(1));
  const auto code = [&](const v1::WeightsVersion& weights, const LoopbackModel& model) {
    return publisher_->Prepare(weights, model.Views(), kLong).status().code();
  };
  EXPECT_EQ(code(Version(1, 2), LoopbackModel(3)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Version(1, 3), LoopbackModel(3)), absl::StatusCode::kFailedPrecondition);
  NoteInQueue(Version(1, 2), LoopbackModel(2));
  publisher_->Commit(Version(1, 2));
  publisher_->Commit(Version(1, 2));
  ASSERT_TRUE(receiver->Reach(Version(1, 2), committed_));
  const uint64_t buckets = receiver->transport()->buckets();
  EXPECT_THAT(Publish(Version(1, 2), LoopbackModel(2)).members, SizeIs(1));
  EXPECT_EQ(receiver->transport()->buckets(), buckets);
  EXPECT_EQ(code(Version(1, 2), LoopbackModel(3)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Version(1, 1), LoopbackModel(1)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Version(0, 3), LoopbackModel(3)), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Publish(Version(2, 1), LoopbackModel(5)).members, SizeIs(1));
  EXPECT_TRUE(receiver->Reach(Version(2, 1), committed_));
}

TEST_P(WeightLoopbackTest, ThePublisherDiesBetweenTheQueuesCommitAndItsOwn) {
  auto receiver = Attach(1);
  Publish(Version(1, 1), LoopbackModel(1));
  ASSERT_TRUE(receiver->Reach(Version(1, 1), committed_));
  Prepare(Version(1, 2), LoopbackModel(2));
  NoteInQueue(Version(1, 2), LoopbackModel(2));
  publisher_.reset();
  EXPECT_FALSE(receiver->subscriber()->TakeNewer().has_value());
  receiver->subscriber()->NoteCommitted(Version(1, 2), LoopbackModel(1).digest().replace(0, 1, "x"));
  EXPECT_FALSE(receiver->subscriber()->TakeNewer().has_value());
  // A wrong digest discarded the shadow; once more, with the right word from the queue.
  StartPublisher();
  ASSERT_TRUE(Eventually([&] { return publisher_->member_count() == 1; }));
  Prepare(Version(2, 2), LoopbackModel(2));
  NoteInQueue(Version(2, 2), LoopbackModel(2));
  publisher_.reset();
  receiver->subscriber()->NoteCommitted(Version(2, 2), LoopbackModel(2).digest());
  EXPECT_TRUE(receiver->Reach(Version(2, 2), committed_));
}

TEST_P(WeightLoopbackTest, APublisherRestartsWithAHigherLineageAndALowerVersion) {
  auto first = Attach(1);
  auto second = Attach(2);
  for (uint64_t version = 1; version <= 5; ++version) Publish(Version(1, version), LoopbackModel(version));
  ASSERT_TRUE(first->Reach(Version(1, 5), committed_));
  publisher_.reset();
  StartPublisher();
  ASSERT_TRUE(Eventually([&] { return publisher_->member_count() == 2; }));
  EXPECT_THAT(Publish(Version(2, 3), LoopbackModel(33)).members, SizeIs(2));
  EXPECT_TRUE(first->Reach(Version(2, 3), committed_));
  EXPECT_TRUE(second->Reach(Version(2, 3), committed_));
}

TEST_P(WeightLoopbackTest, AReceiverWithAnotherLayoutIsRefusedBeforeAByteMoves) {
  std::vector<TensorView> other = LoopbackModel(0).Views();
  other[0].shape = {5, 17};
  other[2].name = "other";
  LoopbackReceiver receiver(publisher_->address(), GetParam(), 1, *MakeLayout(other));
  ASSERT_TRUE(Eventually([&] { return publisher_->member_count() == 1; }));
  const PreparedPublish prepared = Publish(Version(1, 1), LoopbackModel(1));
  ASSERT_THAT(prepared.fenced, SizeIs(1));
  EXPECT_THAT(prepared.fenced[0].reason, HasSubstr("\"embed\": expected F32 [5, 17], announced F32 [17, 5]"));
  EXPECT_THAT(prepared.fenced[0].reason, HasSubstr("missing \"other\""));
  EXPECT_THAT(prepared.fenced[0].reason, HasSubstr("surplus \"odd\""));
  EXPECT_EQ(receiver.transport()->loads(), 0);
  // The next one is refused at the door, since the layout is known now.
  LoopbackReceiver late(publisher_->address(), GetParam(), 2, *MakeLayout(other));
  EXPECT_TRUE(Eventually([&] { return late.subscriber()->is_fenced(); }));
  EXPECT_THAT(late.subscriber()->fence_reason(), HasSubstr("surplus \"odd\""));
}

TEST_P(WeightLoopbackTest, ReceiversThatDialFirstWaitForThePublisher) {
  const std::string address = publisher_->address();
  publisher_.reset();
  LoopbackReceiver receiver(address, GetParam(), 1);
  EXPECT_FALSE(receiver.subscriber()->WaitForNewer(absl::Milliseconds(100)));
  StartPublisher();
  ASSERT_TRUE(Eventually([&] { return publisher_->member_count() == 1; }));
  Publish(Version(1, 1), LoopbackModel(1));
  EXPECT_TRUE(receiver.Reach(Version(1, 1), committed_));
}

TEST_P(WeightLoopbackTest, ANewEpochOfAWorkerReplacesTheOldOne) {
  auto old = Attach(1);
  Publish(Version(1, 1), LoopbackModel(1));
  ASSERT_TRUE(old->Reach(Version(1, 1), committed_));
  auto successor = std::make_unique<LoopbackReceiver>(publisher_->address(), GetParam(), 1);
  successor->RegisterAgain();
  EXPECT_TRUE(Eventually([&] { return old->subscriber()->is_fenced(); }));
  EXPECT_TRUE(successor->Reach(Version(1, 1), committed_));
  EXPECT_EQ(publisher_->member_count(), 1);
}

TEST_P(WeightLoopbackTest, ShutdownEndsAWait) {
  auto receiver = Attach(1);
  std::thread waiter([&] { EXPECT_FALSE(receiver->subscriber()->WaitForNewer(absl::Minutes(5))); });
  receiver->subscriber()->Shutdown();
  waiter.join();
}

TEST_P(WeightLoopbackTest, EveryBucketSizeWorks) {
  for (const uint64_t bucket_bytes :
       {uint64_t{7}, uint64_t{20345}, uint64_t{20346}, uint64_t{20347}, uint64_t{1} << 20}) {
    publisher_.reset();
    options_.bucket_bytes = bucket_bytes;
    StartPublisher();
    auto member = Attach(1);
    Publish(Version(1, 1), LoopbackModel(bucket_bytes));
    EXPECT_TRUE(member->Reach(Version(1, 1), committed_)) << bucket_bytes;
    auto joiner = Attach(2);
    EXPECT_TRUE(joiner->Reach(Version(1, 1), committed_)) << bucket_bytes;
  }
}

TEST(WeightLoopbackOptionsTest, BadOptionsAreRefused) {
  const auto refused = [](auto&& change) {
    GrpcWeightPublisher::Options options = LoopbackPublisherOptions();
    change(&options);
    return GrpcWeightPublisher::Create(options).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](auto* o) { o->bucket_bytes = 0; }));
  EXPECT_TRUE(refused([](auto* o) { o->bucket_bytes = uint64_t{65} << 20; }));
  EXPECT_TRUE(refused([](auto* o) { o->heartbeat_timeout = o->heartbeat_interval; }));
  EXPECT_TRUE(refused([](auto* o) { o->announce_timeout = absl::ZeroDuration(); }));
  EXPECT_TRUE(refused([](auto* o) { o->address = "somewhere"; }));
  GrpcWeightSubscriber::Options options;
  options.publisher_address = "unix:/tmp/x.sock";
  options.transport = "pigeon";
  EXPECT_EQ(GrpcWeightSubscriber::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace leeway
