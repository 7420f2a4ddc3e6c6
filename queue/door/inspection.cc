#include "queue/door/inspection.h"

#include <cmath>
#include <cstring>
#include <optional>

#include "queue/door/token_bytes.h"

namespace leeway {
namespace {

// The wire's types.
constexpr uint32_t kVarint = 0;
constexpr uint32_t kBytes = 2;
constexpr uint32_t kFixed32 = 5;
constexpr uint32_t TagOf(uint32_t field, uint32_t type) { return field << 3 | type; }

// Reads a serialised message from front to back. Every function is false at what it does not expect.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}
  bool done() const { return bytes_.empty(); }
  const char* position() const { return bytes_.data(); }

  bool Varint(uint64_t* value) {
    *value = 0;
    for (size_t i = 0; i < bytes_.size() && i < 9; ++i) {
      const uint64_t byte = static_cast<uint8_t>(bytes_[i]);
      *value |= (byte & 0x7f) << (7 * i);
      if (byte >= 0x80) continue;
      bytes_.remove_prefix(i + 1);
      return true;
    }
    return false;
  }
  // A tag of one byte: fields below 16.
  bool Tag(uint32_t* tag) {
    if (bytes_.empty() || static_cast<uint8_t>(bytes_[0]) >= 0x80) return false;
    *tag = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return true;
  }
  bool Bytes(absl::string_view* value) {
    uint64_t size = 0;
    return Varint(&size) && Take(size, value);
  }
  bool Float(float* value) {
    absl::string_view raw;
    if (!Take(sizeof(*value), &raw)) return false;
    std::memcpy(value, raw.data(), sizeof(*value));
    return true;
  }
  bool Skip(uint32_t tag) {
    uint64_t number = 0;
    absl::string_view ignored;
    switch (tag & 7) {
      case kVarint:
        return Varint(&number);
      case 1:
        return Take(8, &ignored);
      case kBytes:
        return Bytes(&ignored);
      case kFixed32:
        return Take(4, &ignored);
      default:
        return false;
    }
  }

 private:
  bool Take(uint64_t size, absl::string_view* value) {
    if (size > bytes_.size()) return false;
    *value = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }

  absl::string_view bytes_;
};

// Two numbers, each once, in order, none of them 0.
bool ReadWeights(absl::string_view bytes, uint64_t* lineage, uint64_t* version) {
  Reader reader(bytes);
  uint32_t tag = 0;
  if (!reader.Tag(&tag) || tag != TagOf(1, kVarint) || !reader.Varint(lineage)) return false;
  if (!reader.Tag(&tag) || tag != TagOf(2, kVarint) || !reader.Varint(version)) return false;
  return reader.done() && *lineage != 0 && *version != 0;
}

bool ReadRun(absl::string_view bytes, uint64_t* tokens, VersionUse* versions) {
  Reader reader(bytes);
  uint32_t tag = 0;
  absl::string_view weights;
  uint64_t lineage = 0, version = 0, count = 0;
  if (!reader.Tag(&tag) || tag != TagOf(1, kBytes) || !reader.Bytes(&weights)) return false;
  if (!ReadWeights(weights, &lineage, &version)) return false;
  if (!reader.Tag(&tag) || tag != TagOf(2, kVarint) || !reader.Varint(&count) || !reader.done()) return false;
  if (count == 0 || count > UINT32_MAX) return false;
  *tokens += count;
  AddVersion(lineage, version, versions);
  return true;
}

// A span whose fields come once each, in the order of their numbers, and that has no legal set.
bool ReadSpan(absl::string_view bytes, int32_t vocabulary_size, TrajectorySummary* summary) {
  Reader reader(bytes);
  uint32_t last = 0;
  uint64_t is_sampled = 0, versioned_tokens = 0;
  absl::string_view ids, logprobs;
  float temperature = 0;
  while (!reader.done()) {
    uint32_t tag = 0;
    if (!reader.Tag(&tag)) return false;
    const bool is_next = tag > last || (tag == last && tag == TagOf(4, kBytes));
    last = tag;
    bool is_read = false;
    if (tag == TagOf(1, kVarint)) is_read = reader.Varint(&is_sampled);
    if (tag == TagOf(2, kBytes)) is_read = reader.Bytes(&ids);
    if (tag == TagOf(3, kBytes)) is_read = reader.Bytes(&logprobs);
    if (tag == TagOf(4, kBytes)) {
      absl::string_view run;
      is_read = reader.Bytes(&run) && ReadRun(run, &versioned_tokens, &summary->versions);
    }
    if (tag == TagOf(5, kFixed32)) is_read = reader.Float(&temperature);
    if (!is_next || !is_read) return false;
  }
  const std::optional<uint64_t> count = CountIds(ids, vocabulary_size);
  if (!count.has_value()) return false;
  if (is_sampled == 0) return logprobs.empty() && versioned_tokens == 0 && temperature == 0;
  summary->sampled_tokens += *count;
  return *count > 0 && logprobs.size() == 4 * *count && versioned_tokens == *count && std::isfinite(temperature) &&
         temperature > 0 && AreLogprobs(logprobs);
}

}  // namespace

bool internal::InspectSpansInPlace(absl::string_view payload, const ValidationLimits& limits, Inspection* inspection) {
  TrajectorySummary spans;
  bool any_span = false;
  // What is not a span, for the parser.
  thread_local std::string rest;
  rest.clear();
  Reader reader(payload);
  while (!reader.done()) {
    const char* const start = reader.position();
    uint32_t tag = 0;
    if (!reader.Tag(&tag)) return false;
    if (tag == TagOf(4, kBytes)) {
      absl::string_view span;
      if (!reader.Bytes(&span) || !ReadSpan(span, limits.vocabulary_size, &spans)) return false;
      any_span = true;
      continue;
    }
    if (!reader.Skip(tag)) return false;
    rest.append(start, static_cast<size_t>(reader.position() - start));
  }
  thread_local v1::Trajectory trajectory;
  if (!any_span || !trajectory.ParseFromString(rest)) return false;
  if (trajectory.outcome() == v1::COMPLETED && spans.sampled_tokens == 0) return false;
  if (ValidateAllButSpans(trajectory, limits).has_value()) return false;
  inspection->summary = Summarize(trajectory);
  inspection->summary.sampled_tokens = spans.sampled_tokens;
  inspection->summary.versions = std::move(spans.versions);
  inspection->reject_reason.clear();
  return true;
}

Inspection InspectTrajectory(absl::string_view payload, const ValidationLimits& limits) {
  Inspection inspection;
  if (internal::InspectSpansInPlace(payload, limits, &inspection)) return inspection;
  inspection = {};
  v1::Trajectory trajectory;
  if (!trajectory.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    inspection.reject_reason = "malformed: the bytes are no Trajectory";
    return inspection;
  }
  if (const std::optional<Rejection> rejection = ValidateTrajectory(trajectory, limits)) {
    inspection.reject_reason = rejection->ToString();
  }
  inspection.summary = Summarize(trajectory);
  return inspection;
}

}  // namespace leeway
