#ifndef LEEWAY_LAUNCH_DISPLAY_TERMINAL_H_
#define LEEWAY_LAUNCH_DISPLAY_TERMINAL_H_

#include <stdio.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "launch/display/job_view.h"

namespace leeway {

// Shows a job on a stream: a block that is redrawn in place if the stream is a terminal, plain lines now and then
// otherwise. Other lines go above the block. One thread.
class Terminal {
 public:
  // `plain_interval`: distance of plain status lines. `stream` outlives the object.
  Terminal(FILE* stream, absl::Duration plain_interval, const Clock* clock = RealClock());
  // Leaves the last block standing.
  ~Terminal() = default;

  void Line(const std::string& text);
  // Shows the newest state; cheap to call often.
  void Show(const JobView& view);
  // Shows it whatever the clock says.
  void ShowNow(const JobView& view);

  bool is_terminal() const { return is_terminal_; }

 private:
  void Erase();
  int Width() const;

  FILE* const stream_;
  const absl::Duration plain_interval_;
  const Clock* const clock_;
  const bool is_terminal_;
  size_t rows_shown_ = 0;
  MonotonicTime next_ = MonotonicTime{};
};

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_DISPLAY_TERMINAL_H_
