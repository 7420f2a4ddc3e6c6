#include "rpc/address.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

TEST(RpcAddress, GoodOnesComeBackAsTheyWere) {
  for (const std::string text :
       {"unix:/run/queue.sock", "127.0.0.1:5000", "127.0.0.1:0", "localhost:65535", "[::1]:7", "0.0.0.0:5000", "[::]:5",
        "node-3.cluster.example.org:7000", "10.1.2.3:7000", "[2001:db8::7]:7000"}) {
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
      {":5000", "no host's name and no address"},
      {"a b:5000", "no host's name and no address"},
      {"-x:5000", "no host's name and no address"},
      {"a..b:5000", "no host's name and no address"},
      {"dns:///x:5000", "no host's name and no address"},
      {"[::g]:5000", "no host's name and no address"},
      {std::string(64, 'x') + ":5000", "no host's name and no address"},
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

TEST(RpcAddress, LoopbackIsWhatOnlyThisMachineReaches) {
  const std::pair<const char*, bool> cases[] = {{"127.0.0.1:1", true},  {"127.9.9.9:1", true}, {"localhost:1", true},
                                                {"[::1]:1", true},      {"0.0.0.0:1", false},  {"[::]:1", false},
                                                {"128.0.0.1:1", false}, {"10.0.0.1:1", false}, {"127.example:1", false},
                                                {"unix:/tmp/x", false}};
  for (const auto& [text, is_loopback] : cases) EXPECT_EQ(ParseRpcAddress(text)->is_loopback(), is_loopback) << text;
  EXPECT_TRUE(ParseRpcAddress("0.0.0.0:1")->is_wildcard());
  EXPECT_TRUE(ParseRpcAddress("[::]:1")->is_wildcard());
  EXPECT_FALSE(ParseRpcAddress("127.0.0.1:1")->is_wildcard());
}

}  // namespace
}  // namespace leeway
