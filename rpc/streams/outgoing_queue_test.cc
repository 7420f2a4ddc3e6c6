#include "rpc/streams/outgoing_queue.h"

#include <string>

#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(OutgoingQueue, OneInFlightTheOthersInOrder) {
  OutgoingQueue<std::string> queue(3);
  EXPECT_EQ(queue.StartNext(), nullptr);
  EXPECT_TRUE(queue.Add("a"));
  EXPECT_TRUE(queue.Add("b"));
  const std::string* first = queue.StartNext();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(*first, "a");
  EXPECT_EQ(queue.StartNext(), nullptr);
  EXPECT_TRUE(queue.Add("c"));
  EXPECT_FALSE(queue.Add("d"));  // three wait, the one in flight included
  EXPECT_EQ(*first, "a");
  queue.Done(true);
  EXPECT_EQ(*queue.StartNext(), "b");
  queue.Done(true);
  EXPECT_EQ(*queue.StartNext(), "c");
  EXPECT_FALSE(queue.idle());
  queue.Done(true);
  EXPECT_TRUE(queue.idle());
}

TEST(OutgoingQueue, ClosedStillWritesWhatItTook) {
  OutgoingQueue<int> queue(3);
  queue.Add(1);
  queue.Add(2);
  queue.Close();
  EXPECT_FALSE(queue.Add(3));
  EXPECT_EQ(*queue.StartNext(), 1);
  queue.Done(true);
  EXPECT_EQ(*queue.StartNext(), 2);
  queue.Done(true);
  EXPECT_TRUE(queue.idle());
}

TEST(OutgoingQueue, ABrokenStreamTakesAndWritesNothingMore) {
  OutgoingQueue<int> queue(3);
  queue.Add(1);
  queue.Add(2);
  queue.StartNext();
  queue.Done(false);
  EXPECT_TRUE(queue.idle());
  EXPECT_FALSE(queue.Add(3));
  EXPECT_EQ(queue.StartNext(), nullptr);
}

TEST(OutgoingQueue, DropKeepsOnlyTheOneInFlight) {
  OutgoingQueue<int> queue(3);
  queue.Add(1);
  queue.Add(2);
  const int* first = queue.StartNext();
  queue.Drop();
  EXPECT_EQ(queue.size(), 1u);
  EXPECT_EQ(*first, 1);
  queue.Done(true);
  EXPECT_TRUE(queue.idle());
}

}  // namespace
}  // namespace leeway
