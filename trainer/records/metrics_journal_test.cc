#include "trainer/records/metrics_journal.h"

#include <sstream>

#include "base/fake_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "trainer/temporary_directory_test.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MetricsJournalTest : public ::testing::Test {
 protected:
  MetricsJournal Journal() { return MetricsJournal(files_, path_, absl::Seconds(10), &clock_); }
  static std::string Line(uint64_t step) { return nlohmann::json{{"step", step}}.dump(); }
  static v1::StatusResponse Evaluation(uint64_t version, double reward, bool complete) {
    v1::StatusResponse status;
    v1::EvaluationResult* result = status.add_evaluations();
    result->mutable_weights()->set_version(version);
    result->set_episodes(4);
    result->set_reward_mean(reward);
    result->set_complete(complete);
    return status;
  }
  // Steps in the file; those with an evaluation have its reward.
  std::vector<std::pair<uint64_t, double>> Written() {
    std::vector<std::pair<uint64_t, double>> lines;
    if (!files_->Exists(path_)) return lines;
    std::istringstream text(*files_->ReadFile(path_));
    for (std::string line; std::getline(text, line);) {
      const nlohmann::json value = nlohmann::json::parse(line);
      lines.emplace_back(value["step"], value.value("eval/reward", -1.0));
    }
    return lines;
  }

  FileSystem* const files_ = RealFileSystem();
  FakeClock clock_;
  const TemporaryDirectory directory_;
  const std::string path_ = JoinPath(directory_.path(), "metrics.jsonl");
};

TEST_F(MetricsJournalTest, LinesBehindAnEvaluatedOneWaitForIt) {
  MetricsJournal journal = Journal();
  ASSERT_TRUE(journal.Open(0, {}, false).ok());
  journal.Add(1, 2, Line(1), false);
  journal.Add(2, 3, Line(2), true);
  journal.Add(3, 4, Line(3), false);
  ASSERT_TRUE(journal.Flush().ok());
  EXPECT_THAT(Written(), ElementsAre(std::pair(1, -1.0)));
  EXPECT_EQ(journal.held().size(), 2u);
  journal.OnEvaluations(Evaluation(3, 0.25, /*complete=*/false));
  ASSERT_TRUE(journal.Flush().ok());
  EXPECT_EQ(journal.held().size(), 2u);
  journal.OnEvaluations(Evaluation(3, 0.5, /*complete=*/true));
  journal.OnEvaluations(Evaluation(3, 0.0, /*complete=*/false));  // an older answer that overtook
  ASSERT_TRUE(journal.Flush().ok());
  EXPECT_THAT(Written(), ElementsAre(std::pair(1, -1.0), std::pair(2, 0.5), std::pair(3, -1.0)));
  EXPECT_FALSE(journal.is_waiting());
}

TEST_F(MetricsJournalTest, AVersionThatTheQueueDoesNotListIsNotWaitedFor) {
  MetricsJournal journal = Journal();
  ASSERT_TRUE(journal.Open(2, {{1, 2, true, Line(1)}, {2, 3, true, Line(2)}}, true).ok());
  journal.OnEvaluations(Evaluation(3, 0, /*complete=*/false));
  ASSERT_TRUE(journal.Flush().ok());
  EXPECT_THAT(Written(), ElementsAre(std::pair(1, -1.0)));
  journal.OnEvaluations(Evaluation(3, 0.5, /*complete=*/true));
  ASSERT_TRUE(journal.Flush().ok());
  EXPECT_THAT(Written(), ElementsAre(std::pair(1, -1.0), std::pair(2, 0.5)));
}

