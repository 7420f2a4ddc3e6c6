#include "queue/door/validation.h"

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "queue/fake_trajectory.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

constexpr ValidationLimits kLimits = {kFakeVocabulary, /*group_size=*/8};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

v1::Trajectory Good() {
  v1::WeightsVersion weights;
  weights.set_lineage(1);
  weights.set_version(3);
  v1::Trajectory trajectory = FakeTrajectory(17, 1, 7, weights);
  // A second turn with two versions in one span and a legal set.
  trajectory.add_spans()->add_ids(20);
  v1::Span* span = trajectory.add_spans();
  span->set_sampled(true);
  span->set_temperature(0.7f);
  for (int32_t id : {3, 5, 9}) span->add_ids(id);
  for (float logprob : {-1.0f, 0.0f, -0.0f}) span->add_logprobs(logprob);
  for (int32_t id : {3, 5, 9, 63}) span->add_legal_ids(id);
  for (uint64_t version : {3, 4}) {
    v1::VersionRun* run = span->add_versions();
    run->mutable_weights()->set_lineage(1);
    run->mutable_weights()->set_version(version);
    run->set_count(version == 3 ? 1 : 2);
  }
  return trajectory;
}

v1::Trajectory Failed() {
  v1::Trajectory trajectory;
  *trajectory.mutable_key() = Good().key();
  trajectory.set_outcome(v1::FAILED);
  trajectory.mutable_failure()->set_fault(v1::Failure::TIMEOUT);
  trajectory.mutable_failure()->set_code("step_timeout");
  return trajectory;
}

struct BadCase {
  const char* code;
  const char* message;
  std::function<void(v1::Trajectory*)> spoil;
  bool failed = false;  // spoils Failed() instead of Good()
};

