#include "queue/door/inspection.h"

#include <cmath>
#include <optional>

#include "queue/door/token_bytes.h"
#include "queue/wire/wire_reader.h"

namespace leeway {
namespace {

// Two numbers, each once, in order, none of them 0.
bool ReadWeights(absl::string_view bytes, uint64_t* lineage, uint64_t* version) {
  WireReader reader(bytes);
  uint32_t tag = 0;
  if (!reader.Tag(&tag) || tag != WireTag(1, kWireVarint) || !reader.Varint(lineage)) return false;
  if (!reader.Tag(&tag) || tag != WireTag(2, kWireVarint) || !reader.Varint(version)) return false;
  return reader.done() && *lineage != 0 && *version != 0;
}

bool ReadRun(absl::string_view bytes, uint64_t* tokens, VersionUse* versions) {
  WireReader reader(bytes);
  uint32_t tag = 0;
  absl::string_view weights;
  uint64_t lineage = 0, version = 0, count = 0;
  if (!reader.Tag(&tag) || tag != WireTag(1, kWireBytes) || !reader.Bytes(&weights)) return false;
  if (!ReadWeights(weights, &lineage, &version)) return false;
  if (!reader.Tag(&tag) || tag != WireTag(2, kWireVarint) || !reader.Varint(&count) || !reader.done()) return false;
  if (count == 0 || count > UINT32_MAX) return false;
  *tokens += count;
  AddVersion(lineage, version, versions);
  return true;
}

// A span whose fields come once each (but for runs of versions), and that has no legal set.
bool ReadSpan(absl::string_view bytes, int32_t vocabulary_size, TrajectorySummary* summary) {
  WireReader reader(bytes);
  uint32_t seen = 0;
  uint64_t is_sampled = 0, versioned_tokens = 0;
  absl::string_view ids, logprobs;
  float temperature = 0;
  while (!reader.done()) {
    uint32_t tag = 0;
    if (!reader.Tag(&tag)) return false;
    const uint32_t field = 1u << (tag >> 3);
    const bool is_first = (seen & field) == 0 || tag == WireTag(4, kWireBytes);
    seen |= field;
    bool is_read = false;
    if (tag == WireTag(1, kWireVarint)) is_read = reader.Varint(&is_sampled);
    if (tag == WireTag(2, kWireBytes)) is_read = reader.Bytes(&ids);
    if (tag == WireTag(3, kWireBytes)) is_read = reader.Bytes(&logprobs);
    if (tag == WireTag(4, kWireBytes)) {
      absl::string_view run;
      is_read = reader.Bytes(&run) && ReadRun(run, &versioned_tokens, &summary->versions);
    }
    if (tag == WireTag(5, kWireFixed32)) is_read = reader.Float(&temperature);
    if (!is_first || !is_read) return false;
  }
  if (!AreIds(ids, vocabulary_size)) return false;
  const uint64_t count = ids.size() / sizeof(int32_t);
  if (is_sampled == 0) return logprobs.empty() && versioned_tokens == 0 && temperature == 0;
  summary->sampled_tokens += count;
  return count > 0 && logprobs.size() == ids.size() && versioned_tokens == count && std::isfinite(temperature) &&
         temperature > 0 && AreLogprobs(logprobs);
}

}  // namespace

bool internal::InspectSpansInPlace(absl::string_view payload, const ValidationLimits& limits, Inspection* inspection) {
  TrajectorySummary spans;
  bool any_span = false;
  // What is not a span, for the parser.
  thread_local std::string rest;
  rest.clear();
  WireReader reader(payload);
  while (!reader.done()) {
    const char* const start = reader.position();
    uint32_t tag = 0;
    if (!reader.Tag(&tag)) return false;
    if (tag == WireTag(4, kWireBytes)) {
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
