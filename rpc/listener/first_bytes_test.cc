#include "rpc/listener/first_bytes.h"

#include <string>

#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(FirstBytesTest, TheSpeechIsToldApart) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  EXPECT_EQ(Recognise(preface), Speech::kHttp2);
  EXPECT_EQ(Recognise(preface + "more"), Speech::kHttp2);
  EXPECT_EQ(Recognise(std::string("\x16\x03\x01\x02\x00", 5)), Speech::kTls);
  EXPECT_EQ(Recognise("GET / HTTP/1.1\r\n"), Speech::kOther);
  EXPECT_EQ(Recognise("PRI * HTTP/1.1\r\n"), Speech::kOther);
  EXPECT_EQ(Recognise(std::string(1, '\0')), Speech::kOther);
}

TEST(FirstBytesTest, BeginningsAreNotYetAnything) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  for (size_t size = 0; size < preface.size(); ++size)
    EXPECT_EQ(Recognise(preface.substr(0, size)), Speech::kUnknown) << size;
  EXPECT_EQ(Recognise("\x16"), Speech::kUnknown);
  EXPECT_EQ(Recognise("\x16\x02"), Speech::kOther);
}

}  // namespace
}  // namespace leeway
