#ifndef LEEWAY_LAUNCH_REPORT_TRACE_H_
#define LEEWAY_LAUNCH_REPORT_TRACE_H_

#include <string>
#include <vector>

#include "launch/report/metrics_file.h"
#include "launch/report/process_samples.h"

namespace leeway {

// The run as a trace for Perfetto or chrome://tracing (JSON, microseconds). One track per process:
//   trainer     a span for every step, inside it its waits, training and publish
//   the others  what they did between two samples: their states, back to back, in proportion
// and counters: reward, lag, groups in the queue. Within a step or a sample the order of the parts is not known; their
// lengths are.
std::string MakeTrace(const std::vector<MetricsLine>& lines, const std::vector<ProcessSample>& samples);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_REPORT_TRACE_H_
