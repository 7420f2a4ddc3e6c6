#include "collective/nccl/nccl_api.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

TEST(LoadNcclTest, AMachineWithoutTheLibraryIsToldWhatToDo) {
  const absl::Status status = LoadNccl({"libno-such-nccl.so.2"}, {"libc.so.6"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.ToString(), HasSubstr("libno-such-nccl.so.2"));
  EXPECT_THAT(status.ToString(), HasSubstr("run on CPUs"));
}

TEST(LoadNcclTest, EveryCandidateIsNamed) {
  const absl::Status status = LoadNccl({"libc.so.6"}, {"libno-a.so", "libno-b.so"}).status();
  EXPECT_THAT(status.ToString(), HasSubstr("libno-a.so"));
  EXPECT_THAT(status.ToString(), HasSubstr("libno-b.so"));
}

TEST(LoadNcclTest, AnotherLibraryIsNotTakenForNccl) {
  EXPECT_EQ(LoadNccl({"libc.so.6"}, {"libc.so.6"}).status(),
            absl::FailedPreconditionError("the library has no function ncclGetVersion"));
}

TEST(LoadNcclTest, TheRealLibraryIsUnderstood) {
  const absl::StatusOr<NcclApi> api = LoadNccl();
  if (absl::IsNotFound(api.status())) GTEST_SKIP() << api.status();
  ASSERT_TRUE(api.ok()) << api.status();
  EXPECT_GE(api->version, 21403);
  EXPECT_EQ(api->shrink != nullptr, api->version >= 22703);
  EXPECT_EQ(api->revoke != nullptr, api->version >= 22807);
}

TEST(NcclVersionNameTest, KnowsBothSchemes) {
  EXPECT_EQ(NcclVersionName(22809), "2.28.9");
  EXPECT_EQ(NcclVersionName(21403), "2.14.3");
  EXPECT_EQ(NcclVersionName(2804), "2.8.4");
}

TEST(NcclResultNameTest, NamesUnknownOnesByNumber) {
  EXPECT_EQ(NcclResultName(NcclResult::kRemoteError), "ncclRemoteError");
  EXPECT_EQ(NcclResultName(static_cast<NcclResult>(42)), "ncclResult 42");
}

}  // namespace
}  // namespace leeway
