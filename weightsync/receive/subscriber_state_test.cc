#include "weightsync/receive/subscriber_state.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weightsync/manifest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr MonotonicTime kNow{absl::Seconds(100)};

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

// One tensor of eight bytes.
std::vector<TensorView> Views(const std::string& bytes) {
  return {{"w", {2}, "F32", absl::MakeSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size())}};
}

v1::Manifest ManifestOf(const v1::WeightsVersion& weights, const std::string& bytes) {
  return *MakeManifest(weights, Views(bytes));
}

class SubscriberStateTest : public ::testing::Test {
 protected:
  SubscriberStateTest() {
    state_.SetIdentity(Identity(1, 1));
    state_.OnConnected();
  }

  void Announce(const v1::Manifest& manifest, uint64_t epoch) {
    v1::PublisherMessage message;
    message.set_membership_epoch(epoch);
    *message.mutable_announce()->mutable_manifest() = manifest;
    message.mutable_announce()->set_deadline_ms(1000);
    state_.OnMessage(kNow, message);
  }
  void Transfer(const v1::WeightsVersion& weights, uint64_t epoch, bool relabel = false) {
    v1::PublisherMessage message;
    message.set_membership_epoch(epoch);
    *message.mutable_transfer()->mutable_weights() = weights;
    message.mutable_transfer()->set_bucket_bytes(3);
    message.mutable_transfer()->set_deadline_ms(5000);
    message.mutable_transfer()->set_relabel(relabel);
    state_.OnMessage(kNow, message);
  }
  void Committed(const v1::WeightsVersion& weights, uint64_t epoch, std::vector<v1::WorkerIdentity> members) {
    v1::PublisherMessage message;
    message.set_membership_epoch(epoch);
    *message.mutable_committed()->mutable_weights() = weights;
    for (const v1::WorkerIdentity& member : members) *message.mutable_committed()->add_members() = member;
    state_.OnMessage(kNow, message);
  }
  void Abandoned(const v1::WeightsVersion& weights, uint64_t epoch) {
    v1::PublisherMessage message;
    message.set_membership_epoch(epoch);
    *message.mutable_abandoned()->mutable_weights() = weights;
    state_.OnMessage(kNow, message);
  }
  void Fence(const std::string& reason) {
    v1::PublisherMessage message;
    message.mutable_fenced()->set_reason(reason);
    state_.OnMessage(kNow, message);
  }
  // What the loader does.
  void Load(const std::string& bytes) {
    const auto load = state_.TakeLoad();
    ASSERT_TRUE(load.has_value());
    std::memcpy(load->buffer.get(), bytes.data(), bytes.size());
    state_.OnLoadFinished(load->id, VerifyBytes(load->manifest, absl::MakeSpan(load->buffer.get(), bytes.size())));
  }
  // Up to verified.
  void Verify(const v1::WeightsVersion& weights, const std::string& bytes, uint64_t epoch) {
    Announce(ManifestOf(weights, bytes), epoch);
    Transfer(weights, epoch);
    Load(bytes);
  }
  CommittedWeights Receive(const v1::WeightsVersion& weights, const std::string& bytes, uint64_t epoch) {
    Verify(weights, bytes, epoch);
    Committed(weights, epoch, {Identity(1, 1)});
    state_.TakeOutgoing();
    const auto taken = state_.TakeNewer();
    EXPECT_TRUE(taken.has_value());
    return taken.value_or(CommittedWeights());
  }
  v1::ReceiverMessage OneAnswer() {
    const std::vector<v1::ReceiverMessage> answers = state_.TakeOutgoing();
    EXPECT_THAT(answers, SizeIs(1));
    return answers.empty() ? v1::ReceiverMessage() : answers[0];
  }
  static std::string Text(const CommittedWeights& held) {
    return std::string(reinterpret_cast<const char*>(held.bytes.get()), held.total_bytes);
  }

  std::unique_ptr<DoubleBuffer> buffers_ = *DoubleBuffer::Create(8);
  SubscriberState state_{*MakeLayout(Views(std::string(8, '\0'))), buffers_.get()};
};

