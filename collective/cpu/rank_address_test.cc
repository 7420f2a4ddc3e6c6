#include "collective/cpu/rank_address.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RankAddressesTest, ComeBackAsTheyWere) {
  const std::string bytes("a\n\0b", 4);
  const RankAddresses written{3, "17/99", {bytes, "", "10\n"}};
  const auto read = RankAddresses::Decode(written.Encode());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->size, 3);
  EXPECT_EQ(read->process, "17/99");
  EXPECT_THAT(read->addresses, ElementsAre(bytes, "", "10\n"));
}

TEST(RankAddressesTest, OtherBytesAreRefused) {
  EXPECT_EQ(RankAddresses::Decode("").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(RankAddresses::Decode("x\ny\n").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(RankAddresses::Decode("2\np\n5\nabcd").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(RankAddresses::Decode("2\np\n-1\n").status().code(), absl::StatusCode::kDataLoss);
}

TEST(InterfaceAddressTest, FindsTheLoopback) {
  EXPECT_EQ(InterfaceAddress("").value(), "127.0.0.1");
  EXPECT_EQ(InterfaceAddress("lo").value(), "127.0.0.1");
}

TEST(InterfaceAddressTest, NamesWhatThereIs) {
  const absl::Status status = InterfaceAddress("eth77").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"eth77\" has no address; there are "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("lo"));
}

}  // namespace
}  // namespace leeway
