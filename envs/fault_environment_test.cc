#include "envs/fault_environment.h"

#include <cmath>
#include <map>
#include <thread>

#include "envs/play.h"
#include "envs/tasks/lake4x4.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tokenizer/byte_tokenizer.h"
#include "tokenizer/character_tokenizer.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const std::string& text) {
  const auto parsed = ParseFaults(text);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(parsed.status().message());
}

TEST(ParseFaultsTest, ReadsProbabilities) {
  const auto parsed = ParseFaults("faults(fail=0.25, hang=0.125, block=0.5, garbage=0.0625)");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->fail, 0.25);
  EXPECT_EQ(parsed->hang, 0.125);
  EXPECT_EQ(parsed->block, 0.5);
  EXPECT_EQ(parsed->garbage, 0.0625);
  EXPECT_EQ(ParseFaults("faults()")->fail, 0.0);
}

TEST(ParseFaultsTest, SaysWhatIsWrong) {
  for (const char* value : {"-0.1", "1.1", "nan", "often"}) {
    EXPECT_THAT(Refusal(std::string("faults(hang=") + value + ")"),
                AllOf(HasSubstr("is not a probability from 0 to 1"), HasSubstr("faults(fail=0.01, hang=0.001)")));
  }
  EXPECT_THAT(Refusal("faults(fail=0.6, hang=0.6)"), HasSubstr("add up to 1.2, more than 1"));
  EXPECT_THAT(Refusal("faults(crash=1)"), HasSubstr("unknown key 'crash' (known: fail, hang, block, garbage)"));
  EXPECT_THAT(Refusal("fail=0.1"), HasSubstr("does not begin with 'faults('"));
}

TEST(WithFaultsTest, ProbabilityZeroChangesNothing) {
  const auto task = WithFaults(NewLake4x4Task(), {});
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto environment = task->NewEnvironmentFor({.ticket = seed});
    const auto demonstration = task->Demonstrate(seed);
    size_t turn = 0;
    const auto policy = [&](const Observation&) { return demonstration->turns.at(turn++).second; };
    EXPECT_EQ(PlayEpisode(*environment, seed, policy, 10)->reward, 1.0);
    EXPECT_EQ(environment->SimulatedLatency(), absl::ZeroDuration());
  }
}

TEST(WithFaultsTest, FaultsComeAsOftenAsAskedAndOnlyByTheKey) {
  const FaultProbabilities probabilities = {.fail = 0.2, .hang = 0.1, .garbage = 0.1};
  const auto task = WithFaults(NewLake4x4Task(), probabilities);
  const auto outcome_of = [&](const EpisodeKey& key) -> std::string {
    const auto environment = task->NewEnvironmentFor(key);
    const auto observation = environment->Reset(1);
    if (!observation.ok()) return std::string(absl::StatusCodeToString(observation.status().code()));
    if (environment->SimulatedLatency() == kHangLatency) return "hang";
    const bool is_garbage =
        !CheckObservation(*observation).ok() || !CharacterTokenizer().Encode(observation->text).ok();
    return is_garbage ? "garbage" : "fine";
  };
  std::map<std::string, int> counts;
  int differs_by_attempt = 0, differs_by_member = 0;
  for (uint64_t ticket = 1; ticket <= 4000; ++ticket) {
    const std::string outcome = outcome_of({.run_seed = 3, .ticket = ticket});
    EXPECT_EQ(outcome_of({.run_seed = 3, .ticket = ticket}), outcome);
    ++counts[outcome];
    differs_by_attempt += outcome != outcome_of({.run_seed = 3, .ticket = ticket, .attempt = 2}) ? 1 : 0;
    differs_by_member += outcome != outcome_of({.run_seed = 3, .ticket = ticket, .member = 1}) ? 1 : 0;
  }
  // Six standard deviations allowed.
  EXPECT_NEAR(counts["UNAVAILABLE"], 800, 152);
  EXPECT_NEAR(counts["hang"], 400, 114);
  EXPECT_NEAR(counts["garbage"], 400, 114);
  EXPECT_NEAR(counts["fine"], 2400, 186);
  // 1 - (0.2^2 + 0.1^2 + 0.1^2 + 0.6^2) = 0.58.
  EXPECT_NEAR(differs_by_attempt, 2320, 190);
  EXPECT_NEAR(differs_by_member, 2320, 190);
}

TEST(WithFaultsTest, GarbageIsAlwaysSomethingThatNoCheckLetsPass) {
  const auto task = WithFaults(NewLake4x4Task(), {.garbage = 1.0});
  const auto clean = NewLake4x4Task();
  int spoilt_rewards = 0, spoilt_observations = 0;
  for (uint64_t ticket = 1; ticket <= 300; ++ticket) {
    const auto environment = task->NewEnvironmentFor({.ticket = ticket});
    ASSERT_TRUE(environment->Reset(ticket).ok());
    // A demonstration reaches the end of the episode, where only the reward is left to spoil.
    const Demonstration demonstration = *clean->Demonstrate(ticket);
    for (const auto& [observation, answer] : demonstration.turns) {
      const auto result = environment->Step(answer);
      ASSERT_TRUE(result.ok());
      const bool is_bad_reward = result->reward.has_value() && !std::isfinite(*result->reward);
      const bool is_bad_observation =
          !CheckObservation(result->next).ok() || !CharacterTokenizer().Encode(result->next.text).ok();
      if (result->state == EpisodeState::kRunning) {
        EXPECT_NE(is_bad_reward, is_bad_observation);
      } else {
        EXPECT_TRUE(is_bad_reward);
      }
      spoilt_rewards += is_bad_reward ? 1 : 0;
      spoilt_observations += is_bad_observation ? 1 : 0;
    }
  }
  EXPECT_GT(spoilt_rewards, 100);
  EXPECT_GT(spoilt_observations, 100);
}

TEST(WithFaultsTest, BlockedCallsWaitForTheGate) {
  const auto gate = std::make_shared<HangGate>();
  const auto task = WithFaults(NewLake4x4Task(), {.block = 1.0}, gate);
  const auto environment = task->NewEnvironmentFor({.ticket = 1});
  absl::Status status;
  std::thread caller([&] { status = environment->Reset(1).status(); });
  while (gate->waiting() == 0) std::this_thread::yield();
  gate->Open();
  caller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(gate->waiting(), 0);
  // An open gate lets everybody through.
  EXPECT_EQ(environment->Step("U").status().code(), absl::StatusCode::kCancelled);
}

TEST(WithFaultsTest, TheEndOfTheTaskReleasesItsBlockedCalls) {
  auto task = WithFaults(NewLake4x4Task(), {.block = 1.0});
  const auto environment = task->NewEnvironmentFor({.ticket = 1});
  absl::Status status;
  std::thread caller([&] { status = environment->Reset(1).status(); });
  task.reset();
  caller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace leeway
