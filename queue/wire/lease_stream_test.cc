#include "queue/wire/lease_stream.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "queue/fake_trajectory.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

// Group i has i members (and is without advantage when i is even), of growing size.
LeaseResult Batch(int groups, int sampled_step) {
  LeaseResult lease;
  lease.lag_limit = 3;
  for (int g = 1; g <= groups; ++g) {
    LeasedGroup group;
    group.ticket = 10 + g;
    group.issue = g;
    group.zero_advantage = g % 2 == 0;
    for (int m = 0; m < g; ++m) {
      v1::Ticket ticket;
      ticket.set_id(group.ticket);
      const v1::Trajectory trajectory = FakeTrajectory(ticket, m, 1 + sampled_step * (g + m));
      group.members.push_back(
          std::make_shared<PayloadInMemory>(std::make_shared<const std::string>(trajectory.SerializeAsString())));
    }
    lease.groups.push_back(std::move(group));
  }
  return lease;
}

std::vector<v1::LeaseBatchResponse> Messages(const LeaseResult& lease, uint64_t max_chunk_bytes) {
  std::vector<v1::LeaseBatchResponse> messages;
  LeaseCutter cutter(lease, max_chunk_bytes);
  for (PayloadMessage message; *cutter.Next(&message); message.Clear()) {
    v1::LeaseBatchResponse response;
    EXPECT_TRUE(response.ParseFromString(message.ToString()));
    uint64_t bytes = 0;
    for (const v1::LeaseBatchChunk& chunk : response.chunks()) bytes += chunk.data().size();
    EXPECT_LE(bytes, max_chunk_bytes);
    messages.push_back(response);
  }
  return messages;
}

absl::StatusOr<LeasedBatch> Join(std::vector<v1::LeaseBatchResponse> messages, uint64_t max_chunk_bytes) {
  LeaseJoiner joiner(1 << 20, max_chunk_bytes);
  for (v1::LeaseBatchResponse& message : messages) {
    if (absl::Status status = joiner.Add(&message); !status.ok()) return status;
  }
  return joiner.Finish();
}

TEST(LeaseStream, WhatIsCutComesTogetherAgain) {
  for (int sampled_step : {0, 10, 500}) {
    const LeaseResult lease = Batch(6, sampled_step);
    for (uint64_t max_chunk_bytes : {7, 100, 1000, 1 << 20}) {
      const absl::StatusOr<LeasedBatch> batch = Join(Messages(lease, max_chunk_bytes), max_chunk_bytes);
      ASSERT_TRUE(batch.ok()) << batch.status();
      EXPECT_EQ(batch->lag_limit, 3u);
      ASSERT_EQ(batch->groups.size(), 6u);
      for (size_t g = 0; g < 6; ++g) {
        EXPECT_EQ(batch->groups[g].ticket, lease.groups[g].ticket);
        EXPECT_EQ(batch->groups[g].issue, lease.groups[g].issue);
        EXPECT_EQ(batch->groups[g].zero_advantage, lease.groups[g].zero_advantage);
        ASSERT_EQ(batch->groups[g].members.size(), g + 1);
        for (size_t m = 0; m <= g; ++m) {
          EXPECT_EQ(batch->groups[g].members[m].SerializeAsString(), **lease.groups[g].members[m]->Load());
        }
      }
    }
  }
}

TEST(LeaseStream, SmallTrajectoriesShareMessages) {
  EXPECT_EQ(Messages(Batch(6, 0), 1 << 20).size(), 1u);
  EXPECT_GT(Messages(Batch(6, 0), 100).size(), 5u);
}

TEST(LeaseStream, AnEmptyBatchIsOneMessageWithItsCause) {
  LeaseResult lease;
  lease.cause = "waiting_for_groups";
  const std::vector<v1::LeaseBatchResponse> messages = Messages(lease, 100);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_FALSE(messages[0].batch_complete());
  const absl::StatusOr<LeasedBatch> batch = Join(messages, 100);
  ASSERT_TRUE(batch.ok());
  EXPECT_TRUE(batch->groups.empty());
  EXPECT_EQ(batch->cause, "waiting_for_groups");
}

TEST(LeaseStream, ABrokenStreamIsNoBatch) {
  std::vector<v1::LeaseBatchResponse> messages = Messages(Batch(6, 10), 100);
  messages.pop_back();
  const absl::StatusOr<LeasedBatch> batch = Join(messages, 100);
  EXPECT_TRUE(absl::IsDataLoss(batch.status())) << batch.status();
  EXPECT_THAT(std::string(batch.status().message()), HasSubstr("before the batch did"));
  EXPECT_TRUE(absl::IsDataLoss(Join({}, 100).status()));
}

TEST(LeaseStream, DamagedBytesAreNoticed) {
  std::vector<v1::LeaseBatchResponse> messages = Messages(Batch(1, 0), 1 << 20);
  std::string* data = messages[0].mutable_chunks(0)->mutable_data();
  *data = std::string(data->size(), '\xff');
  EXPECT_TRUE(absl::IsDataLoss(Join(messages, 1 << 20).status()));
  data->pop_back();
  EXPECT_TRUE(absl::IsDataLoss(Join(messages, 1 << 20).status()));
}

}  // namespace
}  // namespace leeway