TEST_F(MetricsJournalTest, AResultBehindALineThatWaitsIsHeldWithItsLine) {
  MetricsJournal journal = Journal();
  ASSERT_TRUE(journal.Open(0, {}, false).ok());
  journal.Add(1, 2, Line(1), true);
  journal.Add(2, 3, Line(2), true);
  v1::StatusResponse status = Evaluation(2, 0, /*complete=*/false);
  status.MergeFrom(Evaluation(3, 0.5, /*complete=*/true));
  journal.OnEvaluations(status);
  const std::vector<HeldLine> held = journal.held();  // the checkpoint of step 2
  // A new queue knows nothing of either.
  MetricsJournal next = Journal();
  ASSERT_TRUE(next.Open(2, held, true).ok());
  next.OnEvaluations(v1::StatusResponse());
  ASSERT_TRUE(next.Flush().ok());
  EXPECT_THAT(Written(), ElementsAre(std::pair(1, -1.0), std::pair(2, 0.5)));
}

TEST_F(MetricsJournalTest, TheWaitForAnEvaluationIsBounded) {
  MetricsJournal journal = Journal();
  ASSERT_TRUE(journal.Open(0, {}, false).ok());
  journal.Add(1, 2, Line(1), true);
  clock_.Advance(absl::Seconds(9));
  ASSERT_TRUE(journal.Flush().ok());
  EXPECT_THAT(Written(), IsEmpty());
  clock_.Advance(absl::Seconds(2));
  ASSERT_TRUE(journal.Flush().ok());
  EXPECT_THAT(Written(), ElementsAre(std::pair(1, -1.0)));
}

TEST_F(MetricsJournalTest, AResumeCutsTheFileBackAndTakesUpWhatWasHeld) {
  std::vector<HeldLine> held;
  {
    MetricsJournal journal = Journal();
    ASSERT_TRUE(journal.Open(0, {}, false).ok());
    for (uint64_t step = 1; step <= 3; ++step) journal.Add(step, step + 1, Line(step), step == 3);
    ASSERT_TRUE(journal.Flush().ok());
    held = journal.held();  // the checkpoint of step 3
    journal.OnEvaluations(Evaluation(4, 0.5, true));
    for (uint64_t step = 4; step <= 6; ++step) journal.Add(step, step + 1, Line(step), step == 5);
    ASSERT_TRUE(journal.Flush().ok());
    EXPECT_EQ(Written().size(), 4u);
  }
  ASSERT_EQ(held.size(), 1u);
  // Restart from step 3: step 3 was written meanwhile, step 4 is undone.
  MetricsJournal journal = Journal();
  ASSERT_TRUE(journal.Open(3, held, true).ok());
  EXPECT_THAT(Written(), ElementsAre(std::pair(1, -1.0), std::pair(2, -1.0), std::pair(3, 0.5)));
  EXPECT_FALSE(journal.is_waiting());
  EXPECT_TRUE(journal.Contains(3));
  EXPECT_FALSE(journal.Contains(4));
}

TEST_F(MetricsJournalTest, AHeldLineThatIsNotInTheFileIsHeldAgain) {
  ASSERT_TRUE(files_->AppendToFile(path_, Line(1) + "\n" + Line(2) + "\n{\"step\":3,\"torn").ok());
  MetricsJournal journal = Journal();
  ASSERT_TRUE(journal.Open(4, {{2, 3, true, Line(2)}, {3, 4, true, Line(3)}, {4, 5, false, Line(4)}}, true).ok());
  EXPECT_EQ(journal.held().size(), 2u);
  journal.OnEvaluations(Evaluation(4, 0.75, true));
  ASSERT_TRUE(journal.Flush().ok());
  EXPECT_THAT(Written(), ElementsAre(std::pair(1, -1.0), std::pair(2, -1.0), std::pair(3, 0.75), std::pair(4, -1.0)));
}

TEST_F(MetricsJournalTest, WithoutACheckpointTheFileStartsAnew) {
  ASSERT_TRUE(files_->AppendToFile(path_, Line(0) + "\n" + Line(1) + "\n").ok());
  MetricsJournal journal = Journal();
  ASSERT_TRUE(journal.Open(0, {}, false).ok());
  EXPECT_THAT(Written(), IsEmpty());
  EXPECT_FALSE(journal.Contains(0));
}

}  // namespace
}  // namespace leeway
