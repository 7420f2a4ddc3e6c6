#include "trainer/records/process_times.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

v1::ProcessReport Report(double generate, double waiting, double cpu) {
  v1::ProcessReport report;
  (*report.mutable_state_seconds())["busy:generate"] = generate;
  (*report.mutable_state_seconds())["wait:queue_full"] = waiting;
  (*report.mutable_cpu_seconds())["total"] = cpu;
  (*report.mutable_cpu_seconds())["rpc"] = cpu / 4;
  report.set_wall_seconds(generate + waiting);
  return report;
}

v1::StatusResponse Status(std::initializer_list<std::pair<int, v1::ProcessReport>> workers) {
  v1::StatusResponse status;
  for (const auto& [epoch, report] : workers) {
    v1::WorkerStatus* worker = status.add_workers();
    worker->set_name(std::string("rollout-") + std::to_string(status.workers_size()));
    worker->mutable_identity()->set_epoch(epoch);
    *worker->mutable_report() = report;
  }
  return status;
}

TEST(ProcessTimesTest, IncrementsAreSummedOverTheProcessesOfARole) {
  ProcessTimes times;
  times.AddAll(Status({{1, Report(1, 2, 4)}, {1, Report(10, 0, 8)}}));
  EXPECT_THAT(times.Take(), ElementsAre(Pair("busy/rollout/generate_s", 11), Pair("cpu/rollout/rpc_s", 3),
                                        Pair("cpu/rollout_s", 12), Pair("wait/rollout/queue_full_s", 2)));
  times.AddAll(Status({{1, Report(1.5, 2, 4)}, {1, Report(12, 1, 8)}}));
  EXPECT_THAT(times.Take(), ElementsAre(Pair("busy/rollout/generate_s", 2.5), Pair("cpu/rollout/rpc_s", 0),
                                        Pair("cpu/rollout_s", 0), Pair("wait/rollout/queue_full_s", 1)));
  EXPECT_THAT(times.Take(), IsEmpty());
}

TEST(ProcessTimesTest, AReplacedProcessCountsFromItsStart) {
  ProcessTimes times;
  times.AddAll(Status({{1, Report(5, 0, 2)}}));
  times.Take();
  times.AddAll(Status({{2, Report(1, 0, 3)}}));  // less wall time
  EXPECT_EQ(times.Take()["cpu/rollout_s"], 3);
  times.AddAll(Status({{3, Report(6, 0, 1)}}));  // less CPU time
  EXPECT_EQ(times.Take()["busy/rollout/generate_s"], 6);
}

// A worker that was fenced: the same process, another epoch, and no report until its next heartbeat.
TEST(ProcessTimesTest, AWorkerThatRegistersAgainGoesOnCounting) {
  ProcessTimes times;
  times.AddAll(Status({{1, Report(5, 1, 2)}}));
  times.Take();
  times.AddAll(Status({{2, v1::ProcessReport()}}));
  EXPECT_THAT(times.Take(), IsEmpty());
  times.AddAll(Status({{2, Report(6, 1.5, 2.5)}}));
  std::map<std::string, double> values = times.Take();
  EXPECT_EQ(values["busy/rollout/generate_s"], 1);
  EXPECT_EQ(values["wait/rollout/queue_full_s"], 0.5);
  EXPECT_EQ(values["cpu/rollout_s"], 0.5);
}

TEST(ProcessTimesTest, AClassThatFallsOrIsMissingForAWhileIsNotCountedTwice) {
  ProcessTimes times;
  times.AddAll(Status({{1, Report(5, 0, 8)}}));
  EXPECT_EQ(times.Take()["cpu/rollout/rpc_s"], 2);
  v1::ProcessReport report = Report(6, 0, 9);
  (*report.mutable_cpu_seconds())["rpc"] = 1.5;
  times.AddAll(Status({{1, report}}));
  std::map<std::string, double> values = times.Take();
  EXPECT_EQ(values["cpu/rollout/rpc_s"], 0);
  EXPECT_EQ(values["cpu/rollout_s"], 1);
  report = Report(7, 0, 10);
  report.mutable_cpu_seconds()->erase("rpc");
  times.AddAll(Status({{1, report}}));
  times.AddAll(Status({{1, Report(8, 0, 11)}}));
  EXPECT_EQ(times.Take()["cpu/rollout/rpc_s"], 11.0 / 4 - 1.5);
}

TEST(ProcessTimesTest, AProcessWithoutAReportAtTheStartIsSkippedWhenItHasOne) {
  ProcessTimes times;
  times.SkipAll(Status({{2, v1::ProcessReport()}}));
  times.AddAll(Status({{2, Report(100, 0, 50)}}));
  EXPECT_THAT(times.Take(), IsEmpty());
  times.AddAll(Status({{2, Report(101, 0, 50)}}));
  EXPECT_EQ(times.Take()["busy/rollout/generate_s"], 1);
}

TEST(ProcessTimesTest, WhatWasSkippedDoesNotCount) {
  ProcessTimes times;
  times.SkipAll(Status({{1, Report(100, 0, 50)}}));
  times.AddAll(Status({{1, Report(101, 0, 50)}}));
  times.Add("trainer", "trainer", Report(2, 1, 3));
  std::map<std::string, double> values = times.Take();
  EXPECT_EQ(values["busy/rollout/generate_s"], 1);
  EXPECT_EQ(values["busy/trainer/generate_s"], 2);
  EXPECT_EQ(values["wait/trainer/queue_full_s"], 1);
}

}  // namespace
}  // namespace leeway
