#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launch/config/config.h"
#include "launch/report/metrics_file.h"
#include "launch/report/run_plots.h"
#include "launch/report/run_report.h"
#include "launch/report/tensorboard_writer.h"
#include "launch/report/trace.h"
#include "launch/report/trajectory_view.h"

namespace leeway {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class ReportTest : public ::testing::Test {
 protected:
  ReportTest() {
    char name[] = "/tmp/leeway_report_XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~ReportTest() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& name, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(directory_ + "/" + name).parent_path());
    std::ofstream(directory_ + "/" + name) << content;
  }

  // Two steps of a run with budget 2.
  void WriteRun() {
    Config config;
    config.Set("task.name", std::string("sort5"), Place{});
    config.Set("run.name", std::string("hand"), Place{});
    config.Set("trainer.steps", int64_t{2}, Place{});
    Write("config.toml", config.ToToml());
    Write(
        "metrics.jsonl",
        R"({"step":0,"version":1,"lineage":1,"time/wall_s":1,"eval/reward":0.1,"eval/episodes":4,"ledger/issued_total":0})"
        "\n"
        R"({"step":1,"version":2,"lineage":1,"time/wall_s":3,"time/step_s":2,"reward/mean":0.25,"staleness/max":0,"staleness/histogram":[10],"tokens/trained":10,)"
        R"("ledger/issued_total":4,"ledger/trained":2,"ledger/ready":2,"wait/trainer/waiting_for_groups_s":0.5,"busy/trainer/train_s":1.5,"cpu/trainer_s":1.25})"
        "\n"
        R"({"step":2,"version":3,"lineage":1,"time/wall_s":5,"time/step_s":2,"reward/mean":0.75,"staleness/max":2,"staleness/histogram":[0,0,30],"tokens/trained":30,)"
        R"("ledger/issued_total":4,"ledger/trained":4,"busy/trainer/train_s":2,"cpu/trainer_s":1.75,"eval/reward":0.6,"eval/episodes":4})"
        "\n");
    Write(
        "logs/samples.jsonl",
        R"({"wall_s":1.0,"processes":{"rollout-0":{"wall_s":1.0,"states":{"busy:generate":0.4,"wait:queue_full":0.6},"cpu":{"total":0.4}}}})"
        "\n"
        R"({"wall_s":2.0,"processes":{"rollout-0":{"wall_s":2.0,"states":{"busy:generate":1.0,"wait:queue_full":0.98},"cpu":{"total":1.0}}}})"
        "\n");
  }

  std::string directory_;
};

TEST_F(ReportTest, ReadsARunFromItsFiles) {
  WriteRun();
  const absl::StatusOr<RunReport> report = ReadRunReport(directory_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->name, "hand");
  EXPECT_EQ(report->steps, 2);
  EXPECT_EQ(report->budget, 2);
  EXPECT_EQ(report->lag_max, 2);
  EXPECT_DOUBLE_EQ(report->lag_mean, 60.0 / 40.0);
  EXPECT_THAT(report->lag_histogram, ElementsAre(10, 0, 30));
  EXPECT_DOUBLE_EQ(*report->best_evaluation(), 0.6);
  EXPECT_DOUBLE_EQ(*report->first_reward, 0.25);
  EXPECT_DOUBLE_EQ(*report->last_reward, 0.75);
  EXPECT_DOUBLE_EQ(report->state_seconds.at("trainer").at("busy:train"), 3.5);
  EXPECT_DOUBLE_EQ(report->cpu_seconds.at("trainer").at("total"), 3.0);
  EXPECT_TRUE(report->conservation_holds) << report->conservation_breach;
  // Trainer: 4 of 4 s covered. Rollout: 1.98 of 2 s.
  EXPECT_THAT(report->unaccounted_share.at("trainer"), DoubleNear(0, 1e-12));
  EXPECT_THAT(report->unaccounted_share.at("rollout"), DoubleNear(0.01, 1e-12));
  const auto json = ReportJson(*report);
  EXPECT_EQ(json["conservation_holds"], true);
  EXPECT_EQ(json["staleness"]["max"], 2);
  EXPECT_EQ(json["evaluations"].size(), 2);
  const std::string text = ReportText(*report);
  EXPECT_THAT(text, HasSubstr("2 of 2 steps in 5 s, 40 tokens trained"));
  EXPECT_THAT(text, HasSubstr("best 0.600, last 0.600"));
  EXPECT_THAT(text, HasSubstr("conservation holds in every line"));
}

TEST_F(ReportTest, BrokenConservationIsNamed) {
  std::vector<MetricsLine> lines = {*ParseMetricsLine(R"({"step":1,"ledger/issued_total":3,"ledger/ready":2})"),
                                    *ParseMetricsLine(R"({"step":1,"ledger/issued_total":2,"ledger/ready":2})")};
  const RunReport report = ReportOfLines(lines, {});
  EXPECT_FALSE(report.conservation_holds);
  EXPECT_EQ(report.conservation_breach, "step 1: issued_total is 3, the states sum to 2");
}

TEST_F(ReportTest, ASummaryOfForeignShapeIsNoSummary) {
  WriteRun();
  Write("summary.json", R"({"is_complete": "yes", "total_steps": [], "reason": 3})");
  const absl::StatusOr<RunReport> report = ReadRunReport(directory_);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->summary.is_null());
  EXPECT_THAT(ReportText(*report), Not(HasSubstr("ended:")));
}

