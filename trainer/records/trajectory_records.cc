#include "trainer/records/trajectory_records.h"

#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace leeway {
namespace {

using nlohmann::ordered_json;

constexpr auto kReplaceBadText = ordered_json::error_handler_t::replace;

// Runs of the sampled tokens in order; neighbours of one version joined.
ordered_json VersionRuns(const v1::Trajectory& trajectory) {
  std::vector<std::vector<uint64_t>> runs;
  for (const v1::Span& span : trajectory.spans()) {
    for (const v1::VersionRun& run : span.versions()) {
      const uint64_t lineage = run.weights().lineage();
      const uint64_t version = run.weights().version();
      if (!runs.empty() && runs.back()[0] == lineage && runs.back()[1] == version) {
        runs.back()[2] += run.count();
      } else {
        runs.push_back({lineage, version, run.count()});
      }
    }
  }
  return runs;
}

ordered_json SpanValue(const v1::Span& span, const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids(span.ids().begin(), span.ids().end());
  const absl::StatusOr<std::string> text = tokenizer.Decode(ids);
  ordered_json value;
  value["sampled"] = span.sampled();
  value["text"] = text.ok() ? *text : absl::StrCat("(", std::string(text.status().message()), ")");
  value["ids"] = ids;
  if (!span.sampled()) return value;
  value["logprobs"] = std::vector<float>(span.logprobs().begin(), span.logprobs().end());
  value["temperature"] = span.temperature();
  if (span.legal_ids_size() > 0) {
    value["legal_ids"] = std::vector<int32_t>(span.legal_ids().begin(), span.legal_ids().end());
  }
  return value;
}

ordered_json TrajectoryValue(uint64_t step, const v1::Trajectory& trajectory, const Tokenizer& tokenizer) {
  ordered_json value;
  value["step"] = step;
  value["ticket"] = trajectory.key().ticket();
  value["issue"] = trajectory.key().issue();
  value["member"] = trajectory.key().member();
  value["attempt"] = trajectory.key().attempt();
  if (const std::optional<double> reward = TrainableReward(trajectory); reward.has_value()) value["reward"] = *reward;
  value["turns"] = trajectory.turns();
  value["versions"] = VersionRuns(trajectory);
  value["spans"] = ordered_json::array();
  for (const v1::Span& span : trajectory.spans()) value["spans"].push_back(SpanValue(span, tokenizer));
  return value;
}

ordered_json NumberOrText(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

}  // namespace

std::string FormatScheduleLine(uint64_t step, const LeasedBatch& batch) {
  ordered_json groups = ordered_json::array();
  for (const BatchGroup& group : batch.groups) {
    ordered_json members = ordered_json::array();
    for (const v1::Trajectory& member : group.members) members.push_back(VersionRuns(member));
    groups.push_back({{"ticket", group.ticket}, {"issue", group.issue}, {"members", std::move(members)}});
  }
  return ordered_json({{"step", step}, {"groups", std::move(groups)}}).dump();
}

std::string FormatTrajectoryLine(uint64_t step, const v1::Trajectory& trajectory, const Tokenizer& tokenizer) {
  return TrajectoryValue(step, trajectory, tokenizer).dump(-1, ' ', false, kReplaceBadText);
}

std::string FormatFailedStep(uint64_t step, const LeasedBatch& leased, const TrainBatch& batch,
                             absl::Span<const double> recomputed, const Tokenizer& tokenizer) {
  std::map<std::pair<uint64_t, uint32_t>, const v1::Trajectory*> by_key;
  for (const BatchGroup& group : leased.groups) {
    for (const v1::Trajectory& member : group.members) by_key[{group.ticket, member.key().member()}] = &member;
  }
  std::string lines;
  for (const TrainSequence& sequence : batch.sequences) {
    ordered_json value = TrajectoryValue(step, *by_key.at({sequence.ticket, sequence.member}), tokenizer);
    value["advantage"] = NumberOrText(sequence.advantage);
    ordered_json logprobs = ordered_json::array();
    for (int64_t i = sequence.begin; i < sequence.end && i < static_cast<int64_t>(recomputed.size()); ++i) {
      logprobs.push_back(NumberOrText(recomputed[i]));
    }
    value["recomputed_logprobs"] = std::move(logprobs);
    absl::StrAppend(&lines, value.dump(-1, ' ', false, kReplaceBadText), "\n");
  }
  return lines;
}

}  // namespace leeway
