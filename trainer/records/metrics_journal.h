#ifndef LEEWAY_TRAINER_RECORDS_METRICS_JOURNAL_H_
#define LEEWAY_TRAINER_RECORDS_METRICS_JOURNAL_H_

// When a line of metrics.jsonl may be written, and how the file is brought back to a checkpoint.

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "leeway/v1/queue.pb.h"
#include "trainer/checkpoint/checkpoint_store.h"

namespace leeway {

// metrics.jsonl: lines in the order of their steps, each complete. A line whose version is evaluated waits for the
// result, later lines behind it, while the queue lists that version, and `evaluation_wait` at most; a result that does
// not come is given up (the line says eval/complete 0, or has no evaluation at all). Not thread-safe.
class MetricsJournal {
 public:
  MetricsJournal(FileSystem* files, std::string path, absl::Duration evaluation_wait, const Clock* clock)
      : files_(files), path_(std::move(path)), evaluation_wait_(evaluation_wait), clock_(clock) {}

  // At the start: cuts the file back to the lines of steps <= `step` and takes up the lines that the checkpoint held
  // back and that are not in the file. Without a checkpoint: step 0 and nothing held.
  absl::Status Open(uint64_t step, const std::vector<HeldLine>& held, bool has_checkpoint);
  // Whether a line of this step is in the file or held back.
  bool Contains(uint64_t step) const { return has_lines_ && step <= last_step_; }

  // Steps ascend.
  void Add(uint64_t step, uint64_t version, std::string line, bool awaits_evaluation);
  // An answer of the queue that is younger than the commits of all lines. The queue lists every evaluation that is not
  // over: a version that is missing there (a new queue process knows nothing of the evaluations of the last one) never
  // gets a result.
  void OnEvaluations(const v1::StatusResponse& status);
  // Appends what can be written now.
  absl::Status Flush();

  // Lines not written yet, in order, for the checkpoint: with the results that are there.
  std::vector<HeldLine> held() const;
  bool is_waiting() const { return !lines_.empty(); }

 private:
  struct Line {
    HeldLine line;
    // What is known of an evaluation that is not complete.
    std::optional<v1::EvaluationResult> partial;
    MonotonicTime give_up_at;
  };

  FileSystem* const files_;
  const std::string path_;
  const absl::Duration evaluation_wait_;
  const Clock* const clock_;

  std::deque<Line> lines_;
  // Newest step in the file or held back; meaningful with has_lines_.
  uint64_t last_step_ = 0;
  bool has_lines_ = false;
};

// Keeps the lines of a JSON-lines file whose "step" is <= `step` (none if `keep_any` is false); a torn or unreadable
// line ends the file before it. No file: OK. Sets `last_step` to the step of the last line kept; `has_lines` to whether
// there is one.
absl::Status TruncateToStep(FileSystem* files, const std::string& path, uint64_t step, bool keep_any, bool* has_lines,
                            uint64_t* last_step);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_RECORDS_METRICS_JOURNAL_H_
