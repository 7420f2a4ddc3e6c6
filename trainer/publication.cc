#include "trainer/publication.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "model/weight_format.h"

namespace leeway {
namespace {

bool IsAway(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kDeadlineExceeded;
}

}  // namespace

absl::StatusOr<PublishFacts> Publication::Publish(const v1::WeightsVersion& weights, absl::Span<const float> parameters,
                                                  const std::vector<uint64_t>& tickets, bool initial) {
  const bool is_bf16 = options_.sharding.bf16_parameters;
  std::vector<uint16_t> halves(is_bf16 ? parameters.size() : 0);
  // They are bf16 already: nothing is rounded here.
  if (is_bf16) WeightSpan<float>(parameters).CopyTo(halves.data());
  const auto* const all = is_bf16 ? reinterpret_cast<const std::byte*>(halves.data())
                                  : reinterpret_cast<const std::byte*>(parameters.data());
  const size_t width = is_bf16 ? sizeof(uint16_t) : sizeof(float);
  std::vector<TensorView> views;
  for (const ParameterInfo& parameter : layout_) {
    views.push_back(
        {parameter.name,
         parameter.shape,
         is_bf16 ? "BF16" : "F32",
         {all + static_cast<size_t>(parameter.offset) * width, static_cast<size_t>(parameter.element_count) * width}});
  }
  LEEWAY_FAILPOINT("trainer_in_publish");
  LEEWAY_ASSIGN_OR_RETURN(const PreparedPublish prepared,
                          publisher_->Prepare(weights, views, options_.publish_timeout));
  absl::Status fenced = FenceMembers(weights, prepared.fenced);
  if (!fenced.ok()) {
    publisher_->Abandon(weights, std::string(fenced.message()));
    return fenced;
  }
  v1::CommitRequest request;
  request.set_lineage(weights.lineage());
  request.set_version(weights.version());
  request.set_digest(prepared.manifest.digest());
  for (const v1::WorkerIdentity& member : prepared.members) *request.add_members() = member;
  for (uint64_t ticket : tickets) request.add_tickets(ticket);
  request.set_initial(initial);
  LEEWAY_FAILPOINT("trainer_before_commit");
  const absl::StatusOr<v1::LedgerCounts> counts =
      (*patience_)(absl::StrCat("Commit of version ", weights.version()),
                   [&] { return queue_->Commit(request, options_.queue_timeout); });
  if (!counts.ok()) {
    publisher_->Abandon(weights, std::string(counts.status().message()));
    return counts.status();
  }
  publisher_->Commit(weights);
  LEEWAY_FAILPOINT("trainer_after_commit");
  PublishFacts facts;
  facts.counts = *counts;
  facts.digest = prepared.manifest.digest();
  facts.seconds = prepared.seconds;
  facts.bytes = prepared.bytes_sent;
  facts.members = prepared.members.size();
  facts.fenced = prepared.fenced.size();
  return facts;
}

absl::Status Publication::FenceMembers(const v1::WeightsVersion& weights,
                                       const std::vector<PreparedPublish::Fenced>& fenced) {
  for (const PreparedPublish::Fenced& member : fenced) {
    LEEWAY_LOG_WARNING("receiver {} failed in the publish of version {}: {}", member.name, weights.version(),
                       member.reason);
    const absl::Status status = (*patience_)("FenceWorker", [&] {
      return queue_->FenceWorker(weights.lineage(), member.identity, member.reason, options_.queue_timeout);
    });
    if (status.code() == absl::StatusCode::kAborted || IsAway(status)) return status;
    // The queue may have lost that worker already; then there is nothing to fence.
    if (!status.ok()) LEEWAY_LOG_WARNING("the queue did not fence {}: {}", member.name, status.ToString());
  }
  return absl::OkStatus();
}

}  // namespace leeway
