#include "queue/door/validation.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

using Result = std::optional<Rejection>;

constexpr size_t kLongestName = 64;
constexpr size_t kLongestText = 512;

template <typename... Parts>
Rejection Reject(const char* code, const Parts&... message) {
  return Rejection{code, absl::StrCat(message...)};
}

#define LEEWAY_RETURN_IF_REJECTED(expr)              \
  do {                                               \
    if (Result rejection = (expr)) return rejection; \
  } while (false)

// Codes: key_unset, member_out_of_range
Result CheckKey(const v1::Trajectory& trajectory, const ValidationLimits& limits) {
  const v1::EpisodeKey& key = trajectory.key();
  if (key.ticket() == 0) return Reject("key_unset", "key.ticket is unset");
  if (key.issue() == 0) return Reject("key_unset", "key.issue is unset");
  if (key.attempt() == 0) return Reject("key_unset", "key.attempt is unset");
  // Evaluation episodes are no groups: their members are the evaluation plan's.
  if (!trajectory.evaluation() && key.member() >= limits.group_size) {
    return Reject("member_out_of_range", "key.member: ", key.member(), " of a group of ", limits.group_size);
  }
  return std::nullopt;
}

// Codes: outcome_unset, failure_missing, failure_code, failure_unexpected, terminal_unset, stop_reason_unset,
// environment_seconds
Result CheckOutcome(const v1::Trajectory& trajectory) {
  if (!std::isfinite(trajectory.environment_seconds()) || trajectory.environment_seconds() < 0) {
    return Reject("environment_seconds", "environment_seconds: ", trajectory.environment_seconds(), " is no duration");
  }
  switch (trajectory.outcome()) {
    case v1::FAILED:
      if (!trajectory.has_failure()) return Reject("failure_missing", "failure is unset although outcome is FAILED");
      if (trajectory.failure().fault() == v1::Failure::FAULT_UNSPECIFIED) {
        return Reject("failure_missing", "failure.fault is unset");
      }
      if (trajectory.failure().code().empty()) return Reject("failure_missing", "failure.code is empty");
      if (!IsFailureCode(trajectory.failure().code())) {
        return Reject("failure_code", "failure.code: \"", trajectory.failure().code(),
                      "\" is not 1 to 64 of a-z, 0-9 and '_'");
      }
      return std::nullopt;
    case v1::COMPLETED:
      if (trajectory.has_failure()) {
        return Reject("failure_unexpected", "failure is set although outcome is COMPLETED");
      }
      if (trajectory.terminal() != v1::TERMINATED && trajectory.terminal() != v1::TRUNCATED) {
        return Reject("terminal_unset", "terminal: ", v1::Terminal_Name(trajectory.terminal()),
                      " although outcome is COMPLETED");
      }
      if (trajectory.stop_reason() == v1::STOP_REASON_UNSPECIFIED) {
        return Reject("stop_reason_unset", "stop_reason is unset although outcome is COMPLETED");
      }
      return std::nullopt;
    default:
      return Reject("outcome_unset", "outcome: ", v1::Outcome_Name(trajectory.outcome()));
  }
}

// Codes: score_unset, reward_missing, reward_unexpected, reward_not_finite, score_of_failure
Result CheckScore(const v1::Trajectory& trajectory) {
  const v1::Score& score = trajectory.score();
  const bool is_scored = score.status() == v1::Score::SCORED;
  if (trajectory.outcome() == v1::FAILED && is_scored) {
    return Reject("score_of_failure", "score.status: SCORED although outcome is FAILED");
  }
  if (trajectory.outcome() == v1::COMPLETED && score.status() == v1::Score::STATUS_UNSPECIFIED) {
    return Reject("score_unset", "score.status is unset");
  }
  if (is_scored && !score.has_reward()) {
    return Reject("reward_missing", "score.reward is unset although score.status is SCORED");
  }
  if (!is_scored && score.has_reward()) {
    return Reject("reward_unexpected", "score.reward is set although score.status is ",
                  v1::Score::Status_Name(score.status()));
  }
  if (score.has_reward() && !std::isfinite(score.reward())) {
    return Reject("reward_not_finite", "score.reward: ", score.reward(), " is not finite");
  }
  for (const auto& [name, value] : score.parts()) {
    if (!std::isfinite(value)) {
      return Reject("reward_not_finite", "score.parts[", name, "]: ", value, " is not finite");
    }
  }
  return std::nullopt;
}

// Codes: id_out_of_vocabulary
Result CheckIds(const google::protobuf::RepeatedField<int32_t>& ids, const std::string& path,
                const ValidationLimits& limits) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= limits.vocabulary_size) {
      return Reject("id_out_of_vocabulary", path, "[", i, "]: ", ids[i], " in a vocabulary of ",
                    limits.vocabulary_size);
    }
  }
  return std::nullopt;
}

// Codes: given_span_with_samples
Result CheckGiven(const v1::Span& span, const std::string& path) {
  const char* field = span.logprobs_size() > 0    ? "logprobs"
                      : span.versions_size() > 0  ? "versions"
                      : span.legal_ids_size() > 0 ? "legal_ids"
                      : span.temperature() != 0   ? "temperature"
                                                  : nullptr;
  if (field == nullptr) return std::nullopt;
  return Reject("given_span_with_samples", path, ".", field, " is set although the span was not sampled");
}