const BadCase kBadCases[] = {
    {"key_unset", "key.ticket is unset", [](v1::Trajectory* t) { t->mutable_key()->clear_ticket(); }},
    {"key_unset", "key.issue is unset", [](v1::Trajectory* t) { t->mutable_key()->clear_issue(); }},
    {"key_unset", "key.attempt is unset", [](v1::Trajectory* t) { t->mutable_key()->clear_attempt(); }},
    {"member_out_of_range", "key.member: 8 of a group of 8",
     [](v1::Trajectory* t) { t->mutable_key()->set_member(8); }},
    {"environment_seconds", "environment_seconds: -1", [](v1::Trajectory* t) { t->set_environment_seconds(-1); }},
    {"environment_seconds", "environment_seconds: nan", [](v1::Trajectory* t) { t->set_environment_seconds(kNan); }},
    {"outcome_unset", "outcome: OUTCOME_UNSPECIFIED", [](v1::Trajectory* t) { t->clear_outcome(); }},
    {"failure_missing", "failure is unset", [](v1::Trajectory* t) { t->clear_failure(); }, true},
    {"failure_missing", "failure.fault is unset", [](v1::Trajectory* t) { t->mutable_failure()->clear_fault(); }, true},
    {"failure_missing", "failure.code is empty", [](v1::Trajectory* t) { t->mutable_failure()->clear_code(); }, true},
    {"failure_code", "failure.code: \"exit status 1\"",
     [](v1::Trajectory* t) { t->mutable_failure()->set_code("exit status 1"); }, true},
    {"failure_code", "failure.code: \"xxx",
     [](v1::Trajectory* t) { t->mutable_failure()->set_code(std::string(65, 'x')); }, true},
    {"failure_unexpected", "failure is set", [](v1::Trajectory* t) { t->mutable_failure()->set_code("x"); }},
    {"terminal_unset", "terminal: RUNNING", [](v1::Trajectory* t) { t->set_terminal(v1::RUNNING); }},
    {"terminal_unset", "terminal: TERMINAL_UNSPECIFIED", [](v1::Trajectory* t) { t->clear_terminal(); }},
    {"stop_reason_unset", "stop_reason is unset", [](v1::Trajectory* t) { t->clear_stop_reason(); }},
    {"score_of_failure", "SCORED although outcome is FAILED",
     [](v1::Trajectory* t) {
       t->mutable_score()->set_status(v1::Score::SCORED);
       t->mutable_score()->set_reward(0);
     },
     true},
    {"score_unset", "score.status is unset", [](v1::Trajectory* t) { t->clear_score(); }},
    {"reward_missing", "score.reward is unset", [](v1::Trajectory* t) { t->mutable_score()->clear_reward(); }},
    {"reward_unexpected", "although score.status is UNSCORED",
     [](v1::Trajectory* t) { t->mutable_score()->set_status(v1::Score::UNSCORED); }},
    {"reward_unexpected", "although score.status is SCORING_FAILED",
     [](v1::Trajectory* t) { t->mutable_score()->set_status(v1::Score::SCORING_FAILED); }},
    {"reward_not_finite", "score.reward: nan", [](v1::Trajectory* t) { t->mutable_score()->set_reward(kNan); }},
    {"reward_not_finite", "score.reward: inf", [](v1::Trajectory* t) { t->mutable_score()->set_reward(kInfinity); }},
    {"reward_not_finite", "score.parts[format]: -inf",
     [](v1::Trajectory* t) { (*t->mutable_score()->mutable_parts())["format"] = -kInfinity; }},
    {"id_out_of_vocabulary", "spans[0].ids[2]: 64 in a vocabulary of 64",
     [](v1::Trajectory* t) { t->mutable_spans(0)->set_ids(2, 64); }},
    {"id_out_of_vocabulary", "spans[1].ids[0]: -1", [](v1::Trajectory* t) { t->mutable_spans(1)->set_ids(0, -1); }},
    {"id_out_of_vocabulary", "spans[3].legal_ids[3]: 64",
     [](v1::Trajectory* t) { t->mutable_spans(3)->set_legal_ids(3, 64); }},
    {"given_span_with_samples", "spans[2].logprobs is set",
     [](v1::Trajectory* t) { t->mutable_spans(2)->add_logprobs(-1); }},
    {"given_span_with_samples", "spans[2].versions is set",
     [](v1::Trajectory* t) { *t->mutable_spans(2)->add_versions() = t->spans(1).versions(0); }},
    {"given_span_with_samples", "spans[2].legal_ids is set",
     [](v1::Trajectory* t) { t->mutable_spans(2)->add_legal_ids(1); }},
    {"given_span_with_samples", "spans[0].temperature is set",
     [](v1::Trajectory* t) { t->mutable_spans(0)->set_temperature(1); }},
    {"sampled_span_empty", "spans[4].ids is empty", [](v1::Trajectory* t) { t->add_spans()->set_sampled(true); }},
    {"logprobs_length", "spans[1].logprobs has 4 entries for 5 ids",
     [](v1::Trajectory* t) { t->mutable_spans(1)->mutable_logprobs()->RemoveLast(); }},
    {"logprobs_length", "spans[1].logprobs has 6 entries for 5 ids",
     [](v1::Trajectory* t) { t->mutable_spans(1)->add_logprobs(-1); }},
    {"logprob_not_finite", "spans[1].logprobs[2]: nan",
     [](v1::Trajectory* t) { t->mutable_spans(1)->set_logprobs(2, kNan); }},
    {"logprob_not_finite", "spans[3].logprobs[0]: -inf",
     [](v1::Trajectory* t) { t->mutable_spans(3)->set_logprobs(0, static_cast<float>(-kInfinity)); }},
    {"logprob_positive", "spans[3].logprobs[2]: 1e-06 is greater than 0",
     [](v1::Trajectory* t) { t->mutable_spans(3)->set_logprobs(2, 1e-6f); }},
    {"versions_length", "spans[3].versions cover 4 tokens of 3",
     [](v1::Trajectory* t) { t->mutable_spans(3)->mutable_versions(0)->set_count(2); }},
    {"versions_length", "spans[1].versions cover 0 tokens of 5",
     [](v1::Trajectory* t) { t->mutable_spans(1)->clear_versions(); }},
    {"versions_length", "spans[3].versions[0].count is 0",
     [](v1::Trajectory* t) { t->mutable_spans(3)->mutable_versions(0)->set_count(0); }},
    // Counts that add up only modulo 2^32.
    {"versions_length", "spans[3].versions cover 4294967299 tokens of 3",
     [](v1::Trajectory* t) {
       t->mutable_spans(3)->mutable_versions(0)->set_count(std::numeric_limits<uint32_t>::max());
       t->mutable_spans(3)->mutable_versions(1)->set_count(4);
     }},
    {"version_unset", "spans[3].versions[1].weights is unset",
     [](v1::Trajectory* t) { t->mutable_spans(3)->mutable_versions(1)->mutable_weights()->clear_version(); }},
    {"version_unset", "spans[1].versions[0].weights is unset",
     [](v1::Trajectory* t) { t->mutable_spans(1)->mutable_versions(0)->mutable_weights()->clear_lineage(); }},
    {"temperature", "spans[1].temperature: 0", [](v1::Trajectory* t) { t->mutable_spans(1)->clear_temperature(); }},
    {"temperature", "spans[1].temperature: -1", [](v1::Trajectory* t) { t->mutable_spans(1)->set_temperature(-1); }},
    {"temperature", "spans[3].temperature: nan", [](v1::Trajectory* t) { t->mutable_spans(3)->set_temperature(kNan); }},
    {"legal_ids_order", "spans[3].legal_ids[1]: 3 after 3",
     [](v1::Trajectory* t) { t->mutable_spans(3)->set_legal_ids(1, 3); }},
    {"legal_ids_order", "spans[3].legal_ids[2]: 4 after 5",
     [](v1::Trajectory* t) { t->mutable_spans(3)->set_legal_ids(2, 4); }},
    {"sampled_illegal_id", "spans[3].ids[1]: 6 is not among legal_ids",
     [](v1::Trajectory* t) { t->mutable_spans(3)->set_ids(1, 6); }},
    {"no_sampled_tokens", "none is sampled",
     [](v1::Trajectory* t) {
       t->mutable_spans()->RemoveLast();
       t->mutable_spans(1)->Swap(t->mutable_spans(0));
       t->mutable_spans()->DeleteSubrange(0, 1);
     }},
    {"no_sampled_tokens", "none is sampled", [](v1::Trajectory* t) { t->clear_spans(); }},
};