TEST_F(ReportTest, StepsThatWereNotFiniteAreSaid) {
  const RunReport report = ReportOfLines({*ParseMetricsLine(R"({"step":1,"optimizer/skipped_steps":1})"),
                                          *ParseMetricsLine(R"({"step":2,"optimizer/skipped_steps":2})")},
                                         {});
  EXPECT_EQ(report.skipped_steps, 2);
  EXPECT_EQ(ReportJson(report)["skipped_steps"], 2);
  EXPECT_THAT(ReportText(report), HasSubstr("2 steps were not finite and changed no weight"));
}

TEST_F(ReportTest, FolderWithoutARunIsAnError) { EXPECT_TRUE(absl::IsNotFound(ReadRunReport(directory_).status())); }

TEST_F(ReportTest, TailFollowsAppendsAndCuts) {
  MetricsTail tail(directory_ + "/metrics.jsonl");
  EXPECT_THAT(tail.Poll().lines, IsEmpty());
  Write("metrics.jsonl", "{\"step\":1}\n{\"step\":2}\n{\"st");
  MetricsTail::News news = tail.Poll();
  EXPECT_FALSE(news.restarted);
  ASSERT_THAT(news.lines, SizeIs(2));
  EXPECT_THAT(tail.Poll().lines, IsEmpty());
  Write("metrics.jsonl", "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  news = tail.Poll();
  EXPECT_FALSE(news.restarted);
  ASSERT_THAT(news.lines, SizeIs(1));
  EXPECT_EQ(news.lines[0].step(), 3);
  // Cut back to step 1, and grown past the old end by other lines.
  Write("metrics.jsonl", "{\"step\":1}\n{\"step\":2,\"lineage\":2}\n{\"step\":3,\"lineage\":2}\n");
  news = tail.Poll();
  EXPECT_TRUE(news.restarted);
  EXPECT_THAT(news.lines, SizeIs(3));
}

TEST_F(ReportTest, TornLinesAreNoLines) {
  EXPECT_FALSE(ParseMetricsLine("{\"step\":1,").has_value());
  EXPECT_FALSE(ParseMetricsLine("[1]").has_value());
  const auto line = ParseMetricsLine(R"({"step":4,"policy/loss":null,"staleness/histogram":[1,2]})");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->step(), 4);
  EXPECT_FALSE(line->Get("policy/loss").has_value());
  EXPECT_THAT(line->lag_histogram, ElementsAre(1, 2));
}

