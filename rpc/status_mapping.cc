#include "rpc/status_mapping.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

bool IsTransportFault(const grpc::Status& status, bool cancelled_here) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNKNOWN:
      // The latter: the request was garbled on its way ("Missing :authority header").
      return absl::StrContains(status.error_message(), "Stream removed") ||
             absl::StrContains(status.error_message(), "Missing :");
    case grpc::StatusCode::INTERNAL:
      return absl::StrContains(status.error_message(), "RST_STREAM");
    case grpc::StatusCode::CANCELLED:
      return !cancelled_here;
    default:
      return false;
  }
}

// What a failed connection means for who configured it; null: nothing more than what gRPC says. A wrong certificate
// does not become right by trying again.
struct SecurityFault {
  absl::string_view sign;
  bool is_final;
  const char* meaning;
};

const SecurityFault* FindSecurityFault(const grpc::Status& status) {
  static constexpr SecurityFault kFaults[] = {
      {"certificate verify failed", true, "the server's certificate is not signed by this side's security.authority"},
      {"is not in peer certificate", true,
       "the server's certificate does not name the host that was dialled; make one that does: leeway doctor "
       "--make-certificates DIR --host NAME"},
      {"wrong version number", true, "this side speaks TLS and the port does not; security.* must match at both ends"},
      {"Socket closed", false, ""},
      {"Connection reset by peer", false, ""},
  };
  const std::string& message = status.error_message();
  // On a unix socket there is nothing to configure.
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE || !absl::StrContains(message, "failed to connect") ||
      absl::StrContains(message, "unix:")) {
    return nullptr;
  }
  for (const SecurityFault& fault : kFaults) {
    if (absl::StrContains(message, fault.sign)) return &fault;
  }
  return nullptr;
}

// The server hung up before a call could be made. It may be going away, so this alone is no reason to give up.
constexpr char kHungUp[] =
    "the server hung up during the handshake: it is going away, or does not accept what this side speaks "
    "(security.certificate, security.key and security.authority must be set at both ends or at none, and be of one "
    "authority); its log says which";

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()), std::string(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status, const char* context, bool cancelled_here) {
  if (status.ok()) return absl::OkStatus();
  if (const SecurityFault* fault = FindSecurityFault(status)) {
    return absl::Status(
        fault->is_final ? absl::StatusCode::kUnauthenticated : absl::StatusCode::kUnavailable,
        absl::StrCat(context, ": ", fault->is_final ? fault->meaning : kHungUp, " (", status.error_message(), ")"));
  }
  const absl::StatusCode code = IsTransportFault(status, cancelled_here)
                                    ? absl::StatusCode::kUnavailable
                                    : static_cast<absl::StatusCode>(status.error_code());
  return absl::Status(code, absl::StrCat(context, ": ", status.error_message()));
}

bool IsRetryable(const absl::Status& status) { return absl::IsUnavailable(status); }

}  // namespace leeway
