#include "launch/run/exit_code.h"

#include "fmt/format.h"

namespace leeway {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    // Tokens and certificates are configured.
    case absl::StatusCode::kUnauthenticated:
      return ExitCode::kConfiguration;
    // An address or a store that another process has.
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kEnvironment;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
      return ExitCode::kPeerLost;
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kStalled;
    case absl::StatusCode::kDataLoss:
      return ExitCode::kDataRefused;
    default:
      return ExitCode::kOther;
  }
}

std::string Describe(ExitCode code) {
  const char* words = "failed";
  switch (code) {
    case ExitCode::kDone:
      words = "done";
      break;
    case ExitCode::kConfiguration:
      words = "configuration";
      break;
    case ExitCode::kEnvironment:
      words = "environment or tooling missing";
      break;
    case ExitCode::kPeerLost:
      words = "peer lost";
      break;
    case ExitCode::kStalled:
      words = "stalled";
      break;
    case ExitCode::kDataRefused:
      words = "data refused";
      break;
    case ExitCode::kOther:
      break;
  }
  return fmt::format("{} ({})", static_cast<int>(code), words);
}

}  // namespace leeway
