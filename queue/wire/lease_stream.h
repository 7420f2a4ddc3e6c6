#ifndef LEEWAY_QUEUE_WIRE_LEASE_STREAM_H_
#define LEEWAY_QUEUE_WIRE_LEASE_STREAM_H_

// A leased batch as the messages of LeaseBatch, and back. Plain classes: no gRPC, no threads.

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "leeway/v1/queue.pb.h"
#include "queue/core/queue_core.h"
#include "queue/queue_client.h"
#include "rpc/chunks.h"
#include "rpc/streams/payload_message.h"

namespace leeway {

// Cuts a batch into messages of about `max_chunk_bytes`: small trajectories share one, large ones take several.
class LeaseCutter {
 public:
  LeaseCutter(LeaseResult lease, uint64_t max_chunk_bytes);

  // Fills the next message, a v1::LeaseBatchResponse (empty before); false when there is none left. An empty batch is
  // one message with the cause. Reads trajectories from the store one by one: DATA_LOSS names the one that is damaged.
  absl::StatusOr<bool> Next(PayloadMessage* message);
  // After an error: the group of the damaged trajectory.
  const LeasedGroup& group() const { return lease_.groups[group_]; }

 private:
  const LeaseResult lease_;
  const uint64_t max_chunk_bytes_;
  // What comes next: byte `offset_` of member `member_` of group `group_`.
  size_t group_ = 0;
  size_t member_ = 0;
  uint64_t offset_ = 0;
  // The bytes of that member; null before they are read.
  Payload payload_;
  bool done_ = false;
};

// Puts the messages of one call together again. Every error is DATA_LOSS and names what is wrong.
class LeaseJoiner {
 public:
  LeaseJoiner(uint64_t max_trajectory_bytes, uint64_t max_chunk_bytes)
      : assembler_(max_trajectory_bytes, max_chunk_bytes) {}

  // Moves from `response`.
  absl::Status Add(v1::LeaseBatchResponse* response);
  // After the last message: a whole batch, or an empty one with its cause.
  absl::StatusOr<LeasedBatch> Finish();

 private:
  LeasedBatch batch_;
  std::set<uint64_t> zero_advantage_;
  ChunkAssembler assembler_;
  // Numbers the trajectories, so that the assembler can tell them apart.
  uint64_t trajectories_ = 0;
  bool complete_ = false;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_WIRE_LEASE_STREAM_H_
