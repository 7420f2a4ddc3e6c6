// Starts that must not happen: what is said, with which code, and that nothing is left.

#include "queue/queue_server.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class QueueServerStartTest : public ::testing::Test {
 protected:
  QueueServerStartTest() {
    char folder[] = "/tmp/leeway-queue-XXXXXX";
    folder_ = mkdtemp(folder);
    options_ = OptionsIn(folder_);
  }
  ~QueueServerStartTest() override { std::filesystem::remove_all(folder_); }

  QueueOptions OptionsIn(const std::string& folder) {
    QueueOptions options;
    options.address = "unix:" + folder_ + "/socket";
    options.state_directory = folder;
    options.store_directory = folder + "/queue";
    options.vocabulary_size = 10;
    options.core.staleness.groups_per_step = 2;
    options.core.staleness.steps = 100;
    options.core.group_size = 2;
    options.core.max_groups = 100;
    options.core.max_trajectory_bytes = 1000;
    options.core.max_bytes = 1 << 30;
    options.core.task = "sort5";
    options.core.train_seed = [](uint64_t index) { return index; };
    options.core.evaluation_seed = [](uint64_t index) { return index; };
    return options;
  }
  // A store that a queue has used.
  void MakeStore() {
    const auto server = QueueServer::Start(options_);
    ASSERT_TRUE(server.ok()) << server.status();
  }
  // Names the store, and says that it may be moved away.
  void ExpectRefused(absl::StatusCode code, const std::string& why) {
    const absl::Status status = QueueServer::Start(options_).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(options_.store_directory), HasSubstr(why),
                                                     HasSubstr("move "), HasSubstr("from the newest checkpoint")));
  }

  std::string folder_;
  QueueOptions options_;
};

TEST_F(QueueServerStartTest, AStoreThatIsNoFolder) {
  std::ofstream(options_.store_directory) << "x";
  ExpectRefused(absl::StatusCode::kPermissionDenied, "Not a directory");
}

TEST_F(QueueServerStartTest, AStoreWhoseDatabaseLacksAFile) {
  MakeStore();
  for (const auto& entry : std::filesystem::directory_iterator(options_.store_directory + "/records")) {
    if (entry.path().filename().string().starts_with("MANIFEST")) std::filesystem::remove(entry.path());
  }
  ExpectRefused(absl::StatusCode::kDataLoss, "MANIFEST");
}

TEST_F(QueueServerStartTest, AStoreWhoseDatabaseIsDamaged) {
  MakeStore();
  for (const auto& entry : std::filesystem::directory_iterator(options_.store_directory + "/records")) {
    if (entry.path().filename().string().starts_with("MANIFEST")) std::ofstream(entry.path()) << "nonsense";
  }
  ExpectRefused(absl::StatusCode::kDataLoss, "Corruption");
}

TEST_F(QueueServerStartTest, AStoreWithoutItsDatabase) {
  MakeStore();
  std::filesystem::remove_all(options_.store_directory + "/records");
  ExpectRefused(absl::StatusCode::kDataLoss, "has lost the database");
}

TEST_F(QueueServerStartTest, ASecondQueueOnAStoreNamesTheFirstAndChangesNothing) {
  const auto first = QueueServer::Start(options_);
  ASSERT_TRUE(first.ok()) << first.status();
  options_.address += "-of-the-second";
  const absl::Status second = QueueServer::Start(options_).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists) << second;
  EXPECT_THAT(std::string(second.message()), HasSubstr(options_.store_directory));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/socket-of-the-second"));
}

TEST_F(QueueServerStartTest, ASecondQueueAtAnAddressMakesNoStore) {
  const auto first = QueueServer::Start(options_);
  ASSERT_TRUE(first.ok()) << first.status();
  const QueueOptions other = OptionsIn(folder_ + "/other");
  const absl::Status second = QueueServer::Start(other).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists) << second;
  EXPECT_THAT(std::string(second.message()), AllOf(HasSubstr("/socket"), HasSubstr("another server is listening")));
  EXPECT_FALSE(std::filesystem::exists(other.state_directory));
}

}  // namespace
}  // namespace leeway
