#ifndef LEEWAY_WEIGHTSYNC_RECEIVE_DOUBLE_BUFFER_H_
#define LEEWAY_WEIGHTSYNC_RECEIVE_DOUBLE_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"

namespace leeway {

// The receiver's memory for weights: two buffers of one model each, mapped once and used in turn. Whoever holds a
// handle keeps that buffer's contents alive; when the last copy of a handle goes, the buffer is the next shadow. Bytes
// are not cleared in between. Thread-safe; handles may outlive the object.
class DoubleBuffer {
 public:
  // Reserves both; memory is used when it is first written.
  static absl::StatusOr<std::unique_ptr<DoubleBuffer>> Create(uint64_t size_bytes);
  // No call to the SetOnRelease function begins or goes on after this returns.
  ~DoubleBuffer();

  // A free buffer, or null while both are in use. Does not block.
  std::shared_ptr<std::byte> TryAcquire();
  // Called after a buffer came free, by the thread that dropped the last handle, with no lock of this class held that
  // TryAcquire needs. Set once, before the first TryAcquire.
  void SetOnRelease(std::function<void()> on_release);

  uint64_t size_bytes() const { return size_bytes_; }

 private:
  struct State;
  DoubleBuffer(std::shared_ptr<State> state, uint64_t size_bytes);

  const std::shared_ptr<State> state_;
  const uint64_t size_bytes_;
};

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_RECEIVE_DOUBLE_BUFFER_H_
