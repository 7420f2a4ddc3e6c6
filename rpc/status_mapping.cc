#include "rpc/status_mapping.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

bool IsTransportFault(const grpc::Status& status, bool cancelled_here) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNKNOWN:
      return absl::StrContains(status.error_message(), "Stream removed");
    case grpc::StatusCode::INTERNAL:
      return absl::StrContains(status.error_message(), "RST_STREAM");
    case grpc::StatusCode::CANCELLED:
      return !cancelled_here;
    default:
      return false;
  }
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()), std::string(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status, const char* context, bool cancelled_here) {
  if (status.ok()) return absl::OkStatus();
  const absl::StatusCode code = IsTransportFault(status, cancelled_here)
                                    ? absl::StatusCode::kUnavailable
                                    : static_cast<absl::StatusCode>(status.error_code());
  return absl::Status(code, absl::StrCat(context, ": ", status.error_message()));
}

bool IsRetryable(const absl::Status& status) { return absl::IsUnavailable(status); }

}  // namespace leeway
