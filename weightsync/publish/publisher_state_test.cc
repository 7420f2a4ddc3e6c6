#include "weightsync/publish/publisher_state.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weightsync/manifest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::WeightsVersion Version(uint64_t lineage, uint64_t version) {
  v1::WeightsVersion weights;
  weights.set_lineage(lineage);
  weights.set_version(version);
  return weights;
}

std::vector<TensorView> Views(const std::string& bytes) {
  return {{"w", {2}, "F32", absl::MakeSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size())}};
}

v1::Manifest ManifestOf(const v1::WeightsVersion& weights, const std::string& bytes) {
  return *MakeManifest(weights, Views(bytes));
}

constexpr char kBytes1[] = "version1";
constexpr char kBytes2[] = "version2";

class PublisherStateTest : public ::testing::Test {
 protected:
  using ConnectionId = PublisherState::ConnectionId;

  void Hello(ConnectionId connection, uint64_t producer, uint64_t epoch = 1, const std::string& transport = "grpc") {
    state_.OnOpened(now_, connection);
    v1::ReceiverMessage message;
    message.mutable_hello()->mutable_identity()->set_producer_id(producer);
    message.mutable_hello()->mutable_identity()->set_epoch(epoch);
    message.mutable_hello()->set_name("rollout");
    message.mutable_hello()->set_transport(transport);
    state_.OnMessage(now_, connection, message);
  }
  // Takes everything to be sent, by connection; remembers the epoch of the last announce.
  std::vector<std::string> Sent(ConnectionId connection) {
    for (PublisherState::Outgoing& out : state_.TakeOutgoing()) {
      std::string text = "close";
      if (out.message.has_value()) {
        const v1::PublisherMessage& message = *out.message;
        if (message.has_welcome()) text = "welcome";
        if (message.has_announce()) {
          text = "announce " + std::to_string(message.announce().manifest().weights().version());
          load_epoch_[out.connection] = message.membership_epoch();
        }
        if (message.has_transfer()) {
          text = message.transfer().relabel() ? "relabel" : "transfer " + message.transfer().shared_memory_name();
          transfer_deadline_ms_ = message.transfer().deadline_ms();
        }
        if (message.has_committed()) text = "committed to " + std::to_string(message.committed().members_size());
        if (message.has_abandoned()) text = "abandoned";
        if (message.has_fenced()) text = "fenced: " + message.fenced().reason();
      }
      sent_[out.connection].push_back(text);
    }
    return std::exchange(sent_[connection], {});
  }
  v1::ReceiverMessage Answer(ConnectionId connection) {
    sent_[connection] = Sent(connection);
    v1::ReceiverMessage message;
    message.set_membership_epoch(load_epoch_[connection]);
    return message;
  }
  void Ready(ConnectionId connection, const v1::WeightsVersion& weights) {
    v1::ReceiverMessage message = Answer(connection);
    *message.mutable_ready()->mutable_weights() = weights;
    state_.OnMessage(now_, connection, message);
  }
  void Verified(ConnectionId connection, const v1::WeightsVersion& weights, const std::string& digest) {
    v1::ReceiverMessage message = Answer(connection);
    *message.mutable_verified()->mutable_weights() = weights;
    message.mutable_verified()->set_digest(digest);
    state_.OnMessage(now_, connection, message);
  }
  void Swapped(ConnectionId connection, const v1::WeightsVersion& weights) {
    v1::ReceiverMessage message;
    *message.mutable_swapped()->mutable_weights() = weights;
    state_.OnMessage(now_, connection, message);
  }
  void Load(ConnectionId connection, const v1::Manifest& manifest) {
    Ready(connection, manifest.weights());
    Verified(connection, manifest.weights(), manifest.digest());
  }
  bool Start(const v1::Manifest& manifest, absl::Duration timeout = absl::Seconds(30),
             const PublisherState::SharedMemoryOffer& offer = {}) {
    const auto started = state_.StartPublish(now_, manifest, offer, now_ + timeout);
    EXPECT_TRUE(started.ok()) << started.status();
    return started.value_or(false);
  }
  // A committed version 1 at receivers on connections 1 … n, swapped in.
  void PublishFirst(int receivers) {
    for (int i = 1; i <= receivers; ++i) Hello(i, 10 + i);
    Start(first_);
    for (int i = 1; i <= receivers; ++i) Load(i, first_);
    EXPECT_TRUE(state_.Commit(now_, first_.weights()));
    for (int i = 1; i <= receivers; ++i) {
      Swapped(i, first_.weights());
      Sent(i);
    }
  }
  std::string FencedReason() const {
    return state_.prepared().fenced.empty() ? "" : state_.prepared().fenced.back().reason;
  }

