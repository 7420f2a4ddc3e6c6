#include "rpc/address.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

TEST(RpcAddress, GoodOnesComeBackAsTheyWere) {
  for (const std::string text :
       {"unix:/run/queue.sock", "127.0.0.1:5000", "127.0.0.1:0", "localhost:65535", "[::1]:7"}) {
    const absl::StatusOr<RpcAddress> address = ParseRpcAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->ToString(), text);
    EXPECT_EQ(address->is_unix(), text[0] == 'u');
  }
}

TEST(RpcAddress, BadOnesSayWhatIsWrong) {
  const struct {
    std::string text;
    std::string complaint;
  } cases[] = {
      {"", "has no port"},
      {"127.0.0.1", "has no port"},
      {"127.0.0.1:", "is no port"},
      {"127.0.0.1:65536", "is no port"},
      {"127.0.0.1:-1", "is no port"},
      {"127.0.0.1:http", "is no port"},
      {"[::1:5", "\"[\" without \"]\""},
      {"0.0.0.0:5000", "not this machine's loopback"},
      {"example.org:5000", "not this machine's loopback"},
      {"unix:", "not absolute"},
      {"unix:queue.sock", "not absolute"},
      {"unix:/" + std::string(107, 'x'), "has 108 bytes, the kernel takes 107"},
  };
  for (const auto& c : cases) {
    const absl::StatusOr<RpcAddress> address = ParseRpcAddress(c.text);
    ASSERT_FALSE(address.ok()) << c.text;
    EXPECT_TRUE(absl::IsInvalidArgument(address.status()));
    EXPECT_THAT(std::string(address.status().message()), HasSubstr(c.complaint)) << c.text;
  }
  EXPECT_TRUE(ParseRpcAddress("unix:/" + std::string(106, 'x')).ok());
}

}  // namespace
}  // namespace leeway
