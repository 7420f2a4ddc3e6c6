#ifndef LEEWAY_WEIGHTSYNC_TRANSPORT_FAKE_RECEIVER_TRANSPORT_H_
#define LEEWAY_WEIGHTSYNC_TRANSPORT_FAKE_RECEIVER_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "weightsync/transport/receiver_transport.h"

namespace leeway {

// What goes wrong, with which bucket (from 0, counted over all loads of the transport).
struct TransportFaults {
  std::set<uint64_t> corrupt;  // one bit is flipped, in silence
  std::set<uint64_t> fail;     // UNAVAILABLE
  std::set<uint64_t> stall;    // blocks until cancelled
};

// Injects faults into another transport, or serves bytes given by hand where there is none. Thread-safe.
class FakeReceiverTransport : public ReceiverTransport {
 public:
  explicit FakeReceiverTransport(std::unique_ptr<ReceiverTransport> real) : real_(std::move(real)) {}
  explicit FakeReceiverTransport(std::string bytes) : bytes_(std::move(bytes)) {}

  absl::StatusOr<std::unique_ptr<BucketReader>> Open(const TransferRequest& request) override;

  void SetFaults(TransportFaults faults) LEEWAY_EXCLUDES(mutex_);
  // Buckets delivered so far (corrupted ones too), and loads opened.
  uint64_t buckets() const LEEWAY_EXCLUDES(mutex_);
  uint64_t loads() const LEEWAY_EXCLUDES(mutex_);
  // Sizes of the reads so far.
  std::vector<uint64_t> read_sizes() const LEEWAY_EXCLUDES(mutex_);
  // Blocks until a read stalls; false after `timeout`.
  bool WaitForStall(absl::Duration timeout) LEEWAY_EXCLUDES(mutex_);

 private:
  class Reader;

  const std::unique_ptr<ReceiverTransport> real_;
  const std::string bytes_;

  mutable Mutex mutex_;
  CondVar changed_;
  TransportFaults faults_ LEEWAY_GUARDED_BY(mutex_);
  uint64_t next_bucket_ LEEWAY_GUARDED_BY(mutex_) = 0;
  uint64_t loads_ LEEWAY_GUARDED_BY(mutex_) = 0;
  int stalled_ LEEWAY_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> read_sizes_ LEEWAY_GUARDED_BY(mutex_);
};

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_TRANSPORT_FAKE_RECEIVER_TRANSPORT_H_