TEST_F(SubscriberStateTest, OnePublishFromAnnounceToSwap) {
  Announce(ManifestOf(Version(1, 1), "version1"), 7);
  v1::ReceiverMessage answer = OneAnswer();
  EXPECT_EQ(answer.membership_epoch(), 7u);
  EXPECT_TRUE(IsSameVersion(answer.ready().weights(), Version(1, 1)));
  EXPECT_FALSE(state_.has_load());
  EXPECT_EQ(state_.next_deadline(), kNow + absl::Seconds(1));

  Transfer(Version(1, 1), 7);
  EXPECT_EQ(state_.next_deadline(), kNow + absl::Seconds(5));
  EXPECT_TRUE(state_.has_load());
  Load("version1");
  EXPECT_FALSE(state_.has_load());
  answer = OneAnswer();
  EXPECT_EQ(answer.membership_epoch(), 7u);
  EXPECT_EQ(answer.verified().digest(), ManifestOf(Version(1, 1), "version1").digest());
  EXPECT_FALSE(state_.has_newer());

  Committed(Version(1, 1), 7, {Identity(9, 1), Identity(1, 1)});
  EXPECT_TRUE(state_.has_newer());
  const auto taken = state_.TakeNewer();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(Text(*taken), "version1");
  EXPECT_FALSE(state_.TakeNewer().has_value());
  state_.ReportSwapped(Version(1, 1), absl::Milliseconds(250));
  EXPECT_DOUBLE_EQ(OneAnswer().swapped().seconds(), 0.25);
}

TEST_F(SubscriberStateTest, WhoIsNotInTheMemberListDiscardsItsShadow) {
  Verify(Version(1, 1), "version1", 7);
  Committed(Version(1, 1), 7, {Identity(2, 1), Identity(1, 2)});
  EXPECT_FALSE(state_.has_newer());
  state_.NoteCommitted(Version(1, 1), ManifestOf(Version(1, 1), "version1").digest());
  EXPECT_FALSE(state_.has_newer());
}

TEST_F(SubscriberStateTest, CommittedBeforeVerifiedChangesNothing) {
  Announce(ManifestOf(Version(1, 1), "version1"), 7);
  Committed(Version(1, 1), 7, {Identity(1, 1)});
  Transfer(Version(1, 1), 7);
  Committed(Version(1, 1), 7, {Identity(1, 1)});
  state_.NoteCommitted(Version(1, 1), ManifestOf(Version(1, 1), "version1").digest());
  EXPECT_FALSE(state_.has_newer());
}

TEST_F(SubscriberStateTest, CorruptedBytesAreReportedAndNeverHandedOut) {
  Announce(ManifestOf(Version(1, 1), "version1"), 7);
  Transfer(Version(1, 1), 7);
  state_.TakeOutgoing();
  Load("versiom1");
  EXPECT_THAT(OneAnswer().failed().reason(), HasSubstr("\"w\""));
  Committed(Version(1, 1), 7, {Identity(1, 1)});
  EXPECT_FALSE(state_.has_newer());
}

TEST_F(SubscriberStateTest, LateAndRepeatedMessagesAreIgnored) {
  Verify(Version(1, 1), "version1", 7);
  state_.TakeOutgoing();
  Transfer(Version(1, 1), 7);   // repeated
  Abandoned(Version(1, 1), 6);  // of an earlier load of the same version
  Abandoned(Version(1, 2), 7);
  Committed(Version(1, 1), 6, {Identity(1, 1)});
  EXPECT_FALSE(state_.has_newer());
  EXPECT_FALSE(state_.has_load());
  Committed(Version(1, 1), 7, {Identity(1, 1)});
  Committed(Version(1, 1), 7, {Identity(1, 1)});
  EXPECT_TRUE(state_.TakeNewer().has_value());
  Committed(Version(1, 1), 7, {Identity(1, 1)});
  EXPECT_FALSE(state_.has_newer());
  EXPECT_THAT(state_.TakeOutgoing(), IsEmpty());
}

