#include "trainer/records/trajectory_records.h"

#include <limits>
#include <sstream>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace leeway {
namespace {

using nlohmann::json;

void AddRun(v1::Span* span, uint64_t lineage, uint64_t version, uint32_t count) {
  v1::VersionRun* run = span->add_versions();
  run->mutable_weights()->set_lineage(lineage);
  run->mutable_weights()->set_version(version);
  run->set_count(count);
}

// "ab" given; "c" and end-of-text sampled under two versions; then one more of the second.
v1::Trajectory Episode(const Tokenizer& tokenizer) {
  v1::Trajectory trajectory;
  trajectory.mutable_key()->set_ticket(7);
  trajectory.mutable_key()->set_issue(2);
  trajectory.mutable_key()->set_member(1);
  trajectory.mutable_key()->set_attempt(1);
  trajectory.set_outcome(v1::COMPLETED);
  trajectory.mutable_score()->set_status(v1::Score::SCORED);
  trajectory.mutable_score()->set_reward(0.5);
  v1::Span* given = trajectory.add_spans();
  const std::vector<int32_t> ids = tokenizer.Encode("ab").value();
  given->mutable_ids()->Add(ids.begin(), ids.end());
  v1::Span* first = trajectory.add_spans();
  first->set_sampled(true);
  first->set_temperature(1);
  first->add_ids(tokenizer.Encode("c")->at(0));
  first->add_ids(tokenizer.end_of_text_id());
  first->add_logprobs(-0.5);
  first->add_logprobs(-0.25);
  AddRun(first, 1, 3, 1);
  AddRun(first, 1, 4, 1);
  v1::Span* second = trajectory.add_spans();
  *second = *first;
  second->clear_versions();
  AddRun(second, 1, 4, 2);
  return trajectory;
}

class TrajectoryRecordsTest : public ::testing::Test {
 protected:
  TrajectoryRecordsTest() : tokenizer_(*NewTokenizer("character")) {
    batch_.groups.resize(1);
    batch_.groups[0].ticket = 7;
    batch_.groups[0].issue = 2;
    batch_.groups[0].members = {Episode(*tokenizer_)};
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  LeasedBatch batch_;
};

TEST_F(TrajectoryRecordsTest, TheScheduleSaysWhichVersionMadeWhichTokens) {
  EXPECT_EQ(FormatScheduleLine(5, batch_),
            R"({"step":5,"groups":[{"ticket":7,"issue":2,"members":[[[1,3,1],[1,4,3]]]}]})");
}

TEST_F(TrajectoryRecordsTest, ATrajectoryLineHoldsIdsTextLogprobsVersionsAndReward) {
  const json line = json::parse(FormatTrajectoryLine(5, batch_.groups[0].members[0], *tokenizer_));
  EXPECT_EQ(line["step"], 5);
  EXPECT_EQ(line["ticket"], 7);
  EXPECT_EQ(line["member"], 1);
  EXPECT_EQ(line["reward"], 0.5);
  EXPECT_EQ(line["versions"], (json{{1, 3, 1}, {1, 4, 3}}));
  ASSERT_EQ(line["spans"].size(), 3u);
  EXPECT_EQ(line["spans"][0]["text"], "ab");
  EXPECT_EQ(line["spans"][0]["sampled"], false);
  EXPECT_FALSE(line["spans"][0].contains("logprobs"));
  EXPECT_EQ(line["spans"][1]["text"], "c");
  EXPECT_EQ(line["spans"][1]["ids"].size(), 2u);
  EXPECT_EQ(line["spans"][1]["logprobs"], (json{-0.5, -0.25}));
}

TEST_F(TrajectoryRecordsTest, AnUnscoredEpisodeHasNoReward) {
  batch_.groups[0].members[0].mutable_score()->set_status(v1::Score::UNSCORED);
  batch_.groups[0].members[0].mutable_score()->clear_reward();
  EXPECT_FALSE(json::parse(FormatTrajectoryLine(5, batch_.groups[0].members[0], *tokenizer_)).contains("reward"));
}

TEST_F(TrajectoryRecordsTest, AFailedStepShowsWhatWasNotFinite) {
  TrainBatch batch;
  TrainSequence sequence;
  sequence.ticket = 7;
  sequence.member = 1;
  sequence.end = 2;
  sequence.advantage = std::numeric_limits<double>::infinity();
  batch.sequences = {sequence};
  const std::vector<double> recomputed = {-1.5, std::numeric_limits<double>::quiet_NaN()};
  std::istringstream lines(FormatFailedStep(9, batch_, batch, recomputed, *tokenizer_));
  std::string text;
  ASSERT_TRUE(std::getline(lines, text));
  const json line = json::parse(text);
  EXPECT_EQ(line["step"], 9);
  EXPECT_EQ(line["advantage"], "Infinity");
  EXPECT_EQ(line["recomputed_logprobs"], (json{-1.5, "NaN"}));
  EXPECT_FALSE(std::getline(lines, text));
}

}  // namespace
}  // namespace leeway
