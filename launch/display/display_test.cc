#include <cstdio>
#include <fstream>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launch/display/job_view.h"
#include "launch/display/log_tail.h"
#include "launch/display/status_block.h"
#include "launch/run/summary.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

MonotonicTime At(double seconds) { return MonotonicTime{absl::Seconds(seconds)}; }

MetricsLine Line(int64_t step, double reward) {
  MetricsLine line;
  line.values = {{"step", static_cast<double>(step)},
                 {"reward/mean", reward},
                 {"staleness/mean", 1.5},
                 {"staleness/max", 2},
                 {"time/step_s", 2},
                 {"time/wall_s", 2.0 * static_cast<double>(step)},
                 {"throughput/train_tokens_per_s", 12345},
                 {"busy/trainer/train_s", 1.5},
                 {"wait/trainer/waiting_for_groups_s", 0.5}};
  return line;
}

v1::StatusResponse Status() {
  v1::StatusResponse status;
  status.mutable_committed()->set_lineage(1);
  status.mutable_committed()->set_version(3);
  status.set_groups(12);
  status.mutable_counts()->set_ready(5);
  (*status.mutable_episode_failures())["step_timeout"] = 2;
  v1::OpenWait* wait = status.add_waits();
  wait->set_who("trainer");
  wait->set_cause("waiting_for_groups");
  wait->set_seconds(130.5);
  wait->set_detail("ticket 17 running on rollout-1 for 128.0 s");
  return status;
}

TEST(JobViewTest, FollowsStepsRatesAndEvaluations) {
  JobView view(100, 2, 8, At(0));
  EXPECT_EQ(view.Phase(), "starting: waiting for the queue");
  // All lines arrive at once, as at a resume: the rate is the run's own, 2 s a step.
  for (int step = 1; step <= 10; ++step) view.OnMetrics(Line(step, 0.1 * step), At(1));
  MetricsLine evaluated = Line(11, 1.1);
  evaluated.values["eval/reward"] = 0.7;
  view.OnMetrics(evaluated, At(11));
  EXPECT_EQ(view.step(), 11);
  EXPECT_DOUBLE_EQ(view.steps_per_second(), 0.5);
  EXPECT_EQ(*view.time_left(), absl::Seconds(178));
  EXPECT_NEAR(*view.recent_reward(), 0.65, 1e-12);  // steps 2 to 11
  EXPECT_EQ(view.best_evaluation(), 0.7);
}

TEST(JobViewTest, ProgressIsOnlyWhatIsNew) {
  JobView view(100, 1, 8, At(0));
  view.OnMetrics(Line(5, 0), At(1));
  EXPECT_TRUE(view.TakeProgress());
  EXPECT_FALSE(view.TakeProgress());
  // A restored trainer repeats steps: no progress for the restart counter until it is past the old best.
  view.OnMetrics(Line(4, 0), At(2));
  view.OnMetrics(Line(5, 0), At(3));
  EXPECT_FALSE(view.TakeProgress());
  view.OnMetrics(Line(6, 0), At(4));
  EXPECT_TRUE(view.TakeProgress());
}

TEST(JobViewTest, CompletedTrajectoriesCountAsMovementAndSilenceDoesNot) {
  JobView view(100, 1, 8, At(0));
  v1::StatusResponse status = Status();
  view.OnStatus(status, At(10));
  EXPECT_EQ(view.since_progress(At(12)), absl::Seconds(2));
  view.OnStatus(status, At(20));
  EXPECT_EQ(view.since_progress(At(20)), absl::Seconds(10));
  status.set_generated_tokens(5);
  view.OnStatus(status, At(30));
  EXPECT_EQ(view.since_progress(At(30)), absl::ZeroDuration());
}

