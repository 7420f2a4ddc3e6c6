#include "rpc/streams/payload_message.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "leeway/v1/queue.pb.h"

namespace leeway {
namespace {

// What protobuf reads from the pieces is what a message made the ordinary way says.
TEST(PayloadMessage, IsTheMessageThatProtobufWouldWrite) {
  v1::PushRequest expected;
  expected.mutable_identity()->set_producer_id(300);
  expected.mutable_identity()->set_epoch(2);
  PayloadMessage message;
  EXPECT_TRUE(message.empty());
  message.AddFields(expected);
  uint64_t sequence = 126;
  // Around the limits of a length's bytes, and of what is pointed at instead of copied.
  for (size_t size : {0, 1, 126, 127, 128, 16'383, 16'384, 16'385, 3 << 20}) {
    const auto payload = std::make_shared<const std::string>("<<" + std::string(size, 'p') + ">");
    v1::PushChunk head;
    head.set_sequence(++sequence);
    head.set_total_bytes(size);
    head.set_last(size % 2 == 0);
    message.AddElement(v1::PushRequest::kChunksFieldNumber, head, v1::PushChunk::kDataFieldNumber, payload, 2, size);
    head.set_data(std::string(size, 'p'));
    *expected.add_chunks() = head;
  }
  v1::PushRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(message.ToString()));
  EXPECT_EQ(parsed.SerializeAsString(), expected.SerializeAsString());
  EXPECT_EQ(message.size_bytes(), message.ToString().size());
}

TEST(PayloadMessage, LargePayloadsAreSharedSmallOnesCopied) {
  const auto small = std::make_shared<const std::string>(100, 's');
  auto large = std::make_shared<const std::string>(1 << 20, 'l');
  PayloadMessage message;
  for (const auto& payload : {small, large, small})
    message.AddElement(2, v1::PushChunk(), 3, payload, 0, payload->size());
  EXPECT_EQ(small.use_count(), 1);
  ASSERT_EQ(message.pieces().size(), 3u);
  EXPECT_EQ(message.pieces()[1].bytes().data(), large->data());
  const std::weak_ptr<const std::string> watched = large;
  large.reset();
  EXPECT_FALSE(watched.expired());
  message.Clear();
  EXPECT_TRUE(watched.expired());
  EXPECT_TRUE(message.empty());
}

}  // namespace
}  // namespace leeway
