#ifndef LEEWAY_BENCHMARKS_QUEUE_QUEUE_LOAD_H_
#define LEEWAY_BENCHMARKS_QUEUE_QUEUE_LOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "benchmarks/queue/child_process.h"
#include "benchmarks/queue/load_shape.h"
#include "queue/queue_grpc_client.h"

namespace leeway {

// A queue of leeway in a process of its own, with clients in this one. Errors of calls end the program.
class QueueUnderLoad {
 public:
  struct Options {
    LoadShape shape;
    // The queue's queue.max_groups, and how many steps the run has.
    uint64_t max_groups = 0;
    uint64_t steps = 0;
    // The staleness budget.
    uint64_t budget = 0;
    // Where its socket and its log lie.
    std::string folder;
    // Of the queue's own program: what main() was given as argv[0].
    std::string program = "/proc/self/exe";
  };
  explicit QueueUnderLoad(Options options);
  ~QueueUnderLoad();

  // Pushes from all producers until the run's tickets are used up or `pushes` are answered. Blocks.
  void Put(uint64_t pushes);
  // The same beside the caller: ends with Join.
  void StartProducers(uint64_t pushes);
  void JoinProducers();
  // No producer asks for more.
  void StopProducers();

  // One step: lease, commit, settle the one before the last. Returns the trajectories.
  uint64_t Step();

  pid_t pid() const { return process_->pid(); }
  // Bytes of its store on disk.
  uint64_t store_bytes() const;
  // Seconds from push to answer, of all producers so far.
  std::vector<double> TakeLatencies();
  uint64_t answered() const;
  // Answered pushes by producer.
  std::vector<uint64_t> answered_by_producer() const;
  // What producers were told last when there was no ticket for them.
  std::vector<std::string> causes() const;
  v1::StatusResponse Status();

 private:
  class Producer;
  void Commit(const std::vector<uint64_t>& tickets);

  const Options options_;
  std::string address_;
  std::unique_ptr<ChildProcess> process_;
  std::vector<std::unique_ptr<Producer>> producers_;
  std::unique_ptr<GrpcQueueTrainerClient> trainer_;
  uint64_t lineage_ = 0;
  uint64_t version_ = 0;
};

// The whole measurement of one shape: a fill and a drain, then both at once.
LoadResult MeasureQueue(const LoadShape& shape, const std::string& folder);
// The fill alone.
LoadResult MeasurePut(const LoadShape& shape, const std::string& folder);

// The queue's process: `program serve` with the arguments that QueueUnderLoad gives it.
int ServeQueue(int argc, char** argv);

}  // namespace leeway

#endif  // LEEWAY_BENCHMARKS_QUEUE_QUEUE_LOAD_H_
