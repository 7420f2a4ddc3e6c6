#ifndef LEEWAY_BASE_HASH_H_
#define LEEWAY_BASE_HASH_H_

// Content digests against accidents (not against attackers): XXH3 of xxHash.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace leeway {

// xxh3-128 as 32 lower-case hexadecimal digits.
std::string Digest128(const void* data, size_t size_bytes);
// xxh3-64.
uint64_t Hash64(const void* data, size_t size_bytes);

// The same digest over bytes that arrive in pieces.
class Digest128Stream {
 public:
  Digest128Stream();
  ~Digest128Stream();
  void Update(const void* data, size_t size_bytes);
  std::string Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leeway

#endif  // LEEWAY_BASE_HASH_H_
