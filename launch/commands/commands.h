#ifndef LEEWAY_LAUNCH_COMMANDS_COMMANDS_H_
#define LEEWAY_LAUNCH_COMMANDS_COMMANDS_H_

#include <string>
#include <vector>

#include "launch/run/exit_code.h"

namespace leeway {

// The commands of `leeway`. Each runs to its end on the caller's thread, prints for people, and returns the process's
// exit code.

// `arguments`: TOML files and section.key=value overrides.
ExitCode TrainCommand(const std::vector<std::string>& arguments);
// Prints all errors, or the resolved configuration and what it needs. Leaves nothing behind.
ExitCode CheckCommand(const std::vector<std::string>& arguments);
// Replaces this process by the role's binary.
ExitCode RoleCommand(const std::string& role, const std::vector<std::string>& arguments);

struct InspectArguments {
  std::vector<std::string> runs;  // directories, or names below runs/
  bool json = false;
  std::string plot;         // name of a plot, or empty
  std::string output;       // file of the plot; empty: standard output
  int64_t trajectory = -1;  // step whose trajectories are shown; -1 = none
};
ExitCode InspectCommand(const InspectArguments& arguments);

struct EvaluateArguments {
  std::string run;                     // directory, or a name below runs/
  int64_t step = -1;                   // checkpoint; -1 = the newest
  int64_t episodes = 0;                // 0 = eval.episodes of the run
  std::vector<std::string> overrides;  // eval.greedy=true, ...
  bool json = false;
};
// Plays held-out episodes with the weights of a checkpoint, in a copy of the run that is removed afterwards, and prints
// the mean reward.
ExitCode EvaluateCommand(const EvaluateArguments& arguments);

struct ExportArguments {
  std::string run;    // directory, or a name below runs/
  std::string to;     // directory that is made
  int64_t step = -1;  // checkpoint; -1 = the newest that is whole
};
// Writes the weights of a checkpoint, its tokenizer and its configurations as a Hugging Face directory, which is there
// whole or not at all.
ExitCode ExportCommand(const ExportArguments& arguments);

// Directory of a run given as a directory or as a name below runs/.
std::string FindRun(const std::string& name);

// What this machine has and lacks.
ExitCode DoctorCommand();

struct CertificateArguments {
  std::string directory;
  // Besides this machine's name and loopback.
  std::vector<std::string> hosts;
  int days = 825;
};
// Makes an authority, certificates and keys of a server and a client, and token files: all that security.* names.
// Overwrites nothing.
ExitCode MakeCertificatesCommand(const CertificateArguments& arguments);
// `topic`: config (markdown) or schema (JSON Schema).
ExitCode DocsCommand(const std::string& topic);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_COMMANDS_COMMANDS_H_
