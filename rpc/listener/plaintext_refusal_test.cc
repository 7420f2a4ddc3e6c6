#include "rpc/listener/plaintext_refusal.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// A frame, written out by hand.
std::string Frame(char type, char flags, char stream, const std::string& payload) {
  return std::string{'\0', '\0', static_cast<char>(payload.size()), type, flags, '\0', '\0', '\0', stream} + payload;
}

TEST(PlaintextRefusalTest, EveryCallEndsWithTheStatus) {
  PlaintextRefusal refusal(16, "wrong language");
  EXPECT_EQ(refusal.Greeting(), Frame(4, 0, 0, ""));
  // Settings are acknowledged, pings answered; other frames mean nothing.
  EXPECT_EQ(refusal.OnBytes(kPreface + Frame(4, 0, 0, "") + Frame(4, 1, 0, "") + Frame(8, 0, 0, "abcd")),
            Frame(4, 1, 0, ""));
  EXPECT_EQ(refusal.OnBytes(Frame(6, 0, 0, "12345678")), Frame(6, 1, 0, "12345678"));
  const std::string answer = refusal.OnBytes(Frame(1, 4, 3, "headers") + Frame(0, 1, 3, "data"));
  // HEADERS with END_STREAM and END_HEADERS on stream 3; four literals (RFC 7541, 6.2.2) without Huffman code.
  const std::string expected = std::string(
                                   "\0\7:status\3"
                                   "200",
                                   13) +
                               std::string("\0\14content-type\20application/grpc", 31) +
                               std::string(
                                   "\0\13grpc-status\2"
                                   "16",
                                   16) +
                               std::string("\0\14grpc-message\16wrong language", 29);
  EXPECT_EQ(answer, Frame(1, 5, 3, expected));
  EXPECT_FALSE(refusal.is_over());
}

TEST(PlaintextRefusalTest, BytesMayComeOneByOne) {
  PlaintextRefusal whole(16, "no"), pieces(16, "no");
  const std::string bytes = kPreface + Frame(4, 0, 0, "") + Frame(1, 4, 1, "x") + Frame(1, 4, 5, "y");
  std::string answers;
  for (const char byte : bytes) answers += pieces.OnBytes(std::string(1, byte));
  EXPECT_EQ(answers, whole.OnBytes(bytes));
  EXPECT_FALSE(answers.empty());
}

TEST(PlaintextRefusalTest, ItDoesNotGoOnForEver) {
  PlaintextRefusal refusal(16, "no");
  refusal.OnBytes(kPreface);
  for (int i = 0; i < PlaintextRefusal::kMaxAnswers; ++i) {
    EXPECT_FALSE(refusal.is_over());
    EXPECT_THAT(refusal.OnBytes(Frame(1, 4, 1, "")), HasSubstr("grpc-status"));
  }
  EXPECT_TRUE(refusal.is_over());
  EXPECT_EQ(refusal.OnBytes(Frame(1, 4, 1, "")), "");
}

TEST(PlaintextRefusalTest, AFrameThatIsTooLargeIsTheEnd) {
  PlaintextRefusal refusal(16, "no");
  refusal.OnBytes(kPreface);
  EXPECT_EQ(refusal.OnBytes(std::string("\x7f\xff\xff\x01\x04\0\0\0\x01", 9)), "");
  EXPECT_TRUE(refusal.is_over());
}

TEST(PlaintextRefusalTest, LongMessagesAreWrittenWithTheirLength) {
  PlaintextRefusal refusal(16, std::string(200, 'm'));
  // 200 = 127 + 73.
  EXPECT_THAT(refusal.OnBytes(kPreface + Frame(1, 4, 1, "")), HasSubstr("grpc-message\x7f\x49mmmm"));
}

}  // namespace
}  // namespace leeway
