#ifndef LEEWAY_QUEUE_STORE_RECORD_KEYS_H_
#define LEEWAY_QUEUE_STORE_RECORD_KEYS_H_

// The keys of the queue's records: a letter for the kind, then numbers, big-endian so that keys sort as the numbers do.
//
//   h                          v1::HeadRecord
//   r TICKET                   v1::RowRecord
//   f FIRST                    last ticket of a folded range, 8 bytes
//   d BLOCK                    bitmap of closed tickets: TicketSet::Block
//   l LINEAGE                  v1::LineageLife
//   w PRODUCER                 v1::WorkerRecord
//   a PRODUCER EPOCH SEQUENCE  v1::PushResponse: answers from this sequence number on
//   e LINEAGE VERSION          v1::EvaluationRecord

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"

namespace leeway {

enum class RecordKind : char {
  kHead = 'h',
  kRow = 'r',
  kFolded = 'f',
  kClosedBlock = 'd',
  kLineage = 'l',
  kWorker = 'w',
  kAnswers = 'a',
  kEvaluation = 'e',
};

inline std::string Fixed64(uint64_t number) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(number >> (56 - 8 * i) & 0xff);
  return bytes;
}

// REQUIRES at least 8 bytes from `offset` on.
inline uint64_t ReadFixed64(absl::string_view bytes, size_t offset = 0) {
  uint64_t number = 0;
  for (size_t i = 0; i < 8; ++i) number = number << 8 | static_cast<uint8_t>(bytes[offset + i]);
  return number;
}

inline std::string RecordKey(RecordKind kind, std::initializer_list<uint64_t> numbers = {}) {
  std::string key(1, static_cast<char>(kind));
  for (uint64_t number : numbers) key += Fixed64(number);
  return key;
}

// The i-th number of a key, 0 when it has fewer.
inline uint64_t KeyNumber(absl::string_view key, size_t i) {
  return key.size() < 1 + 8 * (i + 1) ? 0 : ReadFixed64(key, 1 + 8 * i);
}

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_RECORD_KEYS_H_
