#include "queue/wire/lease_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {

LeaseCutter::LeaseCutter(LeaseResult lease, uint64_t max_chunk_bytes)
    : lease_(std::move(lease)), max_chunk_bytes_(max_chunk_bytes) {}

absl::StatusOr<bool> LeaseCutter::Next(PayloadMessage* message) {
  if (done_) return false;
  // The fields of the message, and of a chunk, that are not payload.
  v1::LeaseBatchResponse fields;
  v1::LeaseBatchChunk chunk;
  uint64_t room = max_chunk_bytes_;
  while (group_ < lease_.groups.size() && room > 0) {
    const LeasedGroup& group = lease_.groups[group_];
    if (member_ == group.members.size()) {
      if (group.zero_advantage) fields.add_zero_advantage_tickets(group.ticket);
      ++group_;
      member_ = 0;
      continue;
    }
    if (payload_ == nullptr) {
      LEEWAY_ASSIGN_OR_RETURN(payload_, group.members[member_]->Load());
    }
    const uint64_t left = payload_->size() - offset_;
    // A message that is nearly full is sent rather than topped up with a splinter of a large trajectory.
    if (room < max_chunk_bytes_ && left > room) break;
    const uint64_t size = std::min(left, room);
    chunk.set_ticket(group.ticket);
    chunk.set_issue(group.issue);
    // The member's number is in the trajectory; this is its place in the group.
    chunk.set_member(static_cast<uint32_t>(member_));
    chunk.set_total_bytes(payload_->size());
    chunk.set_last(size == left);
    message->AddElement(v1::LeaseBatchResponse::kChunksFieldNumber, chunk, v1::LeaseBatchChunk::kDataFieldNumber,
                        payload_, offset_, size);
    room -= size;
    offset_ += size;
    if (size == left) {
      ++member_;
      offset_ = 0;
      payload_.reset();
    }
  }
  done_ = group_ == lease_.groups.size();
  if (done_) {
    fields.set_cause(lease_.cause);
    fields.set_lag_limit(lease_.lag_limit);
    fields.set_batch_complete(!lease_.groups.empty());
  }
  message->AddFields(fields);
  return true;
}

absl::Status LeaseJoiner::Add(v1::LeaseBatchResponse* response) {
  for (v1::LeaseBatchChunk& chunk : *response->mutable_chunks()) {
    const absl::StatusOr<bool> whole = assembler_.Add(trajectories_, chunk.total_bytes(), chunk.data(), chunk.last());
    if (!whole.ok()) return absl::DataLossError(absl::StrCat("leased batch: ", std::string(whole.status().message())));
    if (!*whole) continue;
    ++trajectories_;
    if (batch_.groups.empty() || batch_.groups.back().ticket != chunk.ticket()) {
      batch_.groups.push_back({.ticket = chunk.ticket(), .issue = chunk.issue()});
    }
    v1::Trajectory& trajectory = batch_.groups.back().members.emplace_back();
    if (!trajectory.ParseFromString(assembler_.Take(chunk.mutable_data()))) {
      return absl::DataLossError(absl::StrCat("leased batch: group ", chunk.ticket(), " member ", chunk.member(),
                                              ": the bytes are no Trajectory"));
    }
  }
  zero_advantage_.insert(response->zero_advantage_tickets().begin(), response->zero_advantage_tickets().end());
  if (response->batch_complete() || !response->cause().empty()) {
    batch_.cause = response->cause();
    batch_.lag_limit = response->lag_limit();
    complete_ = true;
  }
  return absl::OkStatus();
}

absl::StatusOr<LeasedBatch> LeaseJoiner::Finish() {
  if (!complete_ || assembler_.in_progress()) {
    return absl::DataLossError(
        absl::StrCat("leased batch: the stream ended after ", trajectories_, " trajectories, before the batch did"));
  }
  for (BatchGroup& group : batch_.groups) group.zero_advantage = zero_advantage_.count(group.ticket) > 0;
  return std::move(batch_);
}

}  // namespace leeway
