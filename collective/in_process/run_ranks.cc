#include "collective/in_process/run_ranks.h"

#include <memory>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "collective/in_process/in_process_group.h"

namespace leeway {
namespace {

struct Outcome {
  Mutex mutex;
  absl::Status first_error LEEWAY_GUARDED_BY(mutex);
  std::vector<absl::Status> by_rank;  // each thread writes its own
};

void Run(int size, absl::Duration timeout, const std::function<absl::Status(int, Communicator*)>& body,
         Outcome* outcome) {
  InProcessGroup group(size, "ranks", timeout);
  outcome->by_rank.resize(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&body, rank, outcome, communicator = group.Take(rank)] {
      const absl::Status status = body(rank, communicator.get());
      outcome->by_rank[static_cast<size_t>(rank)] = status;
      if (status.ok()) return;
      {
        MutexLock lock(&outcome->mutex);
        if (outcome->first_error.ok()) outcome->first_error = status;
      }
      communicator->Abort(status.ToString());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

std::vector<absl::Status> RunRanks(int size, absl::Duration timeout,
                                   const std::function<absl::Status(int, Communicator*)>& body) {
  Outcome outcome;
  Run(size, timeout, body, &outcome);
  return outcome.by_rank;
}

absl::Status RunRanksToStatus(int size, absl::Duration timeout,
                              const std::function<absl::Status(int, Communicator*)>& body) {
  Outcome outcome;
  Run(size, timeout, body, &outcome);
  MutexLock lock(&outcome.mutex);
  return outcome.first_error;
}

}  // namespace leeway
