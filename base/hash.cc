#include "base/hash.h"

#include <xxhash.h>

#include "absl/strings/str_format.h"

namespace leeway {
namespace {
std::string Hexadecimal(XXH128_hash_t hash) { return absl::StrFormat("%016x%016x", hash.high64, hash.low64); }
}  // namespace

struct Digest128Stream::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

std::string Digest128(const void* data, size_t size_bytes) { return Hexadecimal(XXH3_128bits(data, size_bytes)); }

uint64_t Hash64(const void* data, size_t size_bytes) { return XXH3_64bits(data, size_bytes); }

Digest128Stream::Digest128Stream() : state_(std::make_unique<State>()) { XXH3_128bits_reset(state_->xxh); }
Digest128Stream::~Digest128Stream() = default;

void Digest128Stream::Update(const void* data, size_t size_bytes) {
  XXH3_128bits_update(state_->xxh, data, size_bytes);
}

std::string Digest128Stream::Finish() const { return Hexadecimal(XXH3_128bits_digest(state_->xxh)); }

}  // namespace leeway
