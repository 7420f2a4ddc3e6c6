#ifndef LEEWAY_TRAINER_RECORDS_PROCESS_TIMES_H_
#define LEEWAY_TRAINER_RECORDS_PROCESS_TIMES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "leeway/v1/queue.pb.h"

namespace leeway {

// What the processes of a run did since the last look: turns the cumulative reports of all of them into increments
// under their metric names, so that every line of metrics.jsonl says what happened in its step and the lines add up to
// the run.
//
//   wait/<role>/<cause>_s, busy/<role>/<phase>_s   seconds in each state, summed over the processes of a role
//   cpu/<role>_s, cpu/<role>/<class>_s             CPU seconds, whole and by thread class
//
// Roles: trainer, queue, rollout. A process is known by its name: a worker that the queue fenced registers again and
// goes on counting. Where its wall or CPU time went back there is a new process of that name, which counts from its
// start. Not thread-safe.
class ProcessTimes {
 public:
  // Adds what `process` did since the last call. An empty report (a worker that has not sent one yet) says nothing.
  void Add(absl::string_view role, const std::string& process, const v1::ProcessReport& report);
  // For everybody in an answer of the queue, its workers and itself: adds what they did.
  void AddAll(const v1::StatusResponse& status);
  // The same, but what they did up to now is not counted; for processes that are older than the records.
  void SkipAll(const v1::StatusResponse& status);

  // Increments since the last Take.
  std::map<std::string, double> Take();

 private:
  struct Process {
    double wall_seconds = 0;
    // Metric name -> last cumulative value.
    std::map<std::string, double> values;
    // The next report is not counted.
    bool is_skipped = false;
  };

  std::map<std::string, Process> processes_;
  std::map<std::string, double> increments_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_RECORDS_PROCESS_TIMES_H_
