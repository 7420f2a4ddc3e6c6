#ifndef LEEWAY_COLLECTIVE_IN_PROCESS_IN_PROCESS_GROUP_H_
#define LEEWAY_COLLECTIVE_IN_PROCESS_IN_PROCESS_GROUP_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "collective/communicator.h"
#include "collective/in_process/exchange_board.h"

namespace leeway {

// Ranks as threads of one process. Each thread takes its communicator once and keeps it; the group may go before them.
// A communicator that is destroyed has left: who waits for it fails at once with UNAVAILABLE. Thread-safe.
class InProcessGroup {
 public:
  // size >= 1. `timeout`: of one operation.
  InProcessGroup(int size, std::string name, absl::Duration timeout);
  // Ranks that nobody took are gone.
  ~InProcessGroup();
  InProcessGroup(const InProcessGroup&) = delete;
  InProcessGroup& operator=(const InProcessGroup&) = delete;

  // Once for each rank in 0..size-1.
  std::unique_ptr<Communicator> Take(int rank);

  // As if a rank had failed with `error`, for one that is not a rank.
  void Fail(const absl::Status& error) { board_->Fail(error); }

 private:
  const std::shared_ptr<ExchangeBoard> board_;
  Mutex mutex_;
  std::vector<bool> is_taken_ LEEWAY_GUARDED_BY(mutex_);
};

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_IN_PROCESS_IN_PROCESS_GROUP_H_
