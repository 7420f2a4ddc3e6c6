#include "envs/latency_environment.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "envs/tasks/lake4x4.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const std::string& text) {
  const auto parsed = ParseLatency(text);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(parsed.status().message());
}

TEST(ParseLatencyTest, ReadsMedianAndSigma) {
  const auto parsed = ParseLatency("lognormal(median=20ms, sigma=1.0)");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->median, absl::Milliseconds(20));
  EXPECT_EQ(parsed->sigma, 1.0);
  EXPECT_EQ(ParseLatency("lognormal(sigma=0,median=1m30s)")->median, absl::Seconds(90));
}

TEST(ParseLatencyTest, SaysWhatIsWrongAndWhatIsExpected) {
  EXPECT_THAT(Refusal("20ms"), AllOf(HasSubstr("'20ms'"), HasSubstr("lognormal(median=20ms, sigma=1.0)")));
  EXPECT_THAT(Refusal("lognormal(sigma=1)"), HasSubstr("'median' is missing"));
  EXPECT_THAT(Refusal("lognormal(median=1s)"), HasSubstr("'sigma' is missing"));
  EXPECT_THAT(Refusal("lognormal(median=20, sigma=1)"), HasSubstr("median '20' is not a duration with a unit"));
  EXPECT_THAT(Refusal("lognormal(median=-2ms, sigma=1)"), HasSubstr("median '-2ms' is not positive"));
  EXPECT_THAT(Refusal("lognormal(median=0ms, sigma=1)"), HasSubstr("not positive"));
  EXPECT_THAT(Refusal("lognormal(median=inf, sigma=1)"), HasSubstr("not positive and finite"));
  for (const char* sigma : {"-1", "6", "nan", "wide"}) {
    EXPECT_THAT(Refusal(std::string("lognormal(median=1s, sigma=") + sigma + ")"),
                HasSubstr("is not a number from 0 to 5"));
  }
  EXPECT_THAT(Refusal("lognormal(median=1s, sigma=1, shape=2)"), HasSubstr("unknown key 'shape'"));
}

TEST(LatencyOfTest, IsLogNormal) {
  const LatencyDistribution distribution = {absl::Milliseconds(20), 0.5};
  std::vector<double> logarithms;
  for (uint64_t ticket = 1; ticket <= 2500; ++ticket) {
    for (uint32_t call = 0; call < 4; ++call) {
      const absl::Duration latency = LatencyOf(distribution, {.run_seed = 1, .ticket = ticket}, call);
      EXPECT_GT(latency, absl::ZeroDuration());
      logarithms.push_back(std::log(absl::ToDoubleSeconds(latency)));
    }
  }
  std::sort(logarithms.begin(), logarithms.end());
  double mean = 0.0, square = 0.0;
  for (const double logarithm : logarithms) mean += logarithm / 1e4;
  for (const double logarithm : logarithms) square += (logarithm - mean) * (logarithm - mean) / 1e4;
  // Standard errors: 0.5 / 100 for the mean, 1.25 times that for the median, 0.5 / sqrt(20000) for the deviation.
  EXPECT_NEAR(mean, std::log(0.020), 0.025);
  EXPECT_NEAR(logarithms[5000], std::log(0.020), 0.032);
  EXPECT_NEAR(std::sqrt(square), 0.5, 0.018);
  EXPECT_EQ(LatencyOf({absl::Seconds(3), 0.0}, {.ticket = 9}, 2), absl::Seconds(3));
}

TEST(LatencyOfTest, DependsOnTheEpisodeAndTheCallButNotOnTheAttempt) {
  const LatencyDistribution distribution = {absl::Milliseconds(20), 1.0};
  const EpisodeKey key = {.run_seed = 1, .ticket = 2, .member = 3};
  const absl::Duration latency = LatencyOf(distribution, key, 4);
  EXPECT_EQ(LatencyOf(distribution, {.run_seed = 1, .ticket = 2, .member = 3, .attempt = 7}, 4), latency);
  const std::set<absl::Duration> all = {latency, LatencyOf(distribution, {.run_seed = 9, .ticket = 2, .member = 3}, 4),
                                        LatencyOf(distribution, {.run_seed = 1, .ticket = 9, .member = 3}, 4),
                                        LatencyOf(distribution, {.run_seed = 1, .ticket = 2, .member = 9}, 4),
                                        LatencyOf(distribution, key, 5)};
  EXPECT_EQ(all.size(), 5u);
}

TEST(WithLatencyTest, AddsLatencyAndChangesNothingElse) {
  const LatencyDistribution distribution = {absl::Milliseconds(20), 1.0};
  const auto plain = NewLake4x4Task();
  const auto slow = WithLatency(WithLatency(NewLake4x4Task(), {absl::Seconds(2), 0.0}), distribution);
  EXPECT_EQ(slow->name(), "lake4x4");
  EXPECT_EQ(slow->TrainSeed(1, 2), plain->TrainSeed(1, 2));
  EXPECT_EQ(slow->EvaluationSeed(1, 2), plain->EvaluationSeed(1, 2));
  EXPECT_EQ(slow->train_size(), 0u);
  EXPECT_EQ(slow->max_turns(), plain->max_turns());
  EXPECT_EQ(slow->max_episode_tokens(), plain->max_episode_tokens());
  EXPECT_EQ(slow->vocabulary(), plain->vocabulary());
  EXPECT_EQ(slow->Demonstrate(5)->turns.size(), plain->Demonstrate(5)->turns.size());

  const EpisodeKey key = {.run_seed = 1, .ticket = 2, .member = 3};
  const auto environment = slow->NewEnvironmentFor(key);
  for (int episode = 0; episode < 2; ++episode) {
    EXPECT_EQ(environment->Reset(5)->text, plain->NewEnvironment()->Reset(5)->text);
    EXPECT_EQ(environment->SimulatedLatency(), LatencyOf(distribution, key, 0) + absl::Seconds(2));
    for (uint32_t call = 1; call <= 3; ++call) {
      EXPECT_EQ(environment->Step("U")->next.text, "a");
      EXPECT_EQ(environment->SimulatedLatency(), LatencyOf(distribution, key, call) + absl::Seconds(2));
    }
  }
}

}  // namespace
}  // namespace leeway