TEST_F(SubscriberStateTest, TheResultOfAReplacedLoadIsIgnored) {
  Announce(ManifestOf(Version(1, 1), "version1"), 7);
  Transfer(Version(1, 1), 7);
  const auto old_load = state_.TakeLoad();
  ASSERT_TRUE(old_load.has_value());
  EXPECT_FALSE(state_.TakeLoad().has_value());
  EXPECT_TRUE(state_.IsWanted(old_load->id));
  Announce(ManifestOf(Version(1, 2), "version2"), 8);
  EXPECT_FALSE(state_.IsWanted(old_load->id));
  state_.TakeOutgoing();
  state_.OnLoadFinished(old_load->id, absl::OkStatus());
  EXPECT_THAT(state_.TakeOutgoing(), IsEmpty());
  Transfer(Version(1, 2), 8);
  Load("version2");
  Committed(Version(1, 2), 8, {Identity(1, 1)});
  EXPECT_EQ(Text(*state_.TakeNewer()), "version2");
}

TEST_F(SubscriberStateTest, ANewerAnnounceReplacesAVerifiedShadow) {
  Verify(Version(1, 1), "version1", 7);
  Verify(Version(1, 2), "version2", 8);
  Committed(Version(1, 1), 7, {Identity(1, 1)});
  state_.NoteCommitted(Version(1, 1), ManifestOf(Version(1, 1), "version1").digest());
  EXPECT_FALSE(state_.has_newer());
  Committed(Version(1, 2), 8, {Identity(1, 1)});
  EXPECT_EQ(Text(*state_.TakeNewer()), "version2");
}

TEST_F(SubscriberStateTest, AnUntakenVersionGivesWayOnlyWhenMemoryIsNeeded) {
  const CommittedWeights active = Receive(Version(1, 1), "version1", 7);
  Verify(Version(1, 2), "version2", 8);
  Committed(Version(1, 2), 8, {Identity(1, 1)});
  Announce(ManifestOf(Version(1, 3), "version3"), 9);
  EXPECT_TRUE(state_.has_newer()) << "an announce alone costs nothing";
  Transfer(Version(1, 3), 9);
  EXPECT_FALSE(state_.has_newer());
  Load("version3");
  Committed(Version(1, 3), 9, {Identity(1, 1)});
  EXPECT_EQ(Text(*state_.TakeNewer()), "version3");
  EXPECT_EQ(Text(active), "version1");
}

TEST_F(SubscriberStateTest, TheLoadWaitsWhileTheEngineHoldsBothBuffers) {
  CommittedWeights first = Receive(Version(1, 1), "version1", 7);
  const CommittedWeights second = Receive(Version(1, 2), "version2", 8);
  Announce(ManifestOf(Version(1, 3), "version3"), 9);
  Transfer(Version(1, 3), 9);
  EXPECT_FALSE(state_.has_load());
  state_.OnBufferReleased();
  EXPECT_FALSE(state_.has_load());
  first = CommittedWeights();
  state_.OnBufferReleased();
  EXPECT_TRUE(state_.has_load());
  Load("version3");
  EXPECT_EQ(Text(second), "version2");
}

TEST_F(SubscriberStateTest, EveryStageHasADeadline) {
  Announce(ManifestOf(Version(1, 1), "version1"), 7);
  state_.TakeOutgoing();
  state_.OnTime(kNow + absl::Milliseconds(999));
  EXPECT_THAT(state_.TakeOutgoing(), IsEmpty());
  state_.OnTime(kNow + absl::Seconds(1));
  EXPECT_THAT(OneAnswer().failed().reason(), HasSubstr("no transfer followed"));

  Announce(ManifestOf(Version(1, 2), "version2"), 8);
  Transfer(Version(1, 2), 8);
  state_.TakeOutgoing();
  state_.OnTime(kNow + absl::Seconds(5));
  EXPECT_THAT(OneAnswer().failed().reason(), HasSubstr("not there and verified in time"));

  const CommittedWeights first = Receive(Version(1, 3), "version3", 9);
  const CommittedWeights second = Receive(Version(1, 4), "version4", 10);
  Announce(ManifestOf(Version(1, 5), "version5"), 11);
  Transfer(Version(1, 5), 11);
  state_.TakeOutgoing();
  state_.OnTime(kNow + absl::Seconds(5));
  EXPECT_THAT(OneAnswer().failed().reason(), HasSubstr("did not release"));
  EXPECT_EQ(state_.next_deadline(), MonotonicTime::InfiniteFuture());
}

