#ifndef LEEWAY_COLLECTIVE_TRANSPORT_COMMUNICATOR_H_
#define LEEWAY_COLLECTIVE_TRANSPORT_COMMUNICATOR_H_

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "collective/communicator.h"
#include "collective/rank_transport.h"

namespace leeway {

// Every operation of a Communicator, made of exchanges of a RankTransport. A sum is an exchange of parts and a local
// TreeReduce, so that its bits depend on the ranks' values alone; an all-reduce is a reduce-scatter over EvenParts and
// an all-gather, so that each rank sends 2n(N-1)/N. Sums go through at most kStepBytes of each peer at a time: beside
// the caller's arrays an operation needs (N-1) * kStepBytes.
class TransportCommunicator final : public Communicator {
 public:
  static constexpr int64_t kStepBytes = int64_t{1} << 20;

  explicit TransportCommunicator(std::unique_ptr<RankTransport> transport);

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  absl::string_view name() const override { return transport_->name(); }
  absl::Duration timeout() const override { return transport_->timeout(); }

  absl::Status AllReduce(ReduceOp op, DType dtype, void* data, int64_t count) override;
  absl::Status ReduceScatter(ReduceOp op, DType dtype, const void* input, absl::Span<const int64_t> counts,
                             void* output) override;
  absl::Status AllGather(DType dtype, const void* input, absl::Span<const int64_t> counts, void* output) override;
  absl::Status AllToAll(DType dtype, const void* input, absl::Span<const int64_t> send_counts, void* output,
                        absl::Span<const int64_t> receive_counts) override;
  absl::Status Broadcast(DType dtype, void* data, int64_t count, int root) override;
  absl::Status Send(DType dtype, const void* data, int64_t count, int peer) override;
  absl::Status Receive(DType dtype, void* data, int64_t count, int peer) override;
  absl::Status Barrier() override;
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, std::string name) override;
  void Abort(absl::string_view reason) override;
  CollectiveCounters counters() const override LEEWAY_EXCLUDES(mutex_);

 private:
  struct Call;

  // The next collective operation: number, deadline.
  Call Begin(uint8_t kind, DType dtype, int64_t elements);
  absl::Status Exchange(Call* call);
  absl::Status ReduceParts(Call* call, ReduceOp op, const std::byte* input, absl::Span<const int64_t> counts,
                           std::byte* output);
  absl::Status GatherParts(Call* call, const std::byte* input, absl::Span<const int64_t> counts, std::byte* output);
  absl::Status CheckPeer(const Call& call, int peer);
  absl::Status CheckCounts(const Call& call, absl::Span<const int64_t> counts, absl::string_view what);
  absl::Status CheckReducible(const Call& call);
  // Fails the communicator: the peers would wait for an operation that never comes.
  absl::Status Refuse(const Call& call, absl::string_view why);
  // OK only if the operation went well; then it is counted.
  absl::Status Finish(const Call& call, Collective collective, absl::Status status) LEEWAY_EXCLUDES(mutex_);

  const std::unique_ptr<RankTransport> transport_;
  uint64_t operations_ = 0;
  // Messages so far, by peer.
  std::vector<uint64_t> sent_, received_;
  // Of Exchange, by rank; empty between calls.
  std::vector<ConstBytes> outgoing_;
  std::vector<MutableBytes> incoming_;
  // Parts of the peers on their way into a sum.
  std::vector<std::byte> scratch_;

  mutable Mutex mutex_;
  CollectiveCounters counters_ LEEWAY_GUARDED_BY(mutex_);
};

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_TRANSPORT_COMMUNICATOR_H_
