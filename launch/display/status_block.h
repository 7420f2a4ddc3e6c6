#ifndef LEEWAY_LAUNCH_DISPLAY_STATUS_BLOCK_H_
#define LEEWAY_LAUNCH_DISPLAY_STATUS_BLOCK_H_

#include <string>
#include <vector>

#include "launch/display/job_view.h"

namespace leeway {

// The live status as text. Pure functions.

// For a terminal: a few lines, none wider than `width` columns.
std::vector<std::string> StatusBlock(const JobView& view, MonotonicTime now, int width);
// For everything else: one line.
std::string StatusLine(const JobView& view, MonotonicTime now);

// "1:02:03", "4:05", "12 s".
std::string FormatSpan(absl::Duration span);
// "1234", "12.3k", "4.56M".
std::string FormatCount(double count);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_DISPLAY_STATUS_BLOCK_H_
