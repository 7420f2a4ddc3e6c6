#ifndef LEEWAY_COLLECTIVE_COMMUNICATOR_H_
#define LEEWAY_COLLECTIVE_COMMUNICATOR_H_

// A fixed set of ranks that exchange raw memory (DESIGN 3.9): the one interface over threads of a process, processes on
// CPUs (Gloo) and GPUs (NCCL), without torch.
//
// Every rank of the communicator calls the same operations with the same sizes in the same order; each call blocks the
// caller until its own part is done. One caller at a time; Abort and counters from any thread.
//
// Sums have one order: rank 0..N-1 joined by a balanced binary tree, ((0+1)+(2+3)), element by element, whatever the
// implementation, the size or the chunking, and every rank gets the same bits. bf16 is summed in fp32 and rounded once.
//
// Failure: an operation that is not over within the communicator's timeout, or whose peer is gone, fails on every rank
// that waits for it with the same code and a message that names operation, its number and the missing ranks
// (DEADLINE_EXCEEDED, UNAVAILABLE), or the reason given to Abort (ABORTED). Ranks that call different operations get
// INTERNAL, which names both; arguments that cannot be meant, INVALID_ARGUMENT, on all ranks. A failed
// communicator stays failed: every later call returns the first error at once. Communicators that come from one another
// by Split fail together, so that no rank is left waiting in another one of them. Buffers hold nothing useful after a
// failure.

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ndarray.h"

namespace leeway {

enum class ReduceOp { kSum, kMax };

enum class Collective { kAllReduce, kReduceScatter, kAllGather, kAllToAll, kBroadcast, kSend, kReceive, kBarrier };
constexpr int kCollectiveCount = 8;
absl::string_view CollectiveName(Collective collective);

// What one rank did. Bytes are those that a ring sends per rank, by definition and not by measurement, so that they
// equal the closed forms: all-reduce 2n(N-1)/N, reduce-scatter, all-gather and all-to-all n(N-1)/N of the whole array's
// n bytes (uneven parts: the mean over the ranks, rounded down), broadcast n(N-1)/N, send n, receive and barrier 0.
struct CollectiveCounters {
  struct PerOperation {
    int64_t calls = 0;
    int64_t elements = 0;  // of the whole array
    int64_t bytes_sent = 0;
  };
  std::array<PerOperation, kCollectiveCount> operations;
  const PerOperation& of(Collective collective) const { return operations[static_cast<size_t>(collective)]; }
};

// The closed forms above, of one operation on an array of `array_bytes`, rounded down.
int64_t RingBytesSent(Collective collective, int64_t array_bytes, int size);

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "tensor_parallel", "data": in every error.
  virtual absl::string_view name() const = 0;
  // Of one operation.
  virtual absl::Duration timeout() const = 0;

  // In place, on all ranks. kSum: kF32, kF64, kBF16, kI64. kMax: the same.
  virtual absl::Status AllReduce(ReduceOp op, DType dtype, void* data, int64_t count) = 0;

  // `input` holds the parts of all ranks, rank 0's first, of counts[rank] elements; `output` gets the sum of this
  // rank's part. output may be this rank's place in input, nothing else of it. `counts` has size() entries, some
  // perhaps 0.
  virtual absl::Status ReduceScatter(ReduceOp op, DType dtype, const void* input, absl::Span<const int64_t> counts,
                                     void* output) = 0;

  // `output` gets the parts of all ranks, rank 0's first. `input` may be this rank's place in output.
  virtual absl::Status AllGather(DType dtype, const void* input, absl::Span<const int64_t> counts, void* output) = 0;

  // Sends send_counts[r] elements to rank r and gets receive_counts[r] from it, both laid out by rank. input and output
  // do not overlap. Counted as an array of what this rank sends, its own part included.
  virtual absl::Status AllToAll(DType dtype, const void* input, absl::Span<const int64_t> send_counts, void* output,
                                absl::Span<const int64_t> receive_counts) = 0;

  // From `root` to all, in place.
  virtual absl::Status Broadcast(DType dtype, void* data, int64_t count, int root) = 0;

  // Point to point; messages between two ranks arrive in the order sent. Send may wait for the peer's Receive: two
  // ranks that both send first wait until the timeout (AllToAll exchanges). A rank may not be its own peer.
  virtual absl::Status Send(DType dtype, const void* data, int64_t count, int peer) = 0;
  virtual absl::Status Receive(DType dtype, void* data, int64_t count, int peer) = 0;

  // Returns when all ranks have called it.
  virtual absl::Status Barrier() = 0;

  // Collective: ranks with the same `color` become one communicator named `name`, in the order of their ranks here.
  // Operations on it and on this one may be in flight at the same time.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, std::string name) = 0;

  // Ends the operation in flight, here and at the peers, and all later ones, also in communicators that come from this
  // one by Split and in the one that it comes from. Does not block.
  virtual void Abort(absl::string_view reason) = 0;

  virtual CollectiveCounters counters() const = 0;
};

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_COMMUNICATOR_H_
