#include "rpc/listener/first_bytes.h"

namespace leeway {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
static_assert(kPreface.size() == kPrefaceBytes);

// Record type "handshake" and the major version of all TLS.
constexpr absl::string_view kTlsRecord = "\x16\x03";

bool AgreesWith(absl::string_view bytes, absl::string_view whole) {
  return bytes.substr(0, whole.size()) == whole.substr(0, bytes.size());
}

}  // namespace

Speech Recognise(absl::string_view first_bytes) {
  if (AgreesWith(first_bytes, kPreface)) return first_bytes.size() < kPrefaceBytes ? Speech::kUnknown : Speech::kHttp2;
  if (AgreesWith(first_bytes, kTlsRecord))
    return first_bytes.size() < kTlsRecord.size() ? Speech::kUnknown : Speech::kTls;
  return Speech::kOther;
}

}  // namespace leeway
