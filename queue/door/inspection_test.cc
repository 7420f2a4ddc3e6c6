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

void AppendVarint(uint64_t value, std::string* bytes) {
  for (; value >= 0x80; value >>= 7) bytes->push_back(static_cast<char>(value | 0x80));
  bytes->push_back(static_cast<char>(value));
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

TEST(TokenBytes, IdsAreCountedAndBounded) {
  // The border itself and its neighbours, at every place of a block and behind it.
  for (int32_t vocabulary : {1, 2, 127, 128, 129, 255, 16383, 16384, 16385, 49152, 151936, (1 << 21) - 1, 1 << 21}) {
    for (size_t before = 0; before < 40; ++before) {
      for (int64_t id : std::vector<int64_t>{0, 1, vocabulary / 2, vocabulary - 1, vocabulary, vocabulary + 1}) {
        for (size_t after : {0, 1, 3, 17, 33}) {
          if (id < 0 || vocabulary < 1) continue;
          std::string bytes = std::string("\xff\xff\x05", 3);
          for (size_t i = 0; i < before; ++i)
            AppendVarint(i % 2 == 0 ? 0 : static_cast<uint64_t>(vocabulary - 1), &bytes);
          AppendVarint(static_cast<uint64_t>(id), &bytes);
          for (size_t i = 0; i < after; ++i) AppendVarint(0, &bytes);
          const auto count = CountIds(absl::string_view(bytes).substr(3), vocabulary);
          const bool is_good = id < vocabulary && id < (1 << 21);
          ASSERT_EQ(count.has_value(), is_good) << id << " of " << vocabulary << " after " << before;
          ASSERT_EQ(count.value_or(before + after + 1), before + after + 1);
        }
      }
    }
  }
}

TEST(TokenBytes, LongUnfinishedAndNegativeIdsAreNotCertain) {
  for (const std::string& ids : {std::string("\x01\x80"), std::string("\x80\x80\x80\x01"),
                                 std::string("\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")}) {
    for (size_t before : {0, 5, 13, 16, 30}) {
      const std::string bytes = std::string("\x12\x12\x05") + std::string(before, '\x01') + ids;
      EXPECT_FALSE(CountIds(absl::string_view(bytes).substr(3), 1 << 30).has_value()) << before;
    }
  }
  EXPECT_EQ(CountIds("", 10), 0u);
}

TEST(TokenBytes, ManyIdsDoNotOverflowTheCounters) {
  const std::string bytes = std::string("\x12\x12\x05") + std::string(100'003, '\x01');
  EXPECT_EQ(CountIds(absl::string_view(bytes).substr(3), 10), 100'003u);
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