TEST(Validation, TheGoodOnesAreGood) {
  EXPECT_FALSE(ValidateTrajectory(Good(), kLimits).has_value());
  EXPECT_FALSE(ValidateTrajectory(Failed(), kLimits).has_value());
}

TEST(Validation, EveryRuleRefusesWithItsCodeAndTheFieldsPath) {
  for (const BadCase& c : kBadCases) {
    v1::Trajectory trajectory = c.failed ? Failed() : Good();
    c.spoil(&trajectory);
    const std::optional<Rejection> rejection = ValidateTrajectory(trajectory, kLimits);
    ASSERT_TRUE(rejection.has_value()) << c.code << ": " << c.message;
    EXPECT_EQ(rejection->code, c.code);
    EXPECT_THAT(rejection->message, HasSubstr(c.message));
    EXPECT_EQ(rejection->ToString(), rejection->code + ": " + rejection->message);
  }
}

TEST(Validation, WhatAPeerNamesIsCutBetweenCharacters) {
  v1::Trajectory trajectory = Good();
  std::string name(480, 'x');
  for (int i = 0; i < 1000; ++i) name += "\u00e9";
  (*trajectory.mutable_score()->mutable_parts())[name] = kInfinity;
  const std::string text = ValidateTrajectory(trajectory, kLimits)->ToString();
  EXPECT_LE(text.size(), 515u);
  // A protobuf string takes nothing but UTF-8.
  v1::Failure failure;
  failure.set_message(text);
  EXPECT_TRUE(v1::Failure().ParseFromString(failure.SerializeAsString()));
  EXPECT_EQ(CutText("short"), "short");
}

TEST(Validation, AFailureMayCarryTheSpansThatItHad) {
  v1::Trajectory trajectory = Failed();
  *trajectory.mutable_spans() = Good().spans();
  EXPECT_FALSE(ValidateTrajectory(trajectory, kLimits).has_value());
  trajectory.mutable_spans(1)->set_logprobs(0, kNan);
  EXPECT_EQ(ValidateTrajectory(trajectory, kLimits)->code, "logprob_not_finite");
}

TEST(Validation, AnEvaluationsMembersAreNotTheGroups) {
  v1::Trajectory trajectory = Good();
  trajectory.mutable_key()->set_member(8);
  trajectory.set_evaluation(true);
  EXPECT_FALSE(ValidateTrajectory(trajectory, kLimits).has_value());
}

TEST(Validation, AnyWellFormedTrajectoryPasses) {
  std::set<int> outcomes;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const v1::Trajectory trajectory = RandomTrajectory(seed, kLimits.group_size);
    const std::optional<Rejection> rejection = ValidateTrajectory(trajectory, kLimits);
    ASSERT_FALSE(rejection.has_value()) << "seed " << seed << ": " << rejection->ToString() << "\n"
                                        << trajectory.DebugString();
    outcomes.insert(trajectory.outcome());
  }
  EXPECT_EQ(outcomes.size(), 2u);
}

// One number of a valid trajectory made wrong is always noticed.
TEST(Validation, OneSpoiledNumberIsNoticed) {
  int spoiled = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    v1::Trajectory trajectory = RandomTrajectory(seed, kLimits.group_size);
    if (trajectory.spans_size() < 2) continue;
    v1::Span* span = trajectory.mutable_spans(1);
    ASSERT_TRUE(span->sampled());
    const int position = static_cast<int>(seed) % span->ids_size();
    switch (seed % 6) {
      case 0:
        span->set_ids(position, kFakeVocabulary + static_cast<int>(seed));
        break;
      case 1:
        span->set_logprobs(position, kNan);
        break;
      case 2:
        span->set_logprobs(position, 0.5f);
        break;
      case 3:
        span->mutable_versions(0)->set_count(span->versions(0).count() + 1);
        break;
      case 4:
        span->mutable_ids()->RemoveLast();
        break;
      case 5:
        span->mutable_versions(0)->mutable_weights()->set_version(0);
        break;
    }
    ++spoiled;
    EXPECT_TRUE(ValidateTrajectory(trajectory, kLimits).has_value()) << "seed " << seed;
  }
  EXPECT_GT(spoiled, 1000);
}

}  // namespace
}  // namespace leeway