TEST_F(SubscriberStateTest, ARelabelKeepsTheBytes) {
  const CommittedWeights first = Receive(Version(1, 1), "version1", 7);
  Announce(ManifestOf(Version(1, 2), "version1"), 8);
  Transfer(Version(1, 2), 8, /*relabel=*/true);
  EXPECT_FALSE(state_.has_load());
  Committed(Version(1, 2), 8, {Identity(1, 1)});
  const auto second = state_.TakeNewer();
  ASSERT_TRUE(second.has_value());
  EXPECT_TRUE(IsSameVersion(second->weights, Version(1, 2)));
  EXPECT_EQ(second->bytes, first.bytes);
}

TEST_F(SubscriberStateTest, ARelabelOfOtherBytesThanTheNewestFails) {
  Receive(Version(1, 1), "version1", 7);
  Receive(Version(1, 2), "version2", 8);
  Announce(ManifestOf(Version(1, 3), "version1"), 9);
  state_.TakeOutgoing();
  Transfer(Version(1, 3), 9, /*relabel=*/true);
  EXPECT_THAT(OneAnswer().failed().reason(), HasSubstr("told to relabel"));
}

TEST_F(SubscriberStateTest, RefusesWhatDoesNotFitBeforeAByteMoves) {
  v1::Manifest other = ManifestOf(Version(1, 1), "version1");
  other.mutable_tensors(0)->set_name("v");
  Announce(other, 7);
  EXPECT_THAT(OneAnswer().refused().reason(), HasSubstr("missing \"w\""));
  other.set_total_bytes(9);
  Announce(other, 8);
  EXPECT_THAT(OneAnswer().refused().reason(), HasSubstr("total is 9"));
  Transfer(Version(1, 1), 8);
  EXPECT_FALSE(state_.has_load());
}

TEST_F(SubscriberStateTest, VersionsGoBackOnlyWithAHigherLineage) {
  Receive(Version(2, 5), "version5", 7);
  Announce(ManifestOf(Version(2, 4), "version4"), 8);
  EXPECT_THAT(OneAnswer().refused().reason(), HasSubstr("needs a higher lineage"));
  Announce(ManifestOf(Version(1, 9), "version9"), 9);
  EXPECT_THAT(OneAnswer().refused().reason(), HasSubstr("needs a higher lineage"));
  Announce(ManifestOf(Version(2, 5), "Version5"), 10);
  EXPECT_THAT(OneAnswer().refused().reason(), HasSubstr("was committed with digest"));
  EXPECT_EQ(Text(Receive(Version(3, 2), "version2", 11)), "version2");
}

TEST_F(SubscriberStateTest, AReloadOfTheVersionInUseIsReportedButNotHandedOut) {
  const CommittedWeights first = Receive(Version(1, 1), "version1", 7);
  state_.OnDisconnected();
  state_.OnConnected();
  Verify(Version(1, 1), "version1", 9);
  state_.TakeOutgoing();
  Committed(Version(1, 1), 9, {Identity(1, 1)});
  EXPECT_FALSE(state_.has_newer());
  EXPECT_TRUE(IsSameVersion(OneAnswer().swapped().weights(), Version(1, 1)));
}

TEST_F(SubscriberStateTest, AVerifiedShadowOutlivesThePublisher) {
  Verify(Version(1, 1), "version1", 7);
  state_.OnDisconnected();
  const std::string digest = ManifestOf(Version(1, 1), "version1").digest();
  state_.NoteCommitted(Version(1, 2), digest);
  EXPECT_FALSE(state_.has_newer());
  state_.NoteCommitted(Version(1, 1), digest);
  EXPECT_EQ(Text(*state_.TakeNewer()), "version1");
  state_.NoteCommitted(Version(1, 1), digest);
  EXPECT_FALSE(state_.has_newer());
}

