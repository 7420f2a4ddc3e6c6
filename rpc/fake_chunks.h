#ifndef LEEWAY_RPC_FAKE_CHUNKS_H_
#define LEEWAY_RPC_FAKE_CHUNKS_H_

// The sender's half of chunks.h, for tests: senders of the product write their messages as bytes (PayloadMessage).

#include <algorithm>
#include <cstdint>
#include <string>

namespace leeway {

// Fills `chunk` (a message with total_bytes, data and last) with the next piece of `payload`: at most `max_bytes` from
// byte `*offset` on, which moves behind it. An empty payload is one empty piece. Returns the piece's size.
template <class Chunk>
uint64_t CutChunk(const std::string& payload, uint64_t max_bytes, uint64_t* offset, Chunk* chunk) {
  const uint64_t size = std::min<uint64_t>(payload.size() - *offset, max_bytes);
  chunk->set_total_bytes(payload.size());
  chunk->set_data(payload.data() + *offset, size);
  *offset += size;
  chunk->set_last(*offset == payload.size());
  return size;
}

}  // namespace leeway

#endif  // LEEWAY_RPC_FAKE_CHUNKS_H_
