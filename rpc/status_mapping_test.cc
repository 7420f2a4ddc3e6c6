#include "rpc/status_mapping.h"

#include <string>

#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(StatusMapping, EveryCodeSurvivesTheRoundTrip) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), code == 0 ? "" : "why");
    const absl::Status back = FromGrpcStatus(ToGrpcStatus(status), "Push", /*cancelled_here=*/true);
    EXPECT_EQ(back.code(), status.code()) << code;
    EXPECT_EQ(back.message(), code == 0 ? "" : "Push: why");
  }
}

TEST(StatusMapping, TransportFaultsAreUnavailable) {
  const struct {
    grpc::StatusCode code;
    const char* message;
    bool cancelled_here;
    absl::StatusCode expected;
  } cases[] = {
      {grpc::StatusCode::UNKNOWN, "Stream removed", false, absl::StatusCode::kUnavailable},
      {grpc::StatusCode::UNKNOWN, "an exception in the handler", false, absl::StatusCode::kUnknown},
      {grpc::StatusCode::INTERNAL, "Received RST_STREAM with error code 2", false, absl::StatusCode::kUnavailable},
      {grpc::StatusCode::INTERNAL, "invariant broken", false, absl::StatusCode::kInternal},
      {grpc::StatusCode::CANCELLED, "", false, absl::StatusCode::kUnavailable},
      {grpc::StatusCode::CANCELLED, "", true, absl::StatusCode::kCancelled},
      {grpc::StatusCode::UNAVAILABLE, "failed to connect", false, absl::StatusCode::kUnavailable},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(FromGrpcStatus(grpc::Status(c.code, c.message), "Push", c.cancelled_here).code(), c.expected)
        << c.message;
  }
}

TEST(StatusMapping, OnlyUnavailableIsRetryable) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(IsRetryable(status), status.code() == absl::StatusCode::kUnavailable) << status;
  }
}

}  // namespace
}  // namespace leeway
