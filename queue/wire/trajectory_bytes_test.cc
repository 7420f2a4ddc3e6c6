#include "queue/wire/trajectory_bytes.h"

#include <string>

#include "base/random.h"
#include "google/protobuf/util/field_comparator.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "queue/fake_trajectory.h"

namespace leeway {
namespace {

using google::protobuf::util::MessageDifferencer;

// A trajectory with every field set and `ids` ids in each of its spans, all below `limit`.
v1::Trajectory LongTrajectory(uint64_t seed, int ids, uint64_t limit) {
  RandomStream random({.seed = seed, .purpose = RandomPurpose::kTask});
  v1::Trajectory trajectory = RandomTrajectory(seed, 8);
  trajectory.mutable_score()->set_reward(0.5);
  (*trajectory.mutable_score()->mutable_parts())["length"] = 1.5;
  trajectory.mutable_failure()->set_fault(v1::Failure::TOOL);
  trajectory.mutable_failure()->set_code("code");
  trajectory.set_terminal(v1::TRUNCATED);
  trajectory.set_stop_reason(v1::LENGTH);
  trajectory.set_outcome(v1::FAILED);
  trajectory.set_evaluation(true);
  trajectory.set_turns(3);
  trajectory.set_kv_cache_consistent(true);
  trajectory.set_environment_seconds(1.25);
  trajectory.add_spans();
  v1::Span* const full = trajectory.add_spans();
  full->set_sampled(true);
  full->set_temperature(0.5f);
  full->add_legal_ids(5);
  full->add_versions()->set_count(7);
  for (v1::Span& span : *trajectory.mutable_spans()) {
    for (int i = 0; i < ids; ++i) {
      span.add_ids(static_cast<int32_t>(random.NextBelow(limit)));
      span.add_logprobs(static_cast<float>(-random.NextUniform()));
    }
  }
  return trajectory;
}

TEST(TrajectoryBytes, AreThoseOfProtobufs) {
  for (uint64_t limit : {uint64_t{2}, uint64_t{130}, uint64_t{49152}, uint64_t{1} << 21, uint64_t{1} << 31}) {
    for (int ids : {1, 100, 300, 301, 302, 303, 5000}) {
      const v1::Trajectory trajectory = LongTrajectory(limit + static_cast<uint64_t>(ids), ids, limit);
      const std::string bytes = SerializeTrajectory(trajectory);
      EXPECT_EQ(bytes.size(), trajectory.ByteSizeLong());
      v1::Trajectory parsed;
      ASSERT_TRUE(parsed.ParseFromString(bytes));
      EXPECT_TRUE(MessageDifferencer::Equals(parsed, trajectory)) << limit << " " << ids;
      ASSERT_TRUE(ParseTrajectory(trajectory.SerializeAsString(), &parsed));
      EXPECT_TRUE(MessageDifferencer::Equals(parsed, trajectory)) << limit << " " << ids;
    }
  }
}

// A field that is added to the messages has to be added to WithoutSpans and AppendSpan.
TEST(TrajectoryBytes, KnowEveryField) {
  EXPECT_EQ(v1::Trajectory::descriptor()->field_count(), 11);
  EXPECT_EQ(v1::Span::descriptor()->field_count(), 6);
}

TEST(TrajectoryBytes, NegativeIdsSurvive) {
  v1::Trajectory trajectory = LongTrajectory(1, 400, 49152);
  trajectory.mutable_spans(0)->set_ids(17, -1);
  v1::Trajectory parsed;
  ASSERT_TRUE(ParseTrajectory(SerializeTrajectory(trajectory), &parsed));
  EXPECT_TRUE(MessageDifferencer::Equals(parsed, trajectory));
}

TEST(TrajectoryBytes, DamagedOnesAreReadAsProtobufReadsThem) {
  RandomStream random({.seed = 9, .purpose = RandomPurpose::kFault});
  // Damage makes NaNs.
  google::protobuf::util::DefaultFieldComparator comparator;
  comparator.set_treat_nan_as_equal(true);
  MessageDifferencer differencer;
  differencer.set_field_comparator(&comparator);
  int good = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    std::string bytes = LongTrajectory(i % 20, 250, 49152).SerializeAsString();
    const size_t place = random.NextBelow(bytes.size());
    switch (random.NextBelow(3)) {
      case 0:
        bytes[place] = static_cast<char>(bytes[place] ^ (1 << random.NextBelow(8)));
        break;
      case 1:
        bytes.erase(place, 1);
        break;
      default:
        bytes.insert(place, 1, bytes[place]);
    }
    v1::Trajectory quick, slow;
    const bool is_good = slow.ParseFromString(bytes);
    ASSERT_EQ(ParseTrajectory(bytes, &quick), is_good) << i;
    good += is_good;
    if (is_good) {
      ASSERT_TRUE(differencer.Compare(quick, slow)) << i;
    }
  }
  EXPECT_GT(good, 500);
}

}  // namespace
}  // namespace leeway
