#ifndef LEEWAY_RPC_STATUS_MAPPING_H_
#define LEEWAY_RPC_STATUS_MAPPING_H_

// absl::Status <-> grpc::Status: the one place that knows both. Codes are the same numbers; the message travels
// unchanged.

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace leeway {

grpc::Status ToGrpcStatus(const absl::Status& status);

// `context` (a method's name) is put before the message, so that "failed to connect" says for whom. Transport faults
// that gRPC reports under other codes become UNAVAILABLE, so that callers meet one code for "the peer is gone":
//   UNKNOWN "Stream removed"                 the connection broke before the server's status arrived
//   UNKNOWN "Missing :authority header"      the request was garbled on its way
//   INTERNAL "... RST_STREAM ..."            the peer reset the stream
//   CANCELLED that this side did not ask for the server was shut down under the call (`cancelled_here` = false)
// Connections that fail for their certificates become UNAUTHENTICATED, with what to configure: trying again is no use.
absl::Status FromGrpcStatus(const grpc::Status& status, const char* context, bool cancelled_here = false);

// True when trying the same call again may work: UNAVAILABLE only. The call may have been executed all the same: retry
// what is idempotent. DEADLINE_EXCEEDED is not retryable (the time is over), RESOURCE_EXHAUSTED neither (the message is
// too large).
bool IsRetryable(const absl::Status& status);

}  // namespace leeway

#endif  // LEEWAY_RPC_STATUS_MAPPING_H_