TEST(JobViewTest, TurnsOfLongEpisodesCountAsMovementUntilABatchHasFailed) {
  JobView view(100, 1, 8, At(0));
  v1::StatusResponse status = Status();
  double* turns = &(*status.add_workers()->mutable_report()->mutable_gauges())["rollout/turns"];
  uint64_t* failures = &(*status.mutable_episode_failures())["step_error"];
  view.OnStatus(status, At(10));
  *turns = 3;
  *failures = 7;
  view.OnStatus(status, At(20));
  EXPECT_EQ(view.since_progress(At(20)), absl::ZeroDuration());
  *turns = 4;
  *failures = 8 + 2;  // 8 since the last trajectory that was completed, with the 2 of Status()
  view.OnStatus(status, At(30));
  EXPECT_EQ(view.since_progress(At(30)), absl::Seconds(10));
  EXPECT_THAT(view.DescribeWaits(),
              HasSubstr("episodes failed and none was completed (in all: step_error 10 step_timeout 2)"));
  // One that completes forgives.
  status.set_generated_tokens(5);
  view.OnStatus(status, At(40));
  *turns = 5;
  view.OnStatus(status, At(50));
  EXPECT_EQ(view.since_progress(At(50)), absl::ZeroDuration());
}

TEST(JobViewTest, NamesWhoWaitsForWhom) {
  JobView view(100, 1, 8, At(0));
  EXPECT_EQ(view.DescribeWaits(), "the queue does not answer");
  view.OnStatus(Status(), At(1));
  EXPECT_EQ(view.DescribeWaits(),
            "trainer waits (waiting_for_groups) for 130.5 s: ticket 17 running on rollout-1 for 128.0 s");
}

TEST(JobViewTest, SaysWhatTheTrainerDoesBeforeTheFirstStepAndWhoIsStillThereAtTheEnd) {
  JobView view(100, 2, 8, At(0));
  v1::StatusResponse status;
  status.add_workers()->set_alive(true);
  view.OnStatus(status, At(1));
  view.set_trainer_note("warm start: 50 of 300 steps");
  EXPECT_EQ(
      view.Phase(),
      "starting: 1 of 2 rollout workers registered, waiting for the trainer's first weights (it says: warm start: "
      "50 of 300 steps)");
  EXPECT_THAT(view.DescribeWaits(), HasSubstr("the trainer waits for nothing at the queue"));
  view.OnMetrics(Line(1, 0), At(2));
  EXPECT_EQ(view.Phase(), "");
  view.set_ending({"trainer-0", "queue-0"});
  EXPECT_EQ(view.Phase(), "ending: waiting for trainer-0, queue-0");
  EXPECT_EQ(StatusLine(view, At(3)), "[3 s] ending: waiting for trainer-0, queue-0");
}

TEST(LogTailTest, FollowsWholeLinesOfThisStart) {
  const std::string path = ::testing::TempDir() + "/log_tail_test.log";
  std::ofstream(path) << "of an earlier start\n";
  LogTail tail(path);
  EXPECT_THAT(tail.Poll(), IsEmpty());
  std::ofstream(path, std::ios::app) << "one\ntw";
  EXPECT_THAT(tail.Poll(), ElementsAre("one"));
  EXPECT_THAT(tail.Poll(), IsEmpty());
  std::ofstream(path, std::ios::app) << "o\n\nthree\n";
  EXPECT_THAT(tail.Poll(), ElementsAre("two", "", "three"));
  std::remove(path.c_str());
  EXPECT_THAT(LogTail(path).Poll(), IsEmpty());
  EXPECT_THAT(LevelAndText("2026-01-31 12:00:00.000 trainer-0 error: disk info: full"),
              Pair("error", "disk info: full"));
  EXPECT_THAT(LevelAndText("2026-01-31 12:00:00.000 rollout-12 info: no error: fine"), Pair("info", "no error: fine"));
  EXPECT_THAT(LevelAndText("terminate called"), Pair("", "terminate called"));
}

TEST(StatusBlockTest, StepsThatAreNotFiniteShow) {
  JobView view(100, 2, 8, At(0));
  MetricsLine line = Line(50, 0.4);
  line.values["optimizer/skipped_steps"] = 3;
  view.OnMetrics(line, At(50));
  view.OnStatus(Status(), At(50));
  EXPECT_THAT(StatusLine(view, At(60)), HasSubstr("NOT FINITE 3 steps"));
  EXPECT_THAT(fmt::format("{}", fmt::join(StatusBlock(view, At(60), 200), "\n")), HasSubstr("NOT FINITE 3 steps"));
}

