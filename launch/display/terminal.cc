#include "launch/display/terminal.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fmt/format.h"
#include "launch/display/status_block.h"

namespace leeway {
namespace {

constexpr absl::Duration kRedraw = absl::Milliseconds(400);

// A terminal that does not know how to go up a row.
bool IsDumb() {
  const char* term = getenv("TERM");
  return term != nullptr && std::string(term) == "dumb";
}

}  // namespace

Terminal::Terminal(FILE* stream, absl::Duration plain_interval, const Clock* clock)
    : stream_(stream),
      plain_interval_(plain_interval),
      clock_(clock),
      is_terminal_(isatty(fileno(stream)) == 1 && !IsDumb()) {}

void Terminal::Line(const std::string& text) {
  Erase();
  fmt::print(stream_, "{}\n", text);
  fflush(stream_);
}

void Terminal::Show(const JobView& view) {
  if (clock_->Now() >= next_) ShowNow(view);
}

void Terminal::ShowNow(const JobView& view) {
  const MonotonicTime now = clock_->Now();
  if (is_terminal_) {
    next_ = now + kRedraw;
    Erase();
    for (const std::string& row : StatusBlock(view, now, Width())) {
      fmt::print(stream_, "{}\n", row);
      ++rows_shown_;
    }
  } else {
    next_ = now + plain_interval_;
    fmt::print(stream_, "{}\n", StatusLine(view, now));
  }
  fflush(stream_);
}

void Terminal::Erase() {
  // Up one row, clear it; as often as rows are shown.
  for (; rows_shown_ > 0; --rows_shown_) fmt::print(stream_, "\033[1A\033[2K");
}

int Terminal::Width() const {
  winsize size = {};
  if (ioctl(fileno(stream_), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace leeway
