#include "launch/config/diagnostic.h"

#include <algorithm>
#include <tuple>

#include "fmt/format.h"

namespace leeway {

std::string Place::ToString() const {
  if (is_default()) return "(default)";
  return fmt::format("{}:{}:{}", file, line, column);
}

std::string Diagnostic::ToString() const {
  if (key.empty()) return fmt::format("{}: {}", place.ToString(), message);
  return fmt::format("{}: {}: {}", place.ToString(), key, message);
}

std::string FormatDiagnostics(std::vector<Diagnostic> diagnostics) {
  std::stable_sort(diagnostics.begin(), diagnostics.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::tie(a.place.file, a.place.line, a.place.column) < std::tie(b.place.file, b.place.line, b.place.column);
  });
  std::string text;
  std::string previous;
  for (const Diagnostic& diagnostic : diagnostics) {
    const std::string line = diagnostic.ToString() + "\n";
    if (line != previous) text += line;
    previous = line;
  }
  return text;
}

}  // namespace leeway
