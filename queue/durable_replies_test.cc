#include "queue/durable_replies.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace leeway {
namespace {

class DurableRepliesTest : public ::testing::Test {
 protected:
  DurableReplies::Reply Tell(const std::string& name) {
    return [this, name](const absl::Status& status) { told_.push_back(name + (status.ok() ? "" : "!")); };
  }

  DurableReplies replies_;
  std::vector<std::string> told_;
};

using Names = std::vector<std::string>;

TEST_F(DurableRepliesTest, WaitsForItsWriteAndKeepsTheOrder) {
  replies_.Add(2, Tell("b"));
  replies_.Add(1, Tell("a"));  // asked later: goes out later
  replies_.Add(3, Tell("c"));
  EXPECT_EQ(told_, Names());
  replies_.OnDurable(1);
  EXPECT_EQ(told_, Names());
  replies_.OnDurable(2);
  EXPECT_EQ(told_, (Names{"b", "a"}));
  EXPECT_TRUE(replies_.IsDurable(2));
  EXPECT_FALSE(replies_.IsDurable(3));
  replies_.Add(2, Tell("d"));  // durable, but "c" waits before it
  EXPECT_EQ(told_, (Names{"b", "a"}));
  replies_.OnDurable(3);
  EXPECT_EQ(told_, (Names{"b", "a", "c", "d"}));
  replies_.Add(3, Tell("e"));
  EXPECT_EQ(told_.back(), "e");
}

TEST_F(DurableRepliesTest, AReplyMayAddAnother) {
  replies_.Add(1, [this](const absl::Status&) {
    told_.push_back("first");
    replies_.Add(1, Tell("inner"));
    told_.push_back("first ends");
  });
  replies_.Add(1, Tell("second"));
  replies_.OnDurable(1);
  EXPECT_EQ(told_, (Names{"first", "first ends", "second", "inner"}));
}

TEST_F(DurableRepliesTest, ShutdownTellsThatNothingWasPromised) {
  replies_.OnDurable(1);
  replies_.Add(2, Tell("a"));
  replies_.Shutdown();
  EXPECT_EQ(told_, Names{"a!"});
  replies_.Add(3, Tell("b"));
  replies_.Add(1, Tell("c"));
  replies_.OnDurable(3);
  EXPECT_EQ(told_, (Names{"a!", "b!", "c"}));
}

}  // namespace
}  // namespace leeway
