#include "queue/upkeep/store_inspection.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "queue/core/queue_core_test_driver.h"
#include "queue/store/store_test_driver.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kBytes = 3000;

// Two groups of two trajectories of kBytes each, of which the first group is in the trainer's hands.
void FillStore(const std::string& directory) {
  QueueCoreOptions options = DriverOptions(/*groups_per_step=*/1, /*group_size=*/2, /*budget=*/1, /*steps=*/2);
  options.max_trajectory_bytes = 2 * kBytes;
  auto store = OpenStore(SmallStore(directory));
  RocksDbStore* const disk = store.get();
  CoreDriver driver(options, std::move(store));
  const v1::WorkerIdentity worker = driver.Register("rollout-0");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse acquired = driver.Acquire(worker, 4);
  for (const v1::Ticket& ticket : acquired.tickets()) {
    for (uint32_t member : ticket.members()) {
      PushedTrajectory pushed = CoreDriver::Completed(ticket, member, 0.5 * member);
      pushed.payload = std::string(kBytes, static_cast<char>('a' + 2 * ticket.id() + member));
      ASSERT_EQ(driver.Push(worker, std::move(pushed)).result(), v1::ACCEPTED);
    }
  }
  ASSERT_EQ(driver.Lease(1).groups.size(), 1u);
  ASSERT_TRUE(AwaitDurable(disk, driver.core().WriteChanges()));
}

// Changes one byte of the only place where a file of the store has `bytes`.
void Damage(const std::string& directory, const std::string& bytes) {
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const size_t at = text.find(bytes);
    if (at == std::string::npos) continue;
    ++found;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at + bytes.size() / 2));
    file.put('?');
  }
  ASSERT_EQ(found, 1);
}

TEST(StoreInspectionTest, ReadsEveryTrajectoryAndSaysHowFarItIs) {
  StoreDirectory directory;
  FillStore(directory.path());
  std::vector<std::vector<uint64_t>> told;
  const auto contents = InspectStore(directory.path(), [&](uint64_t payloads, uint64_t of, uint64_t bytes) {
    told.push_back({payloads, of, bytes});
  });
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->payloads, 4u);
  EXPECT_EQ(contents->payload_bytes, 4 * kBytes);
  EXPECT_THAT(contents->damaged, IsEmpty());
  EXPECT_THAT(DescribeContents(*contents), HasSubstr("the bytes of all trajectories are what was acknowledged"));
  EXPECT_THAT(told, ElementsAre(ElementsAre(0, 4, 0), ElementsAre(1, 4, kBytes), ElementsAre(2, 4, 2 * kBytes),
                                ElementsAre(3, 4, 3 * kBytes)));
}

TEST(StoreInspectionTest, DamagedTrajectoriesAreNamedAndNoOther) {
  StoreDirectory directory;
  FillStore(directory.path());
  Damage(directory.path(), std::string(kBytes, 'a' + 2 * 1 + 1));  // a leased one
  Damage(directory.path(), std::string(kBytes, 'a' + 2 * 2 + 0));
  const auto contents = InspectStore(directory.path());
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_THAT(contents->damaged, ElementsAre(HasSubstr("ticket 1 member 1"), HasSubstr("ticket 2 member 0")));
  EXPECT_THAT(DescribeContents(*contents), AllOf(HasSubstr("2 trajectories ARE DAMAGED"),
                                                 HasSubstr("ticket 1 member 1"), HasSubstr("ticket 2 member 0")));
}

TEST(StoreInspectionTest, AStoreThatAQueueHasOpenIsRead) {
  StoreDirectory directory;
  FillStore(directory.path());
  const auto open = OpenStore(SmallStore(directory.path()));
  const auto contents = InspectStore(directory.path());
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_THAT(contents->damaged, IsEmpty());
}

TEST(StoreInspectionTest, NoStore) {
  StoreDirectory directory;
  EXPECT_EQ(InspectStore(directory.path() + "/absent").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace leeway