TEST(StatusBlockTest, AStoreThatRefusesPushesShowsWithItsReason) {
  for (const int64_t step : {0, 7}) {  // also before the first one
    JobView view(200, 1, 8, At(0));
    if (step > 0) view.OnMetrics(Line(step, 0), At(1));
    v1::StatusResponse status = Status();
    view.OnStatus(status, At(2));
    EXPECT_THAT(StatusLine(view, At(3)), Not(HasSubstr("REFUSED")));
    v1::OpenWait* wait = status.add_waits();
    wait->set_who("queue");
    wait->set_cause("store_refuses");
    wait->set_detail("disk full: 0 bytes are free in /r/queue");
    view.OnStatus(status, At(4));
    const std::string words = "PUSHES REFUSED by the queue's store: disk full: 0 bytes are free in /r/queue";
    EXPECT_THAT(StatusLine(view, At(5)), HasSubstr(words));
    EXPECT_THAT(StatusBlock(view, At(5), 200), testing::Contains(words));
  }
}

TEST(StatusBlockTest, ShowsWhatUsersLookFor) {
  JobView view(100, 2, 8, At(0));
  view.OnMetrics(Line(50, 0.4), At(50));
  view.OnStatus(Status(), At(50));
  const std::vector<std::string> rows = StatusBlock(view, At(60), 200);
  std::string text;
  for (const std::string& row : rows) text += row + "\n";
  for (const char* part : {"50/100", "1:00 elapsed", "reward   0.400", "mean 1.50, max 2", "train 12.3k",
                           "waiting_for_groups 25 %", "12 groups", "failures 2 (step_timeout 2)", "restarts 0"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  for (const std::string& row : StatusBlock(view, At(60), 20)) EXPECT_LE(row.size(), 20u * 3);
  const std::string line = StatusLine(view, At(60));
  EXPECT_THAT(line, HasSubstr("step 50/100  reward 0.400"));
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(StatusBlockTest, FormatsSpansAndCounts) {
  EXPECT_EQ(FormatSpan(absl::Seconds(59)), "59 s");
  EXPECT_EQ(FormatSpan(absl::Seconds(245)), "4:05");
  EXPECT_EQ(FormatSpan(absl::Seconds(3723)), "1:02:03");
  EXPECT_EQ(FormatCount(1234), "1234");
  EXPECT_EQ(FormatCount(12345), "12.3k");
  EXPECT_EQ(FormatCount(4560000), "4.56M");
}

TEST(SummaryTest, SaysHowItEndedAndWhereItLies) {
  MetricsLine line = Line(100, 0.5);
  line.values["eval/reward"] = 0.95;
  line.values["tokens/trained"] = 1000;
  line.values["time/wall_s"] = 10;
  RunReport report = ReportOfLines({line}, {});
  report.directory = "/runs/x";
  report.total_steps = 100;
  JobEnd end;
  end.code = ExitCode::kDone;
  end.reason = "training is complete";
  end.cpu_seconds = {{"rollout-0", 2}, {"rollout-1", 3}, {"queue-0", 0.5}};
  end.restarts = 1;
  end.wall_s = 10;
  const auto json = SummaryJson(report, end);
  EXPECT_EQ(json["is_complete"], true);
  EXPECT_EQ(json["cpu_seconds"]["rollout"], 5.0);
  EXPECT_EQ(json["train_tokens_per_s"], 100.0);
  EXPECT_EQ(json["eval_reward_final"], 0.95);
  EXPECT_EQ(json["waits_s"]["trainer"]["waiting_for_groups"], 0.5);
  const std::string text = SummaryText(report, end);
  for (const char* part :
       {"done: training is complete", "final 0.950", "rollout 5.0 s", "1 restarts", "leeway inspect /runs/x"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, HasSubstr("100 of 100 in 10 s"));
  // Of a resumed run: the whole run's time beside the steps, and since when CPU and failures count.
  end.is_resume = true;
  end.wall_s = 3;
  EXPECT_THAT(SummaryText(report, end), AllOf(HasSubstr("100 of 100 in 10 s"), HasSubstr("since resume 3 s")));
  report.skipped_steps = 4;
  EXPECT_THAT(SummaryText(report, end), HasSubstr("4 steps changed no weight"));
  end.code = ExitCode::kConfiguration;
  EXPECT_THAT(SummaryText(report, end), Not(HasSubstr("resumes the run")));
  end.code = ExitCode::kStalled;
  EXPECT_THAT(SummaryText(report, end), HasSubstr("ended with exit code 5 (stalled)"));
}

}  // namespace
}  // namespace leeway
