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
// Roles: trainer, queue, rollout. A process that was replaced (another epoch, or counters that went back) counts from
// its start. Not thread-safe.
class ProcessTimes {
 public:
  // Forgets `report`'s past: only what comes after counts. For processes that are older than the records.
  void Skip(absl::string_view role, const std::string& process, const v1::ProcessReport& report);
  // Adds what `process` did since the last call.
  void Add(absl::string_view role, const std::string& process, const v1::ProcessReport& report);
  // Both of the above for everybody in an answer of the queue: its workers and itself.
  void SkipAll(const v1::StatusResponse& status);
  void AddAll(const v1::StatusResponse& status);

  // Increments since the last Take.
  std::map<std::string, double> Take();

 private:
  std::map<std::string, double> Flatten(absl::string_view role, const v1::ProcessReport& report) const;

  // Process -> metric name -> last cumulative value.
  std::map<std::string, std::map<std::string, double>> last_;
  std::map<std::string, double> increments_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_RECORDS_PROCESS_TIMES_H_
