#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/fake_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "queue/fake_queue_client.h"
#include "queue/fake_trajectory.h"
#include "queue/history/history_fields.h"
#include "queue/history/recording_trainer_client.h"
#include "queue/history/recording_worker_client.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

class RecordingTest : public ::testing::Test {
 protected:
  RecordingTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = absl::StrCat(::testing::TempDir(), "/", test->name(), ".", getpid());
    EXPECT_TRUE(RealFileSystem()->RemoveAll(folder_).ok());
    EXPECT_TRUE(RealFileSystem()->CreateDirectory(folder_).ok());
    path_ = folder_ + "/history.jsonl";
  }
  ~RecordingTest() override { static_cast<void>(RealFileSystem()->RemoveAll(folder_)); }

  std::unique_ptr<HistoryLog> Log(const std::string& who) {
    return std::make_unique<HistoryLog>(RealFileSystem(), RealClock(), path_, who);
  }
  std::vector<Json> Lines() const { return LinesOf(path_); }
  static std::vector<Json> LinesOf(const std::string& path) {
    std::vector<Json> lines;
    const std::string text = RealFileSystem()->ReadFile(path).value_or("");
    for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) lines.push_back(Json::parse(line));
    return lines;
  }
  static std::vector<std::string> EventsOf(const std::vector<Json>& lines) {
    std::vector<std::string> events;
    for (const Json& line : lines) events.push_back(line["event"]);
    return events;
  }

  std::string folder_;
  std::string path_;
};

v1::WeightsVersion Version(uint64_t lineage, uint64_t version) {
  v1::WeightsVersion weights;
  weights.set_lineage(lineage);
  weights.set_version(version);
  return weights;
}

TEST_F(RecordingTest, LinesAreNumberedAndNameTheirProcess) {
  HistoryLog log(RealFileSystem(), RealClock(), path_, "rollout-3");
  const double before = absl::ToDoubleSeconds(RealClock()->Now().since_origin);
  log.Add("one", Json::object());
  log.Add("two", {{"text", std::string("\xff not UTF-8")}});
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["n"], 1);
  EXPECT_EQ(lines[1]["n"], 2);
  EXPECT_EQ(lines[1]["who"], "rollout-3");
  EXPECT_EQ(lines[1]["event"], "two");
  EXPECT_GE(lines[0]["t"].get<double>(), before);
  EXPECT_GE(lines[1]["t"].get<double>(), lines[0]["t"].get<double>());
}

TEST_F(RecordingTest, WorkerSaysWhatItSentAndWasTold) {
  auto fake = std::make_unique<FakeQueueWorkerClient>();
  FakeQueueWorkerClient* script = fake.get();
  script->SetCommitted(Version(2, 5), "d5");
  v1::Ticket ticket;
  ticket.set_id(7);
  ticket.set_issue(2);
  ticket.set_seed(99);
  ticket.set_member_count(4);
  ticket.add_members(3);
  *ticket.mutable_weights() = Version(2, 5);
  script->AddTicket(ticket);
  RecordingQueueWorkerClient client(std::move(fake), Log("rollout-0"));

  ASSERT_TRUE(client.Register("rollout-0", "f", absl::Seconds(1)).ok());
  ASSERT_EQ(client.AcquireTickets(4, Version(2, 5), absl::ZeroDuration())->tickets_size(), 1);
  const v1::Trajectory trajectory = FakeTrajectory(ticket, 3);
  bool is_answered = false;
  client.Push(trajectory, [&](absl::StatusOr<v1::PushAnswer> answer) {
    is_answered = true;
    EXPECT_EQ(answer->result(), v1::ACCEPTED);
    // The answer is in the file before the worker hears it.
    EXPECT_EQ(Lines().back()["event"], "pushed");
  });
  EXPECT_TRUE(is_answered);
  v1::HeartbeatRequest heartbeat;
  heartbeat.add_tickets(7);
  ASSERT_TRUE(client.Heartbeat(heartbeat, absl::Seconds(1)).ok());

  const std::vector<Json> lines = Lines();
  EXPECT_THAT(EventsOf(lines),
              ElementsAre("register", "registered", "acquire", "acquired", "push", "pushed", "heartbeat", "heard"));
  const Json id = Json::array({1, 1});
  EXPECT_EQ(lines[1]["id"], id);
  EXPECT_EQ(lines[2]["holds"], Json::array({2, 5}));
  EXPECT_EQ(
      lines[3]["tickets"],
      Json::parse(R"([{"id":7,"issue":2,"seed":99,"task_index":0,"members":[3],"version":[2,5],"evaluation":false}])"));
  EXPECT_EQ(lines[3]["committed"], Json::array({2, 5}));
  EXPECT_EQ(lines[3]["call"], lines[2]["call"]);
  EXPECT_EQ(lines[4]["key"], Json::array({7, 2, 3, 1}));
  EXPECT_EQ(lines[4]["outcome"], "COMPLETED");
  EXPECT_EQ(lines[4]["versions"], Json::parse("[[2,5,5]]"));
  EXPECT_EQ(lines[4]["digest"], DigestOf(trajectory));
  EXPECT_EQ(lines[5]["sequence"], 1);
  EXPECT_EQ(lines[5]["result"], "ACCEPTED");
  EXPECT_EQ(lines[5]["id"], id);
  EXPECT_EQ(lines[6]["tickets"], Json::array({7}));
}