// Codes: logprobs_length, logprob_not_finite, logprob_positive
Result CheckLogprobs(const v1::Span& span, const std::string& path) {
  if (span.logprobs_size() != span.ids_size()) {
    return Reject("logprobs_length", path, ".logprobs has ", span.logprobs_size(), " entries for ", span.ids_size(),
                  " ids");
  }
  for (int i = 0; i < span.logprobs_size(); ++i) {
    const float logprob = span.logprobs(i);
    if (!std::isfinite(logprob)) {
      return Reject("logprob_not_finite", path, ".logprobs[", i, "]: ", logprob, " is not finite");
    }
    if (logprob > 0) return Reject("logprob_positive", path, ".logprobs[", i, "]: ", logprob, " is greater than 0");
  }
  return std::nullopt;
}

// Codes: versions_length, version_unset
Result CheckVersions(const v1::Span& span, const std::string& path) {
  uint64_t tokens = 0;
  for (int i = 0; i < span.versions_size(); ++i) {
    const v1::VersionRun& run = span.versions(i);
    if (run.weights().lineage() == 0 || run.weights().version() == 0) {
      return Reject("version_unset", path, ".versions[", i, "].weights is unset");
    }
    if (run.count() == 0) return Reject("versions_length", path, ".versions[", i, "].count is 0");
    tokens += run.count();
  }
  if (tokens == static_cast<uint64_t>(span.ids_size())) return std::nullopt;
  return Reject("versions_length", path, ".versions cover ", tokens, " tokens of ", span.ids_size());
}

// Codes: temperature, legal_ids_order, sampled_illegal_id
Result CheckSampling(const v1::Span& span, const std::string& path, const ValidationLimits& limits) {
  if (!std::isfinite(span.temperature()) || span.temperature() <= 0) {
    return Reject("temperature", path, ".temperature: ", span.temperature(), " is not greater than 0");
  }
  if (span.legal_ids_size() == 0) return std::nullopt;
  LEEWAY_RETURN_IF_REJECTED(CheckIds(span.legal_ids(), path + ".legal_ids", limits));
  for (int i = 1; i < span.legal_ids_size(); ++i) {
    if (span.legal_ids(i) <= span.legal_ids(i - 1)) {
      return Reject("legal_ids_order", path, ".legal_ids[", i, "]: ", span.legal_ids(i), " after ",
                    span.legal_ids(i - 1), " is not ascending");
    }
  }
  for (int i = 0; i < span.ids_size(); ++i) {
    if (!std::binary_search(span.legal_ids().begin(), span.legal_ids().end(), span.ids(i))) {
      return Reject("sampled_illegal_id", path, ".ids[", i, "]: ", span.ids(i), " is not among legal_ids");
    }
  }
  return std::nullopt;
}

// Codes: sampled_span_empty, no_sampled_tokens
Result CheckSpans(const v1::Trajectory& trajectory, const ValidationLimits& limits) {
  bool any_sampled = false;
  for (int i = 0; i < trajectory.spans_size(); ++i) {
    const v1::Span& span = trajectory.spans(i);
    const std::string path = absl::StrCat("spans[", i, "]");
    LEEWAY_RETURN_IF_REJECTED(CheckIds(span.ids(), path + ".ids", limits));
    if (!span.sampled()) {
      LEEWAY_RETURN_IF_REJECTED(CheckGiven(span, path));
      continue;
    }
    if (span.ids_size() == 0) return Reject("sampled_span_empty", path, ".ids is empty although the span is sampled");
    any_sampled = true;
    LEEWAY_RETURN_IF_REJECTED(CheckLogprobs(span, path));
    LEEWAY_RETURN_IF_REJECTED(CheckVersions(span, path));
    LEEWAY_RETURN_IF_REJECTED(CheckSampling(span, path, limits));
  }
  if (trajectory.outcome() == v1::COMPLETED && !any_sampled) {
    return Reject("no_sampled_tokens", "spans: none is sampled although outcome is COMPLETED");
  }
  return std::nullopt;
}

bool IsName(absl::string_view text, bool (*is_allowed)(char)) {
  return !text.empty() && text.size() <= kLongestName && std::all_of(text.begin(), text.end(), is_allowed);
}

}  // namespace

bool IsFailureCode(absl::string_view text) {
  return IsName(text, [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_'; });
}

bool IsWorkerName(absl::string_view text) {
  return IsName(
      text, [](char c) { return absl::ascii_isalnum(c) || absl::string_view("-_.:").find(c) != std::string::npos; });
}

std::string CutText(absl::string_view text) {
  if (text.size() <= kLongestText) return std::string(text);
  size_t size = kLongestText;
  while (size > 0 && (text[size] & 0xC0) == 0x80) --size;
  return absl::StrCat(text.substr(0, size), "...");
}

std::string Rejection::ToString() const { return CutText(absl::StrCat(code, ": ", message)); }

std::optional<Rejection> ValidateAllButSpans(const v1::Trajectory& trajectory, const ValidationLimits& limits) {
  LEEWAY_RETURN_IF_REJECTED(CheckKey(trajectory, limits));
  LEEWAY_RETURN_IF_REJECTED(CheckOutcome(trajectory));
  return CheckScore(trajectory);
}

std::optional<Rejection> ValidateTrajectory(const v1::Trajectory& trajectory, const ValidationLimits& limits) {
  LEEWAY_RETURN_IF_REJECTED(ValidateAllButSpans(trajectory, limits));
  return CheckSpans(trajectory, limits);
}

}  // namespace leeway
