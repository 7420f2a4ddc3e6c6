#include "collective/communication_thread.h"

#include <optional>
#include <utility>

namespace leeway {

struct PendingOperation::State {
  Mutex mutex;
  CondVar changed;
  std::optional<absl::Status> status LEEWAY_GUARDED_BY(mutex);
};

PendingOperation::PendingOperation() : state_(std::make_shared<State>()) {}

absl::Status PendingOperation::Wait() const {
  MutexLock lock(&state_->mutex);
  while (!state_->status.has_value()) state_->changed.WaitUntil(&state_->mutex, Deadline::Infinite());
  return *state_->status;
}

bool PendingOperation::IsDone() const {
  MutexLock lock(&state_->mutex);
  return state_->status.has_value();
}

void PendingOperation::Finish(absl::Status status) {
  MutexLock lock(&state_->mutex);
  state_->status = std::move(status);
  state_->changed.NotifyAll();
}

CommunicationThread::CommunicationThread(Communicator* communicator)
    : communicator_(communicator), thread_([this] { Loop(); }) {}

CommunicationThread::~CommunicationThread() {
  {
    MutexLock lock(&mutex_);
    is_ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

PendingOperation CommunicationThread::Issue(std::function<absl::Status(Communicator*)> operation) {
  PendingOperation end;
  MutexLock lock(&mutex_);
  issued_.push_back(Issued{std::move(operation), end});
  changed_.NotifyAll();
  return end;
}

void CommunicationThread::Loop() {
  for (;;) {
    Issued next;
    {
      MutexLock lock(&mutex_);
      while (issued_.empty() && !is_ending_) changed_.WaitUntil(&mutex_, Deadline::Infinite());
      if (issued_.empty()) return;
      next = std::move(issued_.front());
      issued_.pop_front();
    }
    next.end.Finish(next.operation(communicator_));
  }
}

}  // namespace leeway
