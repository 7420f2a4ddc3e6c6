#include "rpc/listener/connection_table.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

class ConnectionTableTest : public ::testing::Test {
 protected:
  bool Add(int fd, const std::string& peer) {
    refusal_.clear();
    open_.insert(fd);
    const bool added = table_.Add({fd, 100u + static_cast<uint64_t>(fd), peer}, &refusal_);
    if (!added) open_.erase(fd);
    return added;
  }

  std::set<int> open_;
  int asked_ = 0;
  std::string refusal_;
  ConnectionTable table_{4, 3, [this](const ConnectionTable::Entry& entry) {
                           ++asked_;
                           return open_.count(entry.fd) > 0;
                         }};
};

TEST_F(ConnectionTableTest, OnePeerHasItsShareOnly) {
  for (int fd = 0; fd < 3; ++fd) EXPECT_TRUE(Add(fd, "a"));
  EXPECT_EQ(asked_, 0);
  EXPECT_FALSE(Add(3, "a"));
  EXPECT_THAT(refusal_, HasSubstr("3 connections of a are open, the limit is 3"));
  EXPECT_TRUE(Add(3, "b"));
  EXPECT_FALSE(Add(4, "c"));
  EXPECT_THAT(refusal_, HasSubstr("4 connections are open, the limit is 4"));
}

TEST_F(ConnectionTableTest, ClosedConnectionsMakeRoom) {
  for (int fd = 0; fd < 3; ++fd) EXPECT_TRUE(Add(fd, "a"));
  open_.erase(1);  // gRPC closed it and said nothing
  EXPECT_TRUE(Add(7, "a"));
  EXPECT_EQ(table_.size(), 3u);
  table_.Remove(7, 107);
  table_.Remove(7, 107);
  table_.Remove(0, 999);  // another socket under that descriptor
  EXPECT_EQ(table_.size(), 2u);
  EXPECT_TRUE(Add(8, "a"));
}

TEST(InodeOfTest, TellsAReusedDescriptorFromTheOldOne) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const uint64_t first = InodeOf(pair[0]);
  EXPECT_NE(first, 0u);
  close(pair[0]);
  EXPECT_EQ(InodeOf(pair[0]), 0u);
  const int again = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(again, pair[0]);
  EXPECT_NE(InodeOf(again), first);
  close(again);
  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(InodeOf(file), 0u);
  close(file);
  close(pair[1]);
}

}  // namespace
}  // namespace leeway
