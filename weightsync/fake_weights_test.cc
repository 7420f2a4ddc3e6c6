// The fakes promise what the real ones do; their users' tests are only worth that much.

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weightsync/fake_weight_publisher.h"
#include "weightsync/fake_weight_subscriber.h"
#include "weightsync/manifest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

v1::WeightsVersion Version(uint64_t lineage, uint64_t version) {
  v1::WeightsVersion weights;
  weights.set_lineage(lineage);
  weights.set_version(version);
  return weights;
}

v1::WorkerIdentity Identity(uint64_t producer, uint64_t epoch) {
  v1::WorkerIdentity identity;
  identity.set_producer_id(producer);
  identity.set_epoch(epoch);
  return identity;
}

std::vector<TensorView> Views(const std::vector<float>& values) {
  return {{"w",
           {static_cast<int64_t>(values.size())},
           "F32",
           absl::MakeSpan(reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float))}};
}

TEST(FakeWeightPublisherTest, FollowsItsScriptAndTheRulesOfVersions) {
  FakeWeightPublisher publisher;
  publisher.SetMembers({Identity(1, 1), Identity(2, 1)});
  publisher.FenceInNextPrepare(Identity(2, 1), "stalled");
  const std::vector<float> values = {1, 2, 3};
  const auto prepared = publisher.Prepare(Version(1, 2), Views(values), absl::Seconds(1));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_THAT(prepared->members, SizeIs(1));
  EXPECT_THAT(prepared->fenced, SizeIs(1));
  EXPECT_EQ(prepared->bytes_sent, 12u);
  EXPECT_EQ(publisher.member_count(), 1);
  std::string committed_bytes;
  publisher.SetOnCommit([&](const v1::Manifest&, const std::string& bytes) { committed_bytes = bytes; });
  publisher.Commit(Version(1, 2));
  EXPECT_EQ(committed_bytes, std::string(reinterpret_cast<const char*>(values.data()), 12));

  const std::vector<float> other = {4, 5, 6};
  EXPECT_FALSE(publisher.Prepare(Version(1, 2), Views(other), absl::Seconds(1)).ok());
  EXPECT_FALSE(publisher.Prepare(Version(1, 1), Views(other), absl::Seconds(1)).ok());
  publisher.FailNextPrepare(absl::UnavailableError("scripted"));
  EXPECT_EQ(publisher.Prepare(Version(1, 3), Views(other), absl::Seconds(1)).status().message(), "scripted");
  EXPECT_TRUE(publisher.Prepare(Version(2, 1), Views(other), absl::Seconds(1)).ok());
  publisher.Abandon(Version(2, 1), "refused");
  EXPECT_THAT(publisher.calls(), ElementsAre("prepare 1.2", "commit 1.2", "prepare 1.2", "prepare 1.1", "prepare 1.3",
                                             "prepare 2.1", "abandon 2.1 refused"));
}

TEST(FakeWeightSubscriberTest, HandsOutWhatIsDelivered) {
  FakeWeightSubscriber subscriber;
  EXPECT_FALSE(subscriber.TakeNewer().has_value());
  EXPECT_FALSE(subscriber.WaitForNewer(absl::ZeroDuration()));
  const std::vector<float> values = {1.5f, 2.5f};
  std::thread deliver([&] { subscriber.Deliver(Version(1, 1), absl::MakeConstSpan(values)); });
  EXPECT_TRUE(subscriber.WaitForNewer(absl::Minutes(1)));
  deliver.join();
  const auto taken = subscriber.TakeNewer();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(reinterpret_cast<const float*>(taken->bytes.get())[1], 2.5f);
  EXPECT_EQ(taken->digest, MakeManifest(Version(1, 1), Views(values))->digest());
  subscriber.Relabel(Version(1, 2));
  EXPECT_EQ(subscriber.TakeNewer()->bytes, taken->bytes);

  const auto bytes = absl::MakeSpan(reinterpret_cast<const std::byte*>(values.data()), 8);
  subscriber.DeliverUncommitted(Version(1, 3), bytes);
  subscriber.NoteCommitted(Version(1, 3), "other");
  EXPECT_FALSE(subscriber.TakeNewer().has_value());
  subscriber.NoteCommitted(Version(1, 3), taken->digest);
  EXPECT_TRUE(subscriber.TakeNewer().has_value());
  EXPECT_THAT(subscriber.noted(), SizeIs(2));
}

TEST(FakeWeightSubscriberTest, IsFencedUntilANewIdentityAndRecordsItsCalls) {
  FakeWeightSubscriber subscriber;
  subscriber.SetIdentity(Identity(1, 1));
  subscriber.Deliver(Version(1, 1), absl::Span<const std::byte>());
  subscriber.Fence();
  EXPECT_TRUE(subscriber.is_fenced());
  EXPECT_FALSE(subscriber.TakeNewer().has_value());
  subscriber.SetIdentity(Identity(1, 2));
  EXPECT_FALSE(subscriber.is_fenced());
  EXPECT_THAT(subscriber.identities(), SizeIs(2));
  subscriber.ReportSwapped(Version(1, 1), absl::ZeroDuration());
  EXPECT_THAT(subscriber.swaps(), SizeIs(1));
  subscriber.Shutdown();
  EXPECT_TRUE(subscriber.is_shut_down());
  EXPECT_FALSE(subscriber.WaitForNewer(absl::Minutes(1)));
}

}  // namespace
}  // namespace leeway
