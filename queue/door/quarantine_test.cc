#include "queue/door/quarantine.h"

#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/fake_file_system.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "queue/fake_trajectory.h"

namespace leeway {
namespace {

class QuarantineTest : public ::testing::Test {
 protected:
  QuarantineTest() {
    char folder[] = "/tmp/leeway-quarantine-XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/quarantine.jsonl";
  }
  ~QuarantineTest() override { RealFileSystem()->RemoveAll(folder_).IgnoreError(); }

  std::vector<nlohmann::json> Lines() {
    std::vector<nlohmann::json> lines;
    for (absl::string_view line : absl::StrSplit(RealFileSystem()->ReadFile(path_).value(), '\n', absl::SkipEmpty())) {
      lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(QuarantineTest, KeepsReasonSenderAndContent) {
  v1::Trajectory trajectory = RandomTrajectory(3, 8);
  trajectory.mutable_key()->set_ticket(17);
  trajectory.set_environment_seconds(std::numeric_limits<double>::quiet_NaN());
  const std::string bytes = trajectory.SerializeAsString();
  Quarantine quarantine(RealFileSystem(), path_, 1 << 20);
  quarantine.Keep("environment_seconds: \"nan\"", "rollout-\xff", bytes);
  quarantine.Keep("malformed", "rollout-1", "\x01\x02\xff");
  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["reason"], "environment_seconds: \"nan\"");
  EXPECT_EQ(lines[0]["bytes"], bytes.size());
  EXPECT_EQ(lines[0]["trajectory"]["key"]["ticket"], "17");
  EXPECT_EQ(lines[0]["trajectory"]["environmentSeconds"], "NaN");
  EXPECT_EQ(lines[1]["from"], "rollout-1");
  EXPECT_EQ(lines[1]["base64"], "AQL/");
  EXPECT_EQ(quarantine.kept(), 2u);
  EXPECT_EQ(quarantine.dropped(), 0u);
}

TEST_F(QuarantineTest, StaysWithinItsBound) {
  const std::string bytes = FakeTrajectory(v1::Ticket(), 0, 100).SerializeAsString();
  constexpr uint64_t kBound = 20'000;
  Quarantine quarantine(RealFileSystem(), path_, kBound);
  for (int i = 0; i < 1000; ++i) quarantine.Keep("reason", "rollout-0", bytes);
  EXPECT_LE(RealFileSystem()->FileSize(path_).value(), kBound);
  EXPECT_EQ(quarantine.kept(), 1000u);
  int with_content = 0, without = 0;
  for (const nlohmann::json& line : Lines()) ++(line.contains("trajectory") ? with_content : without);
  EXPECT_GT(with_content, 5);
  EXPECT_GT(without, 1);
  EXPECT_EQ(quarantine.dropped(), 1000u - with_content);
}

TEST_F(QuarantineTest, WhatIsThereCountsAgainstTheBound) {
  RealFileSystem()->AppendToFile(path_, std::string(990, '\n')).IgnoreError();
  Quarantine quarantine(RealFileSystem(), path_, 1000);
  quarantine.Keep("reason", "rollout-0", "x");
  EXPECT_EQ(quarantine.dropped(), 1u);
  EXPECT_EQ(RealFileSystem()->FileSize(path_).value(), 990u);
}

TEST_F(QuarantineTest, ADiskThatRefusesIsCounted) {
  FaultyFileSystem full([](absl::string_view, const std::string&) { return absl::ResourceExhaustedError("disk"); });
  Quarantine quarantine(&full, path_, 1000);
  quarantine.Keep("reason", "rollout-0", "x");
  EXPECT_EQ(quarantine.kept(), 1u);
  EXPECT_EQ(quarantine.dropped(), 1u);
}

TEST_F(QuarantineTest, WithoutAPathItOnlyCounts) {
  Quarantine quarantine(RealFileSystem(), "", 1000);
  quarantine.Keep("reason", "rollout-0", "x");
  EXPECT_EQ(quarantine.kept(), 1u);
  EXPECT_EQ(quarantine.dropped(), 1u);
}

}  // namespace
}  // namespace leeway