// Check value of CRC-32C from its definition (RFC 3720, appendix B.4): 32 zero bytes and "123456789".
TEST(TensorboardTest, ChecksumsAreCastagnolis) {
  EXPECT_EQ(internal::Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(internal::Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  // rotate right by 15, plus 0xa282ead8: (0xE3069283 >> 15 | 0xE3069283 << 17) = 0x2507C60D; sum = 0xC78AB0E5.
  EXPECT_EQ(internal::MaskedCrc32c("123456789"), 0xC78AB0E5u);
}

TEST(TensorboardTest, RecordsAreFramed) {
  const std::string record = internal::TfRecord("abc");
  ASSERT_EQ(record.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
}

TEST_F(ReportTest, EventFileStartsWithItsVersionAndHoldsScalars) {
  TensorboardWriter writer(RealFileSystem(), directory_ + "/tensorboard", 1700000000);
  ASSERT_TRUE(writer.Write(3, 1700000001.5, {{"reward/mean", 0.5}}).ok());
  const absl::StatusOr<std::string> bytes = RealFileSystem()->ReadFile(writer.path());
  ASSERT_TRUE(bytes.ok());
  EXPECT_THAT(*bytes, HasSubstr("brain.Event:2"));
  // Summary.Value: tag (field 1, 11 bytes), simple_value (field 2, float 0.5 = 0x3f000000).
  EXPECT_THAT(*bytes, HasSubstr(std::string("\x0a\x0breward/mean\x15\x00\x00\x00\x3f", 18)));
}

TEST_F(ReportTest, TraceHasSpansOfEveryProcess) {
  WriteRun();
  const absl::StatusOr<RunReport> report = ReadRunReport(directory_);
  ASSERT_TRUE(report.ok());
  const auto trace = nlohmann::json::parse(MakeTrace(report->lines, report->samples));
  double trained = 0;
  double generated = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["ts"].get<double>(), 0);
    if (event["name"] == "train") trained += event["dur"].get<double>();
    if (event["name"] == "busy:generate") generated += event["dur"].get<double>();
  }
  EXPECT_DOUBLE_EQ(trained, 3.5e6);
  EXPECT_DOUBLE_EQ(generated, 1.0e6);
}

TEST(PlotTest, TicksAreRoundAndCoverTheRange) {
  EXPECT_THAT(RoundTicks(0, 1, 5), ElementsAre(0, DoubleNear(0.2, 1e-12), DoubleNear(0.4, 1e-12),
                                               DoubleNear(0.6, 1e-12), DoubleNear(0.8, 1e-12), 1));
  EXPECT_THAT(RoundTicks(3, 97, 4), ElementsAre(0, 50, 100));
  EXPECT_THAT(RoundTicks(2, 2, 4), ElementsAre(2));
}

TEST_F(ReportTest, EveryPlotIsAnSvg) {
  WriteRun();
  const absl::StatusOr<RunReport> report = ReadRunReport(directory_);
  ASSERT_TRUE(report.ok());
  for (const char* name : {"reward", "staleness", "waits", "reward_vs_lag"}) {
    const absl::StatusOr<Plot> plot = MakePlot(name, {*report, *report});
    ASSERT_TRUE(plot.ok()) << name;
    const std::string svg = DrawSvg(*plot);
    EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
    EXPECT_THAT(svg, HasSubstr("</svg>"));
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
  }
  EXPECT_THAT(DrawSvg(*MakePlot("reward_vs_lag", {*report})),
              AllOf(HasSubstr("1.50 (budget 2)"), HasSubstr("after 1/4 of the steps"), HasSubstr("at the end")));
  EXPECT_THAT(std::string(MakePlot("x", {}).status().message()), HasSubstr("reward_vs_lag"));
  // No data at all still draws axes.
  EXPECT_THAT(DrawSvg(Plot{"t", "x", "y", {}, false, {}}), Not(HasSubstr("nan")));
}

TEST_F(ReportTest, ShowsTrajectoriesAndNamesTheStepsThatHaveSome) {
  Write(
      "trajectories/step-50.jsonl",
      R"({"step":50,"ticket":7,"issue":1,"member":2,"attempt":1,"reward":0.6,"turns":1,"versions":[[1,49,2]],)"
      R"("spans":[{"sampled":false,"text":"52413\n","ids":[1]},{"sampled":true,"text":"12","ids":[3,4],"logprobs":[-0.5,-1.25]}]})"
      "\n");
  const absl::StatusOr<std::string> text = ShowTrajectories(directory_, 50);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("ticket 7 member 2 (issue 1, attempt 1)  reward 0.600"));
  EXPECT_THAT(*text, HasSubstr("environment: \"52413\\n\""));
  EXPECT_THAT(*text, HasSubstr("-0.50 -1.25"));
  EXPECT_THAT(std::string(ShowTrajectories(directory_, 51).status().message()), HasSubstr("of these they were: 50"));
}

}  // namespace
}  // namespace leeway