TEST_F(RecordingTest, ErrorsStandWhereTheAnswerWouldAndIdentitiesFollowTheRegistration) {
  auto fake = std::make_unique<FakeQueueWorkerClient>();
  FakeQueueWorkerClient* script = fake.get();
  RecordingQueueWorkerClient client(std::move(fake), Log("rollout-0"));
  script->FailNext("Register", absl::UnavailableError("nobody there"));
  EXPECT_FALSE(client.Register("rollout-0", "f", absl::Seconds(1)).ok());
  ASSERT_TRUE(client.Register("rollout-0", "f", absl::Seconds(1)).ok());
  script->Fence();
  client.Push(FakeTrajectory(1, 1, 0, Version(1, 1)), [](absl::StatusOr<v1::PushAnswer>) {});
  ASSERT_TRUE(client.Register("rollout-0", "f", absl::Seconds(1)).ok());
  client.Push(FakeTrajectory(1, 1, 0, Version(1, 1)), [](absl::StatusOr<v1::PushAnswer>) {});
  const std::vector<Json> lines = Lines();
  EXPECT_EQ(lines[1]["error"], "UNAVAILABLE: nobody there");
  EXPECT_EQ(lines[3]["id"], Json::array({1, 1}));
  EXPECT_EQ(lines[5]["event"], "pushed");
  EXPECT_EQ(lines[5]["error"].get<std::string>().substr(0, 7), "ABORTED");
  EXPECT_EQ(lines[5]["id"], Json::array({1, 1}));
  EXPECT_EQ(lines.back()["id"], Json::array({1, 2}));
}

TEST_F(RecordingTest, TrainerSaysWhatItTrainedFromAndWhatItCommitted) {
  auto fake = std::make_unique<FakeQueueTrainerClient>();
  FakeQueueTrainerClient* script = fake.get();
  const v1::Trajectory member = FakeTrajectory(4, 1, 0, Version(1, 1));
  LeasedBatch batch;
  batch.lag_limit = 2;
  batch.groups.push_back({4, 1, {member}, true});
  script->AddBatch(1, batch);
  RecordingQueueTrainerClient client(std::move(fake), Log("trainer-0"));

  const uint64_t lineage = client.AllocateLineage(absl::Seconds(1))->lineage();
  ASSERT_TRUE(client.Restore(lineage, 0, "abc", absl::Seconds(1)).ok());
  v1::CommitRequest initial;
  initial.set_lineage(lineage);
  initial.set_version(1);
  initial.set_initial(true);
  ASSERT_TRUE(client.Commit(initial, absl::Seconds(1)).ok());
  ASSERT_EQ(client.LeaseBatch(lineage, 1, absl::Seconds(1))->groups.size(), 1u);
  v1::CommitRequest commit;
  commit.set_lineage(lineage);
  commit.set_version(2);
  commit.set_digest("d2");
  commit.add_tickets(4);
  script->FailNext("Commit", absl::AbortedError("another lineage"));
  EXPECT_FALSE(client.Commit(commit, absl::Seconds(1)).ok());
  ASSERT_TRUE(client.Commit(commit, absl::Seconds(1)).ok());
  ASSERT_TRUE(client.Settle(lineage, 1, absl::Seconds(1)).ok());
  ASSERT_TRUE(client.GetStatus(absl::Seconds(1)).ok());

  const std::vector<Json> lines = Lines();
  EXPECT_THAT(EventsOf(lines),
              ElementsAre("allocate", "allocated", "restore", "restored", "commit", "committed", "lease", "leased",
                          "commit", "committed", "commit", "committed", "settle", "settled", "status"));
  EXPECT_EQ(lines[1]["lineage"], lineage);
  EXPECT_EQ(lines[2]["snapshot_bytes"], 3);
  EXPECT_EQ(lines[7]["groups"][0]["ticket"], 4);
  EXPECT_EQ(lines[7]["groups"][0]["zero_advantage"], true);
  EXPECT_EQ(lines[7]["groups"][0]["members"][0]["key"], Json::array({4, 1, 0, 1}));
  EXPECT_EQ(lines[7]["groups"][0]["members"][0]["digest"], DigestOf(member));
  EXPECT_EQ(lines[8]["tickets"], Json::array({4}));
  EXPECT_EQ(lines[9]["error"], "ABORTED: another lineage");
  EXPECT_EQ(lines[9]["version"], 2);
  EXPECT_FALSE(lines[11].contains("error"));
  EXPECT_TRUE(lines[11]["counts"].contains("issued_total"));
  EXPECT_EQ(lines[12]["step"], 1);
}

