#include "queue/wire/trajectory_bytes.h"

#include <cstdint>
#include <cstring>

#include "queue/wire/wire_reader.h"

namespace leeway {
namespace {

// Shorter trajectories are left to protobuf: what follows costs some calls more.
constexpr uint64_t kManyIds = 256;
constexpr size_t kManyBytes = 4096;

// ---- writing --------------------------------------------------------------------------------------------------------

void AppendVarint(uint64_t value, std::string* bytes) {
  for (; value >= 0x80; value >>= 7) bytes->push_back(static_cast<char>(value | 0x80));
  bytes->push_back(static_cast<char>(value));
}

// The largest number, and one, that three bytes of a varint hold.
constexpr uint32_t kThreeBytes = 1 << 21;

// Four at a time; false when one of them does not fit into three bytes.
bool SizeOfIds(const google::protobuf::RepeatedField<int32_t>& ids, uint64_t* size) {
  using Words = int32_t __attribute__((vector_size(16)));
  const int32_t* at = ids.data();
  const int32_t* const end = at + ids.size();
  Words longer{}, unfit{};
  for (; end - at >= 4; at += 4) {
    Words words;
    std::memcpy(&words, at, sizeof(words));
    longer -= (words >= 0x80) + (words >= 0x4000);
    unfit |= (words < 0) | (words >= static_cast<int32_t>(kThreeBytes));
  }
  *size = static_cast<uint64_t>(ids.size());
  for (int lane = 0; lane < 4; ++lane) *size += static_cast<uint64_t>(longer[lane]);
  bool fits = (unfit[0] | unfit[1] | unfit[2] | unfit[3]) == 0;
  for (; at < end; ++at) {
    *size += (*at >= 0x80) + (*at >= 0x4000);
    fits &= static_cast<uint32_t>(*at) < kThreeBytes;
  }
  return fits;
}

// Writes up to three bytes beyond what it returns as the end.
char* WriteIds(const google::protobuf::RepeatedField<int32_t>& ids, char* to) {
  for (const int32_t id : ids) {
    const uint32_t value = static_cast<uint32_t>(id);
    const uint32_t is_two = value >= 0x80, is_three = value >= 0x4000;
    const uint32_t spread = (value & 0x7f) | (value & 0x3f80) << 1 | (value & 0x1fc000) << 2;
    const uint32_t encoded = spread | is_two << 7 | is_three << 15;
    std::memcpy(to, &encoded, sizeof(encoded));
    to += 1 + is_two + is_three;
  }
  return to;
}

bool AppendSpan(const v1::Span& span, std::string* bytes) {
  uint64_t ids_size = 0;
  if (!SizeOfIds(span.ids(), &ids_size)) return false;
  v1::Span rest;
  rest.set_sampled(span.sampled());
  rest.set_temperature(span.temperature());
  *rest.mutable_versions() = span.versions();
  *rest.mutable_legal_ids() = span.legal_ids();
  std::string head;
  rest.AppendToString(&head);
  const uint64_t logprobs_size = sizeof(float) * static_cast<uint64_t>(span.logprobs_size());
  if (ids_size > 0) {
    head.push_back(static_cast<char>(WireTag(2, kWireBytes)));
    AppendVarint(ids_size, &head);
  }
  std::string middle;
  if (logprobs_size > 0) {
    middle.push_back(static_cast<char>(WireTag(3, kWireBytes)));
    AppendVarint(logprobs_size, &middle);
  }
  bytes->push_back(static_cast<char>(WireTag(4, kWireBytes)));
  AppendVarint(head.size() + ids_size + middle.size() + logprobs_size, bytes);
  bytes->append(head);
  const size_t ids_at = bytes->size();
  bytes->resize(ids_at + ids_size + sizeof(uint32_t));
  WriteIds(span.ids(), bytes->data() + ids_at);
  bytes->resize(ids_at + ids_size);
  bytes->append(middle);
  bytes->append(reinterpret_cast<const char*>(span.logprobs().data()), logprobs_size);
  return true;
}

// Everything but the spans.
v1::Trajectory WithoutSpans(const v1::Trajectory& trajectory) {
  v1::Trajectory rest;
  if (trajectory.has_key()) *rest.mutable_key() = trajectory.key();
  rest.set_evaluation(trajectory.evaluation());
  rest.set_outcome(trajectory.outcome());
  rest.set_terminal(trajectory.terminal());
  rest.set_stop_reason(trajectory.stop_reason());
  if (trajectory.has_score()) *rest.mutable_score() = trajectory.score();
  if (trajectory.has_failure()) *rest.mutable_failure() = trajectory.failure();
  rest.set_turns(trajectory.turns());
  rest.set_kv_cache_consistent(trajectory.kv_cache_consistent());
  rest.set_environment_seconds(trajectory.environment_seconds());
  return rest;
}

// ---- reading --------------------------------------------------------------------------------------------------------

// A bit for each of the 64 bytes at `from`: whether a number ends there.
uint64_t EndsOf64(const char* from) {
  uint64_t ends = 0;
  for (int i = 0; i < 8; ++i) {
    uint64_t word;
    std::memcpy(&word, from + 8 * i, sizeof(word));
    // The top bits of eight bytes side by side.
    ends |= (((~word & 0x8080808080808080u) >> 7) * 0x0102040810204080u >> 56) << (8 * i);
  }
  return ends;
}

// How many numbers end in `bytes`, eight bytes at a time.
int CountEnds(absl::string_view bytes) {
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  uint64_t count = 0;
  for (; end - at >= 8; at += 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    count += ((~word & 0x8080808080808080u) >> 7) * 0x0101010101010101u >> 56;
  }
  for (; at < end; ++at) count += static_cast<int8_t>(*at) >= 0;
  return static_cast<int>(count);
}

// Reads packed ids of up to four bytes each.
bool ReadIds(absl::string_view bytes, google::protobuf::RepeatedField<int32_t>* ids) {
  if (bytes.empty()) return true;
  const char* const begin = bytes.data();
  const char* const end = begin + bytes.size();
  if (static_cast<int8_t>(end[-1]) < 0) return false;
  const int count = CountEnds(bytes);
  const int before = ids->size();
  ids->Reserve(before + count);
  int32_t* to = ids->AddNAlreadyReserved(count);
  const char* start = begin;
  bool all_fit = true;
  const auto read = [&](const char* last) {
    static constexpr uint32_t kMasks[4] = {0x7f, 0x7f7f, 0x7f7f7f, 0x7f7f7f7f};
    const int64_t more = last - start;
    all_fit &= more < 4;
    uint32_t word;
    std::memcpy(&word, start, sizeof(word));
    word &= kMasks[more & 3];
    *to++ =
        static_cast<int32_t>((word & 0x7f) | (word & 0x7f00) >> 1 | (word & 0x7f0000) >> 2 | (word & 0x7f000000) >> 3);
    start = last + 1;
  };
  // Where numbers end is found out for 64 bytes at a time, so that no number waits for the one before.
  const char* block = begin;
  for (; end - block >= 64 + 4; block += 64) {
    for (uint64_t ends = EndsOf64(block); ends != 0; ends &= ends - 1) read(block + __builtin_ctzll(ends));
  }
  // The rest, where four bytes can be read behind each start.
  char rest[64 + 4 + 4 + 8] = {};
  if (end - start > 64 + 4 + 4) return false;
  const size_t size = static_cast<size_t>(end - start);
  std::memcpy(rest, start, size);
  start = rest;
  for (const char* p = rest; p < rest + size; ++p) {
    if (static_cast<int8_t>(*p) >= 0) read(p);
  }
  return all_fit;
}

bool ReadSpan(absl::string_view bytes, std::string* rest, v1::Span* span) {
  rest->clear();
  WireReader reader(bytes);
  while (!reader.done()) {
    const char* const start = reader.position();
    uint32_t tag = 0;
    absl::string_view packed;
    if (!reader.Tag(&tag)) return false;
    if (tag == WireTag(2, kWireBytes)) {
      if (!reader.Bytes(&packed) || !ReadIds(packed, span->mutable_ids())) return false;
    } else if (tag == WireTag(3, kWireBytes)) {
      if (!reader.Bytes(&packed) || packed.size() % sizeof(float) != 0) return false;
      const int count = static_cast<int>(packed.size() / sizeof(float));
      span->mutable_logprobs()->Reserve(span->logprobs_size() + count);
      if (count > 0) {
        std::memcpy(span->mutable_logprobs()->AddNAlreadyReserved(count), packed.data(), packed.size());
      }
    } else if (tag >> 3 == 2 || tag >> 3 == 3 || !reader.Skip(tag)) {
      // Unpacked numbers would have to be merged in order.
      return false;
    } else {
      rest->append(start, static_cast<size_t>(reader.position() - start));
    }
  }
  return span->MergeFromString(*rest);
}

bool ParseQuickly(absl::string_view bytes, v1::Trajectory* trajectory) {
  std::string rest, rest_of_span;
  WireReader reader(bytes);
  while (!reader.done()) {
    const char* const start = reader.position();
    uint32_t tag = 0;
    if (!reader.Tag(&tag)) return false;
    if (tag == WireTag(4, kWireBytes)) {
      absl::string_view span;
      if (!reader.Bytes(&span) || !ReadSpan(span, &rest_of_span, trajectory->add_spans())) return false;
      continue;
    }
    if (!reader.Skip(tag)) return false;
    rest.append(start, static_cast<size_t>(reader.position() - start));
  }
  return trajectory->MergeFromString(rest);
}

}  // namespace

std::string SerializeTrajectory(const v1::Trajectory& trajectory) {
  uint64_t ids = 0;
  for (const v1::Span& span : trajectory.spans()) ids += static_cast<uint64_t>(span.ids_size());
  if (ids < kManyIds) return trajectory.SerializeAsString();
  std::string bytes = WithoutSpans(trajectory).SerializeAsString();
  // Ids below 2^21 take three bytes, log-probabilities four.
  bytes.reserve(bytes.size() + 7 * ids + 64 * static_cast<uint64_t>(trajectory.spans_size()));
  for (const v1::Span& span : trajectory.spans()) {
    if (!AppendSpan(span, &bytes)) return trajectory.SerializeAsString();
  }
  return bytes;
}

bool ParseTrajectory(absl::string_view bytes, v1::Trajectory* trajectory) {
  trajectory->Clear();
  if (bytes.size() >= kManyBytes) {
    if (ParseQuickly(bytes, trajectory)) return true;
    trajectory->Clear();
  }
  return trajectory->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace leeway
