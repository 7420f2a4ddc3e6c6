#include "trainer/records/metrics_journal.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "trainer/records/metrics_line.h"

namespace leeway {

absl::Status MetricsJournal::Open(uint64_t step, const std::vector<HeldLine>& held, bool has_checkpoint) {
  lines_.clear();
  LEEWAY_RETURN_IF_ERROR(TruncateToStep(files_, path_, step, has_checkpoint, &has_lines_, &last_step_));
  for (const HeldLine& line : held) {
    if (Contains(line.step)) continue;
    Add(line.step, line.version, line.json, line.awaits_evaluation);
  }
  return absl::OkStatus();
}

void MetricsJournal::Add(uint64_t step, uint64_t version, std::string line, bool awaits_evaluation) {
  LEEWAY_CHECK(!Contains(step)) << "a second line of step " << step;
  last_step_ = step;
  has_lines_ = true;
  Line added;
  added.line = {step, version, awaits_evaluation, std::move(line)};
  added.give_up_at = clock_->Now() + evaluation_wait_;
  lines_.push_back(std::move(added));
}

void MetricsJournal::OnEvaluations(const v1::StatusResponse& status) {
  for (Line& line : lines_) {
    if (!line.line.awaits_evaluation) continue;
    const v1::EvaluationResult* listed = nullptr;
    for (const v1::EvaluationResult& result : status.evaluations()) {
      // By version alone: a version that a later lineage took over is made of the same bytes. Newest last.
      if (result.weights().version() != line.line.version) continue;
      if (listed == nullptr || result.complete() || !listed->complete()) listed = &result;
    }
    if (listed != nullptr && listed->complete()) {
      line.line.json = WithEvaluation(line.line.json, *listed);
      line.line.awaits_evaluation = false;
      line.partial.reset();
    } else if (listed != nullptr) {
      line.partial = *listed;
    } else {
      line.line.awaits_evaluation = false;
    }
  }
}

absl::Status MetricsJournal::Flush() {
  std::string text;
  size_t count = 0;
  for (const Line& line : lines_) {
    if (line.line.awaits_evaluation && clock_->Now() < line.give_up_at) break;
    text += line.partial.has_value() ? WithEvaluation(line.line.json, *line.partial) : line.line.json;
    text += '\n';
    ++count;
  }
  if (count == 0) return absl::OkStatus();
  LEEWAY_RETURN_IF_ERROR(files_->AppendToFile(path_, text));
  lines_.erase(lines_.begin(), lines_.begin() + static_cast<int64_t>(count));
  return absl::OkStatus();
}

std::vector<HeldLine> MetricsJournal::held() const {
  std::vector<HeldLine> held;
  for (const Line& line : lines_) held.push_back(line.line);
  return held;
}

absl::Status TruncateToStep(FileSystem* files, const std::string& path, uint64_t step, bool keep_any, bool* has_lines,
                            uint64_t* last_step) {
  *has_lines = false;
  *last_step = 0;
  if (!files->Exists(path)) return absl::OkStatus();
  LEEWAY_ASSIGN_OR_RETURN(const std::string text, files->ReadFile(path));
  size_t kept = 0;
  while (keep_any && kept < text.size()) {
    const size_t end = text.find('\n', kept);
    if (end == std::string::npos) break;
    const nlohmann::json line =
        nlohmann::json::parse(text.substr(kept, end - kept), nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_unsigned()) break;
    if (line["step"].get<uint64_t>() > step) break;
    *last_step = line["step"].get<uint64_t>();
    *has_lines = true;
    kept = end + 1;
  }
  if (kept == text.size()) return absl::OkStatus();
  return files->WriteFileAtomically(path, text.substr(0, kept));
}

}  // namespace leeway
