#ifndef LEEWAY_LAUNCH_CONFIG_DIAGNOSTIC_H_
#define LEEWAY_LAUNCH_CONFIG_DIAGNOSTIC_H_

#include <string>
#include <vector>

namespace leeway {

// Where a configuration value was written. `line` and `column` count from 1. Three kinds:
//   file      "sort5.toml:14:9"
//   override  "<argument 2>:1:11"     the second `a.b=value` of the command line; the column counts into the argument
//   default   file is empty: nobody wrote it, the schema's default holds
struct Place {
  std::string file;
  int line = 0;
  int column = 0;

  bool is_default() const { return file.empty(); }
  // "file:line:column", or "(default)".
  std::string ToString() const;

  friend bool operator==(const Place&, const Place&) = default;
};

// One thing wrong with a configuration. `message` says what was expected, what was found, and the remedy if one is
// known.
struct Diagnostic {
  Place place;
  std::string key;  // "trainer.steps"; empty for syntax errors
  std::string message;

  // "sort5.toml:14:9: trainer.steps: expected an integer >= 1, got -3"
  std::string ToString() const;
};

// One diagnostic a line, ordered by file, line and column, duplicates dropped.
std::string FormatDiagnostics(std::vector<Diagnostic> diagnostics);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_CONFIG_DIAGNOSTIC_H_