  PublisherState::Options options_;
  PublisherState state_{options_};
  MonotonicTime now_{absl::Seconds(1000)};
  const v1::Manifest first_ = ManifestOf(Version(1, 1), kBytes1);
  const v1::Manifest second_ = ManifestOf(Version(1, 2), kBytes2);
  std::map<ConnectionId, std::vector<std::string>> sent_;
  std::map<ConnectionId, uint64_t> load_epoch_;
  ConnectionId next_ = 100;
  uint64_t transfer_deadline_ms_ = 0;
};

TEST_F(PublisherStateTest, OnePublishFromAnnounceToSwap) {
  Hello(1, 11);
  Hello(2, 12);
  EXPECT_THAT(Sent(1), ElementsAre("welcome"));
  EXPECT_TRUE(Start(first_));
  EXPECT_FALSE(state_.is_prepared());
  EXPECT_THAT(Sent(1), ElementsAre("announce 1"));
  Ready(1, first_.weights());
  EXPECT_THAT(Sent(1), ElementsAre("transfer "));
  EXPECT_EQ(transfer_deadline_ms_, 30'000u);
  EXPECT_TRUE(state_
                  .CheckFetch(state_.prepared().members.empty() ? v1::WorkerIdentity() : state_.prepared().members[0],
                              first_.weights())
                  .code() == absl::StatusCode::kNotFound);
  Verified(1, first_.weights(), first_.digest());
  EXPECT_FALSE(state_.is_prepared()) << "the other one has not answered";
  now_ = now_ + absl::Seconds(2);
  Load(2, first_);
  ASSERT_TRUE(state_.is_prepared());
  EXPECT_THAT(state_.prepared().members, SizeIs(2));
  EXPECT_DOUBLE_EQ(state_.prepared().seconds, 2.0);
  EXPECT_EQ(state_.prepared().bytes_sent, 16u);
  Sent(1);
  EXPECT_TRUE(state_.Commit(now_, first_.weights()));
  EXPECT_THAT(Sent(1), ElementsAre("committed to 2"));
  EXPECT_FALSE(state_.Commit(now_, first_.weights())) << "again changes nothing";
  EXPECT_THAT(Sent(1), IsEmpty());
}

TEST_F(PublisherStateTest, FetchIsOnlyForWhoIsTransferring) {
  v1::WorkerIdentity identity;
  identity.set_producer_id(11);
  identity.set_epoch(1);
  Hello(1, 11);
  Start(first_);
  EXPECT_FALSE(state_.CheckFetch(identity, first_.weights()).ok());
  Ready(1, first_.weights());
  EXPECT_TRUE(state_.CheckFetch(identity, first_.weights()).ok());
  EXPECT_FALSE(state_.CheckFetch(identity, second_.weights()).ok());
  identity.set_epoch(2);
  EXPECT_FALSE(state_.CheckFetch(identity, first_.weights()).ok());
  identity.set_epoch(1);
  Verified(1, first_.weights(), first_.digest());
  EXPECT_FALSE(state_.CheckFetch(identity, first_.weights()).ok());
}

TEST_F(PublisherStateTest, EveryStageHasADeadline) {
  Hello(1, 11);
  Hello(2, 12);
  Start(first_);
  Ready(2, first_.weights());
  EXPECT_EQ(state_.next_deadline(), now_ + options_.announce_timeout);
  now_ = now_ + options_.announce_timeout;
  state_.OnTime(now_);
  EXPECT_THAT(FencedReason(), HasSubstr("no answer to the announce"));
  EXPECT_FALSE(state_.is_prepared());
  // A sign of life does not extend the deadline of the publish.
  v1::ReceiverMessage alive;
  alive.mutable_alive();
  state_.OnMessage(now_, 2, alive);
  now_ = now_ + absl::Seconds(10);
  state_.OnMessage(now_, 2, alive);
  EXPECT_EQ(state_.next_deadline(), now_ + absl::Seconds(10));
  now_ = now_ + absl::Seconds(10);
  state_.OnTime(now_);
  EXPECT_TRUE(state_.is_prepared());
  EXPECT_THAT(FencedReason(), HasSubstr("not verified in time"));
  EXPECT_THAT(state_.prepared().members, IsEmpty());
  EXPECT_EQ(state_.member_count(), 0);
}

TEST_F(PublisherStateTest, SilenceFences) {
  PublishFirst(2);
  now_ = now_ + options_.heartbeat_timeout - absl::Seconds(1);
  v1::ReceiverMessage alive;
  alive.mutable_alive();
  state_.OnMessage(now_, 1, alive);
  now_ = now_ + absl::Seconds(1);
  EXPECT_EQ(state_.next_deadline(), now_);
  state_.OnTime(now_);
  EXPECT_EQ(state_.member_count(), 1);
  EXPECT_THAT(Sent(2), ElementsAre(HasSubstr("no sign of life")));
  // The trainer hears of it with the next publish.
  Start(second_);
  ASSERT_THAT(state_.prepared().fenced, SizeIs(1));
  EXPECT_EQ(state_.prepared().fenced[0].identity.producer_id(), 12u);
}

TEST_F(PublisherStateTest, APauseOfThePublisherIsNotTheReceiversSilence) {
  PublishFirst(1);
  const absl::Duration pause = absl::Seconds(60);
  now_ = now_ + pause;
  state_.ForgiveSilence(now_, pause);
  state_.OnTime(now_);
  EXPECT_EQ(state_.member_count(), 1);
  now_ = now_ + options_.heartbeat_timeout;
  state_.OnTime(now_);
  EXPECT_EQ(state_.member_count(), 0);
}

TEST_F(PublisherStateTest, BadAnswersFence) {
  const auto reason_after = [&](auto&& misbehave) {
    const ConnectionId connection = next_++;
    Hello(connection, connection);
    EXPECT_TRUE(state_.StartPublish(now_, ManifestOf(Version(1, next_), kBytes1), {}, now_ + absl::Seconds(9)).ok());
    misbehave(connection, Version(1, next_));
    EXPECT_TRUE(state_.is_prepared());
    EXPECT_TRUE(state_.Abandon(now_, Version(1, next_), ""));
    return FencedReason();
  };
  EXPECT_THAT(reason_after([&](ConnectionId id, const v1::WeightsVersion& weights) {
                Ready(id, weights);
                Verified(id, weights, second_.digest());
              }),
              HasSubstr("holds digest"));
  EXPECT_THAT(
      reason_after([&](ConnectionId id, const v1::WeightsVersion& weights) { Verified(id, weights, first_.digest()); }),
      HasSubstr("before they were sent"));
  EXPECT_THAT(reason_after([&](ConnectionId id, const v1::WeightsVersion& weights) {
                v1::ReceiverMessage message = Answer(id);
                *message.mutable_refused()->mutable_weights() = weights;
                message.mutable_refused()->set_reason("names");
                state_.OnMessage(now_, id, message);
              }),
              "refused: names");
  EXPECT_THAT(reason_after([&](ConnectionId id, const v1::WeightsVersion& weights) {
                Ready(id, weights);
                v1::ReceiverMessage message = Answer(id);
                *message.mutable_failed()->mutable_weights() = weights;
                message.mutable_failed()->set_reason("disk");
                state_.OnMessage(now_, id, message);
              }),
              "failed: disk");
  EXPECT_THAT(reason_after([&](ConnectionId id, const v1::WeightsVersion& weights) {
                v1::ReceiverMessage message;
                message.mutable_hello();
                state_.OnMessage(now_, id, message);
              }),
              HasSubstr("hello twice"));
  EXPECT_THAT(reason_after([&](ConnectionId id, const v1::WeightsVersion& weights) {
                Ready(id, weights);
                Verified(id, weights, first_.digest());
                // Held the bytes, but is gone before all are prepared … which it was alone: no longer a fence.
                state_.OnClosed(now_, id, "gone");
              }),
              "");
}

TEST_F(PublisherStateTest, AnswersOfAnEarlierLoadAreLate) {
  Hello(1, 11);
  Start(first_);
  Ready(1, first_.weights());
  v1::ReceiverMessage late = Answer(1);
  *late.mutable_verified()->mutable_weights() = first_.weights();
  late.mutable_verified()->set_digest(first_.digest());
  Verified(1, first_.weights(), first_.digest());
  state_.Abandon(now_, first_.weights(), "try again");
  // The same version again: the claim of the first try must not count.
  EXPECT_TRUE(Start(first_));
  Ready(1, first_.weights());
  state_.OnMessage(now_, 1, late);
  EXPECT_FALSE(state_.is_prepared());
  Verified(1, first_.weights(), first_.digest());
  EXPECT_TRUE(state_.is_prepared());
}

TEST_F(PublisherStateTest, ALostConnectionFencesAMemberAndOnlyThen) {
  PublishFirst(2);
  state_.OnClosed(now_, 2, "reset");
  EXPECT_EQ(state_.member_count(), 1);
  Start(second_);
  EXPECT_THAT(state_.prepared().fenced, IsEmpty());
  state_.OnClosed(now_, 1, "reset");
  EXPECT_TRUE(state_.is_prepared());
  EXPECT_EQ(FencedReason(), "connection lost: reset");
  state_.Commit(now_, second_.weights());
  Hello(3, 12);
  EXPECT_THAT(Sent(3), ElementsAre("welcome", "announce 2"));
  Hello(4, 11);
  EXPECT_THAT(Sent(4), ElementsAre(HasSubstr("register again")));
  Hello(5, 11, /*epoch=*/2);
  EXPECT_THAT(Sent(5), ElementsAre("welcome", "announce 2"));
}

TEST_F(PublisherStateTest, JoinersWaitForThePublishAndThenLoadTheCommittedVersion) {
  PublishFirst(1);
  Start(second_);
  Hello(2, 12);
  EXPECT_THAT(Sent(2), ElementsAre("welcome"));
  Load(1, second_);
  EXPECT_TRUE(state_.is_prepared());
  EXPECT_THAT(state_.prepared().members, SizeIs(1));
  EXPECT_THAT(Sent(2), IsEmpty());
  state_.Commit(now_, second_.weights());
  EXPECT_THAT(Sent(2), ElementsAre("announce 2"));
  Load(2, second_);
  EXPECT_THAT(Sent(2), ElementsAre("transfer ", "committed to 1"));
}

TEST_F(PublisherStateTest, AJoinerThatIsTooSlowIsFenced) {
  PublishFirst(0);
  Hello(1, 11);
  Ready(1, first_.weights());
  for (int second = 0; second < 120; second += 10) {
    state_.OnTime(now_);
    EXPECT_EQ(state_.member_count(), 1);
    now_ = now_ + absl::Seconds(10);
    v1::ReceiverMessage alive;
    alive.mutable_alive();
    state_.OnMessage(now_, 1, alive);
  }
  state_.OnTime(now_);
  EXPECT_EQ(state_.member_count(), 0);
}

TEST_F(PublisherStateTest, APublishTakesOverJoinersInTheMiddleOfTheirLoad) {
  PublishFirst(0);
  Hello(1, 11);
  Ready(1, first_.weights());
  EXPECT_THAT(Sent(1), ElementsAre("welcome", "announce 1", "transfer "));
  Start(second_);
  EXPECT_THAT(Sent(1), ElementsAre("announce 2"));
  Verified(1, first_.weights(), first_.digest());
  Load(1, second_);
  EXPECT_THAT(state_.prepared().members, SizeIs(1));
}

TEST_F(PublisherStateTest, EqualBytesAreRelabelled) {
  PublishFirst(1);
  const v1::Manifest same = ManifestOf(Version(1, 2), kBytes1);
  Start(same);
  Ready(1, same.weights());
  EXPECT_THAT(Sent(1), ElementsAre("announce 2", "relabel"));
  Verified(1, same.weights(), same.digest());
  EXPECT_EQ(state_.prepared().bytes_sent, 0u);
  state_.Commit(now_, same.weights());
  // Who attaches anew is not trusted to hold anything.
  state_.OnClosed(now_, 1, "");
  Hello(2, 11);
  Ready(2, same.weights());
  EXPECT_THAT(Sent(2), ElementsAre("welcome", "announce 2", "transfer "));
}

TEST_F(PublisherStateTest, AfterAnAbandonMembersHoldTheCommittedVersionAgain) {
  PublishFirst(1);
  Start(second_);
  Load(1, second_);
  Sent(1);
  EXPECT_FALSE(state_.Abandon(now_, first_.weights(), ""));
  EXPECT_TRUE(state_.Abandon(now_, second_.weights(), "refused"));
  // It had swapped version 1 in, and still has it.
  EXPECT_THAT(Sent(1), ElementsAre("abandoned"));

  // With version 3 committed but not taken by the engine, a transfer may have overwritten it: load again.
  const v1::Manifest third = ManifestOf(Version(1, 3), "version3");
  Start(third);
  Load(1, third);
  state_.Commit(now_, third.weights());
  const v1::Manifest fourth = ManifestOf(Version(1, 4), "version4");
  Start(fourth);
  Load(1, fourth);
  Sent(1);
  state_.Abandon(now_, fourth.weights(), "refused");
  EXPECT_THAT(Sent(1), ElementsAre("abandoned", "announce 3"));
}

TEST_F(PublisherStateTest, VersionsAreMonotonicWithinALineageAndNeverChangeTheirBytes) {
  const auto code = [&](const v1::WeightsVersion& weights) { return state_.CheckVersion(weights).code(); };
  EXPECT_EQ(code(Version(0, 1)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Version(1, 0)), absl::StatusCode::kInvalidArgument);
  const v1::Manifest fifth = ManifestOf(Version(2, 5), kBytes1);
  EXPECT_TRUE(Start(fifth));
  EXPECT_TRUE(state_.IsRepeat(Version(2, 5)));
  EXPECT_FALSE(Start(fifth)) << "prepared already";
  EXPECT_EQ(code(Version(2, 6)), absl::StatusCode::kFailedPrecondition);
  state_.Commit(now_, Version(2, 5));
  EXPECT_TRUE(state_.IsRepeat(Version(2, 5)));
  EXPECT_FALSE(Start(fifth)) << "committed already";
  EXPECT_EQ(code(Version(2, 4)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Version(1, 9)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Version(2, 9)), absl::StatusCode::kOk);
  EXPECT_EQ(code(Version(3, 1)), absl::StatusCode::kOk);
  const auto restarted = state_.StartPublish(now_, ManifestOf(Version(2, 5), kBytes2), {}, now_ + absl::Seconds(9));
  EXPECT_EQ(restarted.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(restarted.status().message()), HasSubstr("needs the same bytes"));
  // An abandoned version too.
  EXPECT_TRUE(Start(ManifestOf(Version(2, 6), kBytes1)));
  state_.Abandon(now_, Version(2, 6), "");
  EXPECT_FALSE(state_.StartPublish(now_, ManifestOf(Version(2, 6), kBytes2), {}, now_ + absl::Seconds(9)).ok());
  EXPECT_TRUE(Start(ManifestOf(Version(2, 6), kBytes1)));
}

TEST_F(PublisherStateTest, TheAnswerToARepeatIsTheAnswerOfThatVersion) {
  PublishFirst(1);
  Start(second_);
  state_.OnClosed(now_, 1, "");
  state_.Abandon(now_, second_.weights(), "");
  EXPECT_FALSE(Start(first_));
  EXPECT_EQ(state_.prepared().manifest.digest(), first_.digest());
  EXPECT_THAT(state_.prepared().members, SizeIs(1));
}

TEST_F(PublisherStateTest, SharedMemoryIsOfferedToWhoCanMapIt) {
  Hello(1, 11, 1, "shared_memory");
  Hello(2, 12, 1, "grpc");
  EXPECT_TRUE(state_.has_shared_memory_receivers());
  EXPECT_FALSE(state_.AllHaveMapped("/a"));
  Start(first_, absl::Seconds(30), {"/a", /*is_linked=*/true});
  Load(1, first_);
  Load(2, first_);
  EXPECT_THAT(Sent(1), ElementsAre("welcome", "announce 1", "transfer /a"));
  EXPECT_THAT(Sent(2), ElementsAre("welcome", "announce 1", "transfer "));
  EXPECT_TRUE(state_.AllHaveMapped("/a"));
  state_.Commit(now_, first_.weights());
  Swapped(1, first_.weights());
  Swapped(2, first_.weights());
  // A newcomer loads over gRPC, and does not have the object.
  Hello(3, 13, 1, "shared_memory");
  Load(3, first_);
  EXPECT_THAT(Sent(3), ElementsAre("welcome", "announce 1", "transfer ", "committed to 1"));
  EXPECT_FALSE(state_.AllHaveMapped("/a"));
  Sent(1);
  Start(second_, absl::Seconds(30), {"/a", /*is_linked=*/false});
  Ready(1, second_.weights());
  Ready(3, second_.weights());
  EXPECT_THAT(Sent(1), ElementsAre("announce 2", "transfer /a"));
  EXPECT_THAT(Sent(3), ElementsAre("announce 2", "transfer "));
}

TEST_F(PublisherStateTest, BadHellosAreRefusedWithTheReason) {
  PublishFirst(0);
  const auto refusal = [&](auto&& change) {
    const ConnectionId connection = next_++;
    state_.OnOpened(now_, connection);
    v1::ReceiverMessage message;
    v1::ReceiverMessage::Hello* hello = message.mutable_hello();
    hello->mutable_identity()->set_producer_id(connection);
    hello->mutable_identity()->set_epoch(1);
    hello->set_transport("grpc");
    change(&message);
    state_.OnMessage(now_, connection, message);
    const std::vector<std::string> sent = Sent(connection);
    return sent.empty() ? "" : sent[0];
  };
  EXPECT_EQ(refusal([](auto*) {}), "welcome");
  EXPECT_THAT(refusal([](auto* m) { m->mutable_alive(); }), HasSubstr("must be hello"));
  EXPECT_THAT(refusal([](auto* m) { m->mutable_hello()->mutable_identity()->set_epoch(0); }), HasSubstr("register"));
  EXPECT_THAT(refusal([](auto* m) { m->mutable_hello()->set_transport("pigeon"); }),
              HasSubstr("unknown transport \"pigeon\""));
  EXPECT_THAT(refusal([](auto* m) {
                *m->mutable_hello()->mutable_expected() = *MakeLayout({{"v", {1}, "F32", {}}});
              }),
              HasSubstr("missing \"v\" (F32 [1]); surplus \"w\" (F32 [2])"));
  state_.OnOpened(now_, 99);
  EXPECT_EQ(state_.next_deadline(), now_ + options_.announce_timeout);
  state_.OnTime(now_ + options_.announce_timeout);
  EXPECT_THAT(Sent(99), ElementsAre("fenced: no hello in time"));
}

TEST_F(PublisherStateTest, OneWorkerIsOneReceiver) {
  PublishFirst(1);
  // The same life dials again: the older connection is dead.
  Hello(2, 11);
  EXPECT_THAT(Sent(1), ElementsAre("close"));
  EXPECT_THAT(Sent(2), ElementsAre("welcome", "announce 1"));
  EXPECT_EQ(state_.member_count(), 1);
  // A new life fences the old one, which cannot come back.
  Hello(3, 11, /*epoch=*/2);
  EXPECT_THAT(Sent(2), ElementsAre(HasSubstr("superseded by epoch 2")));
  Hello(4, 11, /*epoch=*/1);
  EXPECT_THAT(Sent(4), ElementsAre(HasSubstr("superseded by epoch 2")));
  EXPECT_EQ(state_.member_count(), 1);
  // In the middle of a publish, a member that dials again had lost its connection.
  Start(second_);
  Hello(5, 11, /*epoch=*/2);
  EXPECT_TRUE(state_.is_prepared());
  EXPECT_THAT(FencedReason(), HasSubstr("connection lost"));
  EXPECT_THAT(Sent(5), ElementsAre(HasSubstr("register again")));
}

TEST_F(PublisherStateTest, TheMembershipEpochRisesWithEveryChangeAndPublish) {
  uint64_t last = state_.membership_epoch();
  const auto has_risen = [&] { return state_.membership_epoch() > std::exchange(last, state_.membership_epoch()); };
  Hello(1, 11);
  EXPECT_TRUE(has_risen());
  Start(first_);
  EXPECT_TRUE(has_risen());
  Load(1, first_);
  state_.Commit(now_, first_.weights());
  EXPECT_FALSE(has_risen());
  state_.OnClosed(now_, 1, "");
  EXPECT_TRUE(has_risen());
}

}  // namespace
}  // namespace leeway
