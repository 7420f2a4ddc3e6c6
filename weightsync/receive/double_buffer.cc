#include "weightsync/receive/double_buffer.h"

#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status_macros.h"
#include "weightsync/pages.h"

namespace leeway {

struct DoubleBuffer::State {
  // Lock order: on_release_mutex before mutex, which TryAcquire alone takes.
  Mutex on_release_mutex;
  std::function<void()> on_release LEEWAY_GUARDED_BY(on_release_mutex);

  Mutex mutex;
  std::vector<std::shared_ptr<std::byte>> free LEEWAY_GUARDED_BY(mutex);
};

absl::StatusOr<std::unique_ptr<DoubleBuffer>> DoubleBuffer::Create(uint64_t size_bytes) {
  auto state = std::make_shared<State>();
  for (int i = 0; i < 2; ++i) {
    LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> buffer, AllocatePages(size_bytes));
    MutexLock lock(&state->mutex);
    state->free.push_back(std::move(buffer));
  }
  return std::unique_ptr<DoubleBuffer>(new DoubleBuffer(std::move(state), size_bytes));
}

DoubleBuffer::DoubleBuffer(std::shared_ptr<State> state, uint64_t size_bytes)
    : state_(std::move(state)), size_bytes_(size_bytes) {}

DoubleBuffer::~DoubleBuffer() {
  MutexLock lock(&state_->on_release_mutex);
  state_->on_release = nullptr;
}

std::shared_ptr<std::byte> DoubleBuffer::TryAcquire() {
  std::shared_ptr<std::byte> buffer;
  {
    MutexLock lock(&state_->mutex);
    if (state_->free.empty()) return nullptr;
    buffer = std::move(state_->free.back());
    state_->free.pop_back();
  }
  std::byte* data = buffer.get();
  return std::shared_ptr<std::byte>(data, [state = state_, buffer = std::move(buffer)](std::byte*) mutable {
    {
      MutexLock lock(&state->mutex);
      state->free.push_back(std::move(buffer));
    }
    MutexLock lock(&state->on_release_mutex);
    if (state->on_release) state->on_release();
  });
}

void DoubleBuffer::SetOnRelease(std::function<void()> on_release) {
  MutexLock lock(&state_->on_release_mutex);
  state_->on_release = std::move(on_release);
}

}  // namespace leeway
