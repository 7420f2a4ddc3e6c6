#include "queue/door/inspection.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"
#include "queue/door/token_bytes.h"
#include "queue/fake_trajectory.h"

namespace leeway {
namespace {

constexpr ValidationLimits kLimits{kFakeVocabulary, 8};

// What the parser and ValidateTrajectory say.
Inspection LongWay(const std::string& payload, const ValidationLimits& limits) {
  Inspection inspection;
  v1::Trajectory trajectory;
  if (!trajectory.ParseFromString(payload)) {
    inspection.reject_reason = "malformed: the bytes are no Trajectory";
    return inspection;
  }
  if (const auto rejection = ValidateTrajectory(trajectory, limits)) inspection.reject_reason = rejection->ToString();
  inspection.summary = Summarize(trajectory);
  return inspection;
}

void ExpectEqual(const Inspection& a, const Inspection& b) {
  EXPECT_EQ(a.reject_reason, b.reject_reason);
  EXPECT_EQ(a.summary.key.SerializeAsString(), b.summary.key.SerializeAsString());
  EXPECT_EQ(a.summary.evaluation, b.summary.evaluation);
  EXPECT_EQ(a.summary.completed, b.summary.completed);
  EXPECT_EQ(a.summary.failure_code, b.summary.failure_code);
  EXPECT_EQ(a.summary.reward, b.summary.reward);
  EXPECT_EQ(a.summary.sampled_tokens, b.summary.sampled_tokens);
  EXPECT_EQ(a.summary.versions, b.summary.versions);
}

TEST(Inspection, OrdinaryTrajectoriesGoTheShortWay) {
  const v1::WeightsVersion weights = [] {
    v1::WeightsVersion version;
    version.set_lineage(2);
    version.set_version(300);
    return version;
  }();
  for (int sampled = 1; sampled < 300; ++sampled) {
    const std::string payload = FakeTrajectory(7, 1, 3, weights, sampled, 0.5).SerializeAsString();
    Inspection inspection;
    ASSERT_TRUE(internal::InspectSpansInPlace(payload, kLimits, &inspection)) << sampled;
    EXPECT_EQ(inspection.summary.sampled_tokens, static_cast<uint64_t>(sampled));
    ExpectEqual(inspection, LongWay(payload, kLimits));
  }
}

TEST(Inspection, BothWaysAgreeOnAnythingWellFormed) {
  int short_way = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const std::string payload = RandomTrajectory(seed, kLimits.group_size).SerializeAsString();
    Inspection inspection;
    short_way += internal::InspectSpansInPlace(payload, kLimits, &inspection);
    ExpectEqual(InspectTrajectory(payload, kLimits), LongWay(payload, kLimits));
  }
  EXPECT_GT(short_way, 300);
}

// A bit turned, a byte lost, a byte doubled: whatever it means now, both ways say so.
TEST(Inspection, BothWaysAgreeOnDamage) {
  RandomStream random({.seed = 5, .purpose = RandomPurpose::kFault});
  for (uint64_t seed = 0; seed < 40'000; ++seed) {
    std::string payload = RandomTrajectory(seed % 500, kLimits.group_size).SerializeAsString();
    const uint64_t damages = 1 + random.NextBelow(2);
    for (uint64_t i = 0; i < damages; ++i) {
      const size_t place = random.NextBelow(payload.size());
      switch (random.NextBelow(3)) {
        case 0:
          payload[place] = static_cast<char>(payload[place] ^ (1 << random.NextBelow(8)));
          break;
        case 1:
          payload.erase(place, 1);
          break;
        default:
          payload.insert(place, 1, payload[place]);
      }
      if (payload.empty()) payload = "x";
    }
    SCOPED_TRACE(seed);
    ExpectEqual(InspectTrajectory(payload, kLimits), LongWay(payload, kLimits));
    if (HasFailure()) return;
  }
}

TEST(TokenBytes, IdsLieInTheVocabulary) {
  for (int32_t vocabulary : {1, 2, 128, 49152, 1 << 21, std::numeric_limits<int32_t>::max()}) {
    const std::vector<std::pair<int32_t, bool>> cases = {{0, true},
                                                         {vocabulary / 2, true},
                                                         {vocabulary - 1, true},
                                                         {vocabulary, false},
                                                         {-1, false},
                                                         {std::numeric_limits<int32_t>::min(), false}};
    // At every place of a block and behind it.
    for (const auto& [id, is_good] : cases) {
      for (size_t place = 0; place < 12; ++place) {
        std::vector<int32_t> ids(12, vocabulary - 1);
        ids[place] = id;
        for (size_t size = place + 1; size <= 12; ++size) {
          const std::string bytes(reinterpret_cast<const char*>(ids.data()), 4 * size);
          ASSERT_EQ(AreIds(bytes, vocabulary), is_good) << id << " at " << place << " of " << size;
        }
      }
    }
  }
  EXPECT_TRUE(AreIds("", 10));
  EXPECT_FALSE(AreIds(absl::string_view("\0\0\0", 3), 10));
}

TEST(TokenBytes, LogprobsAreFiniteAndNotPositive) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<float, bool>> cases = {{0.0f, true},
                                                     {-0.0f, true},
                                                     {-1.5f, true},
                                                     {-std::numeric_limits<float>::max(), true},
                                                     {-std::numeric_limits<float>::denorm_min(), true},
                                                     {std::numeric_limits<float>::denorm_min(), false},
                                                     {1.0f, false},
                                                     {infinity, false},
                                                     {-infinity, false},
                                                     {std::nanf(""), false},
                                                     {-std::nanf(""), false}};
  for (const auto& [value, is_good] : cases) {
    for (size_t place = 0; place < 12; ++place) {
      std::vector<float> values(12, -0.25f);
      values[place] = value;
      for (size_t size = place + 1; size <= 12; ++size) {
        const std::string bytes(reinterpret_cast<const char*>(values.data()), 4 * size);
        ASSERT_EQ(AreLogprobs(bytes), is_good) << value << " at " << place << " of " << size;
      }
    }
  }
  EXPECT_FALSE(AreLogprobs("abc"));
}

}  // namespace
}  // namespace leeway
