#ifndef LEEWAY_COLLECTIVE_COMMUNICATION_THREAD_H_
#define LEEWAY_COLLECTIVE_COMMUNICATION_THREAD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "collective/communicator.h"

namespace leeway {

// The end of an operation that runs elsewhere. Copies share it. Thread-safe.
class PendingOperation {
 public:
  PendingOperation();

  // Blocks until the operation is over and returns its status; bounded, since every operation of a communicator is.
  absl::Status Wait() const;
  bool IsDone() const;

 private:
  friend class CommunicationThread;
  struct State;
  void Finish(absl::Status status);

  std::shared_ptr<State> state_;
};

// Runs operations of one communicator in the order in which they were issued, on a thread of its own, so that the
// caller computes meanwhile. All ranks issue the same operations in the same order; who also wants to communicate
// itself meanwhile uses another communicator (Split). Issue from any thread; the order is then the caller's business.
class CommunicationThread {
 public:
  // `communicator` must outlive this and is used by nobody else meanwhile, but for Abort and counters.
  explicit CommunicationThread(Communicator* communicator);
  // Runs what was issued to its end. Abort the communicator first to be quick.
  ~CommunicationThread();
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;

  // Does not block. What `operation` refers to must live until it is over.
  PendingOperation Issue(std::function<absl::Status(Communicator*)> operation) LEEWAY_EXCLUDES(mutex_);

 private:
  struct Issued {
    std::function<absl::Status(Communicator*)> operation;
    PendingOperation end;
  };

  void Loop() LEEWAY_EXCLUDES(mutex_);

  Communicator* const communicator_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Issued> issued_ LEEWAY_GUARDED_BY(mutex_);
  bool is_ending_ LEEWAY_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_COMMUNICATION_THREAD_H_
