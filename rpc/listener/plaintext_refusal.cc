#include "rpc/listener/plaintext_refusal.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rpc/listener/first_bytes.h"

namespace leeway {
namespace {

// Frame types and flags of RFC 9113, section 6.
constexpr uint8_t kHeaders = 1, kSettings = 4, kPing = 6;
constexpr uint8_t kAck = 0x1, kEndStream = 0x1, kEndHeaders = 0x4;
constexpr size_t kFrameHeaderBytes = 9;

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, absl::string_view payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(payload.size() >> shift));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  for (const int shift : {24, 16, 8, 0}) frame.push_back(static_cast<char>(stream >> shift));
  frame.append(payload.data(), payload.size());
  return frame;
}

// A string of HPACK without Huffman code: its length in a prefix of 7 bits (RFC 7541, section 5).
std::string HpackString(absl::string_view text) {
  constexpr size_t kPrefix = 127;
  std::string out;
  if (text.size() < kPrefix) {
    out.push_back(static_cast<char>(text.size()));
  } else {
    out.push_back(static_cast<char>(kPrefix));
    size_t rest = text.size() - kPrefix;
    for (; rest >= 128; rest /= 128) out.push_back(static_cast<char>(rest % 128 + 128));
    out.push_back(static_cast<char>(rest));
  }
  out.append(text.data(), text.size());
  return out;
}

// A literal header field that enters no table.
std::string Field(absl::string_view name, absl::string_view value) {
  return absl::StrCat(std::string(1, '\0'), HpackString(name), HpackString(value));
}

}  // namespace

PlaintextRefusal::PlaintextRefusal(int grpc_status, std::string message)
    : headers_(absl::StrCat(Field(":status", "200"), Field("content-type", "application/grpc"),
                            Field("grpc-status", absl::StrCat(grpc_status)), Field("grpc-message", message))) {
  LEEWAY_CHECK(message.size() <= 200) << "a message of " << message.size() << " characters";
}

std::string PlaintextRefusal::Greeting() const { return Frame(kSettings, 0, 0, ""); }

std::string PlaintextRefusal::Answer(uint32_t stream) {
  if (++answers_ >= kMaxAnswers) is_over_ = true;
  return Frame(kHeaders, kEndStream | kEndHeaders, stream, headers_);
}

std::string PlaintextRefusal::OnBytes(absl::string_view bytes) {
  std::string out;
  buffer_.append(bytes.data(), bytes.size());
  if (!has_preface_) {
    if (buffer_.size() < kPrefaceBytes) return out;
    buffer_.erase(0, kPrefaceBytes);
    has_preface_ = true;
  }
  size_t at = 0;
  while (!is_over_ && buffer_.size() - at >= kFrameHeaderBytes) {
    const auto byte = [&](size_t index) { return static_cast<uint8_t>(buffer_[at + index]); };
    const size_t size = byte(0) << 16 | byte(1) << 8 | byte(2);
    if (size > kMaxFrameBytes) {
      is_over_ = true;
      break;
    }
    if (buffer_.size() - at < kFrameHeaderBytes + size) break;
    const uint8_t type = byte(3), flags = byte(4);
    const uint32_t stream = (byte(5) & 0x7fu) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
    if (type == kHeaders) out += Answer(stream);
    if (type == kSettings && (flags & kAck) == 0) out += Frame(kSettings, kAck, 0, "");
    if (type == kPing && (flags & kAck) == 0)
      out += Frame(kPing, kAck, 0, absl::string_view(buffer_).substr(at + kFrameHeaderBytes, size));
    at += kFrameHeaderBytes + size;
  }
  buffer_.erase(0, at);
  return out;
}

}  // namespace leeway
