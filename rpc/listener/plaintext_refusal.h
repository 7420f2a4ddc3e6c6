#ifndef LEEWAY_RPC_LISTENER_PLAINTEXT_REFUSAL_H_
#define LEEWAY_RPC_LISTENER_PLAINTEXT_REFUSAL_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace leeway {

// Tells a client that speaks plaintext HTTP/2 to a TLS port what is wrong, in the one language that it understands:
// just enough HTTP/2 to end each of its calls with a status. Otherwise it would see nothing but a closed connection.
// No socket, no thread; not thread-safe.
class PlaintextRefusal {
 public:
  // `message`: printable ASCII, at most 200 characters.
  PlaintextRefusal(int grpc_status, std::string message);

  // What to send first.
  std::string Greeting() const;
  // Takes what arrived (the client's preface first) and returns what to send. Never holds more than one frame of
  // `kMaxFrameBytes`.
  std::string OnBytes(absl::string_view bytes);
  // The client says what no client of HTTP/2 says, or was answered often enough: hang up.
  bool is_over() const { return is_over_; }

  static constexpr size_t kMaxFrameBytes = 16384;
  static constexpr int kMaxAnswers = 16;

 private:
  std::string Answer(uint32_t stream);

  const std::string headers_;
  std::string buffer_;
  bool has_preface_ = false;
  bool is_over_ = false;
  int answers_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_RPC_LISTENER_PLAINTEXT_REFUSAL_H_
