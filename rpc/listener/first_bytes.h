#ifndef LEEWAY_RPC_LISTENER_FIRST_BYTES_H_
#define LEEWAY_RPC_LISTENER_FIRST_BYTES_H_

#include "absl/strings/string_view.h"

namespace leeway {

// What a client speaks, told from the first bytes that it sends. gRPC's and TLS's clients both speak first.
enum class Speech {
  kUnknown,  // too few bytes to tell
  kHttp2,    // the preface of HTTP/2 in plaintext, or its beginning as far as there is one
  kTls,      // a TLS handshake record
  kOther,    // neither
};

// How many bytes are looked at: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".
inline constexpr size_t kPrefaceBytes = 24;

Speech Recognise(absl::string_view first_bytes);

}  // namespace leeway

#endif  // LEEWAY_RPC_LISTENER_FIRST_BYTES_H_
