#ifndef LEEWAY_LAUNCH_REPORT_PROCESS_SAMPLES_H_
#define LEEWAY_LAUNCH_REPORT_PROCESS_SAMPLES_H_

#include <map>
#include <string>
#include <vector>

#include "leeway/v1/queue.pb.h"

namespace leeway {

// What the processes said about themselves at one moment (logs/samples.jsonl, one object a line).
struct ProcessSample {
  double wall_s = 0;  // on the clock of time/wall_s: starts of the launcher add up
  struct Process {
    double wall_s = 0;                     // of the process itself
    std::map<std::string, double> states;  // seconds so far
    std::map<std::string, double> cpu;     // seconds so far by thread class
  };
  std::map<std::string, Process> processes;  // "queue-0", "rollout-1"
};

// Of the queue's answer: the queue itself and its live workers.
ProcessSample SampleOf(const v1::StatusResponse& status, double wall_s);
std::string FormatSample(const ProcessSample& sample);
// All whole lines of a file; an absent file has none.
std::vector<ProcessSample> ReadSamples(const std::string& path);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_REPORT_PROCESS_SAMPLES_H_
