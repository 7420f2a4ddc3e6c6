#include "rpc/status_mapping.h"

#include <string>

#include "gmock/gmock.h"
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
      {grpc::StatusCode::UNKNOWN, "Missing :authority header", false, absl::StatusCode::kUnavailable},
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

TEST(StatusMapping, FaultsOfCertificatesSayWhatToConfigure) {
  const auto map = [](const char* message) {
    return FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, message), "Push");
  };
  const absl::Status authority =
      map("failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Ssl handshake failed: "
          "SSL_ERROR_SSL: error:0A000086:SSL routines::certificate verify failed");
  EXPECT_EQ(authority.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(authority.message()), ::testing::StartsWith("Push: the server's certificate is not signed"));
  const absl::Status name =
      map("failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Peer name 127.0.0.1 is not in "
          "peer certificate");
  EXPECT_EQ(name.code(), absl::StatusCode::kUnauthenticated);
  // It may be going away: worth another try.
  const absl::Status hung_up =
      map("failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed");
  EXPECT_TRUE(absl::IsUnavailable(hung_up));
  EXPECT_THAT(std::string(hung_up.message()), ::testing::HasSubstr("security.certificate"));
  // Nothing is configured of a unix socket, and a broken call is no failed handshake.
  for (const char* plain : {"failed to connect to all addresses; last error: UNAVAILABLE: unix:/s: Socket closed",
                            "Socket closed", "failed to connect to all addresses; last error: Connection refused"})
    EXPECT_EQ(map(plain).message(), std::string("Push: ") + plain);
}

TEST(StatusMapping, OnlyUnavailableIsRetryable) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(IsRetryable(status), status.code() == absl::StatusCode::kUnavailable) << status;
  }
}

}  // namespace
}  // namespace leeway