TEST_F(SubscriberStateTest, TheSameVersionCommittedWithOtherBytesVoidsTheShadow) {
  Verify(Version(1, 1), "version1", 7);
  state_.OnDisconnected();
  state_.NoteCommitted(Version(1, 1), ManifestOf(Version(1, 1), "Version1").digest());
  state_.NoteCommitted(Version(1, 1), ManifestOf(Version(1, 1), "version1").digest());
  EXPECT_FALSE(state_.has_newer());
}

TEST_F(SubscriberStateTest, AnUnverifiedLoadDoesNotOutliveTheConnection) {
  Announce(ManifestOf(Version(1, 1), "version1"), 7);
  Transfer(Version(1, 1), 7);
  const auto load = state_.TakeLoad();
  state_.OnDisconnected();
  EXPECT_FALSE(state_.IsWanted(load->id));
  state_.OnLoadFinished(load->id, absl::OkStatus());
  state_.NoteCommitted(Version(1, 1), load->manifest.digest());
  EXPECT_FALSE(state_.has_newer());
}

TEST_F(SubscriberStateTest, AbandonedDiscards) {
  Verify(Version(1, 1), "version1", 7);
  Abandoned(Version(1, 1), 7);
  state_.NoteCommitted(Version(1, 1), ManifestOf(Version(1, 1), "version1").digest());
  EXPECT_FALSE(state_.has_newer());
  Announce(ManifestOf(Version(1, 2), "version2"), 8);
  Transfer(Version(1, 2), 8);
  Abandoned(Version(1, 2), 8);
  EXPECT_FALSE(state_.has_load());
}

TEST_F(SubscriberStateTest, FencedDiscardsAllButWhatIsInUseUntilANewIdentity) {
  const CommittedWeights active = Receive(Version(1, 1), "version1", 7);
  Verify(Version(1, 2), "version2", 8);
  Committed(Version(1, 2), 8, {Identity(1, 1)});
  Fence("too slow");
  EXPECT_TRUE(state_.is_fenced());
  EXPECT_EQ(state_.fence_reason(), "too slow");
  EXPECT_FALSE(state_.has_newer());
  EXPECT_EQ(Text(active), "version1");
  Announce(ManifestOf(Version(1, 3), "version3"), 9);
  state_.ReportSwapped(Version(1, 1), absl::ZeroDuration());
  EXPECT_THAT(state_.TakeOutgoing(), IsEmpty());

  state_.SetIdentity(Identity(1, 1));
  EXPECT_TRUE(state_.is_fenced()) << "the same identity stays fenced";
  state_.SetIdentity(Identity(1, 2));
  EXPECT_FALSE(state_.is_fenced());
  state_.OnConnected();
  Verify(Version(1, 3), "version3", 10);
  Committed(Version(1, 3), 10, {Identity(1, 2)});
  EXPECT_EQ(Text(*state_.TakeNewer()), "version3");
}

TEST_F(SubscriberStateTest, AnotherIdentityDoesNotInheritAnUncommittedShadow) {
  Verify(Version(1, 1), "version1", 7);
  state_.SetIdentity(Identity(1, 2));
  state_.NoteCommitted(Version(1, 1), ManifestOf(Version(1, 1), "version1").digest());
  EXPECT_FALSE(state_.has_newer());
}

TEST_F(SubscriberStateTest, WelcomeSaysHowOftenToSendASignOfLife) {
  EXPECT_EQ(state_.heartbeat_interval(), absl::ZeroDuration());
  v1::PublisherMessage message;
  message.mutable_welcome()->set_heartbeat_interval_ms(750);
  state_.OnMessage(kNow, message);
  EXPECT_EQ(state_.heartbeat_interval(), absl::Milliseconds(750));
}

TEST_F(SubscriberStateTest, ATransferInBucketsOfNothingFails) {
  Announce(ManifestOf(Version(1, 1), "version1"), 7);
  state_.TakeOutgoing();
  v1::PublisherMessage message;
  message.set_membership_epoch(7);
  *message.mutable_transfer()->mutable_weights() = Version(1, 1);
  state_.OnMessage(kNow, message);
  EXPECT_THAT(OneAnswer().failed().reason(), HasSubstr("0 bytes"));
}

}  // namespace
}  // namespace leeway