// A queue during whose call the process dies.
class DeadlyQueue : public FakeQueueTrainerClient {
 public:
  absl::StatusOr<v1::LedgerCounts> Commit(const v1::CommitRequest& request, absl::Duration timeout) override {
    kill(getpid(), SIGKILL);
    while (true) pause();
  }
};

TEST_F(RecordingTest, KilledProcessLeavesTheCallThatItDiedIn) {
  EXPECT_EXIT(
      {
        RecordingQueueTrainerClient client(std::make_unique<DeadlyQueue>(), Log("trainer-0"));
        v1::CommitRequest commit;
        commit.set_lineage(3);
        commit.set_version(9);
        static_cast<void>(client.Commit(commit, absl::Seconds(1)));
      },
      ::testing::KilledBySignal(SIGKILL), "");
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["event"], "commit");
  EXPECT_EQ(lines[0]["version"], 9);
}

TEST_F(RecordingTest, IsOffUnlessTheEnvironmentNamesAFolder) {
  unsetenv("LEEWAY_HISTORY_DIRECTORY");
  EXPECT_EQ(OpenHistory("rollout-0"), nullptr);
  auto fake = std::make_unique<FakeQueueWorkerClient>();
  const QueueWorkerClient* plain = fake.get();
  EXPECT_EQ(RecordIfAsked(std::move(fake), "rollout-0").get(), plain);
  EXPECT_THAT(*RealFileSystem()->ListDirectory(folder_), IsEmpty());

  setenv("LEEWAY_HISTORY_DIRECTORY", folder_.c_str(), 1);
  for (int life = 0; life < 2; ++life) {
    const auto client = RecordIfAsked(std::make_unique<FakeQueueWorkerClient>(), "rollout-0");
    ASSERT_TRUE(client->Register("rollout-0", "f", absl::Seconds(1)).ok());
  }
  unsetenv("LEEWAY_HISTORY_DIRECTORY");
  const std::vector<std::string> files = *RealFileSystem()->ListDirectory(folder_);
  ASSERT_EQ(files.size(), 2u);  // one a life
  for (const std::string& file : files) EXPECT_EQ(LinesOf(folder_ + "/" + file).front()["event"], "register");
}

TEST(HistoryFieldsTest, DigestsDoNotDependOnTheOrderOfMaps) {
  v1::Trajectory one = FakeTrajectory(1, 1, 0, Version(1, 1));
  v1::Trajectory other = one;
  for (int i = 0; i < 20; ++i) (*one.mutable_score()->mutable_parts())[absl::StrCat("part", i)] = i;
  for (int i = 19; i >= 0; --i) (*other.mutable_score()->mutable_parts())[absl::StrCat("part", i)] = i;
  EXPECT_EQ(DigestOf(one), DigestOf(other));
  other.mutable_score()->set_reward(0.5);
  EXPECT_NE(DigestOf(one), DigestOf(other));
}

TEST(HistoryFieldsTest, VersionsOfNeighbouringSpansAreJoined) {
  v1::Trajectory trajectory = FakeTrajectory(1, 1, 0, Version(1, 1), 5);
  *trajectory.add_spans() = trajectory.spans(1);
  v1::Span* last = trajectory.add_spans();
  *last = trajectory.spans(1);
  last->mutable_versions(0)->mutable_weights()->set_version(2);
  EXPECT_EQ(VersionsOf(trajectory), Json::parse("[[1,1,10],[1,2,5]]"));
}

}  // namespace
}  // namespace leeway
