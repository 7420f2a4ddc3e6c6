// leeway: the command line. Flags and wiring only; needs neither the model nor the trainer's engine, so that it starts
// in milliseconds.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "launch/commands/commands.h"
#include "launch/config/nearest.h"
#include "launch/roles/role_process.h"

int main(int argc, char** argv) {
  using namespace leeway;
  PrepareProcess();
  CLI::App app{"leeway trains LLM agents by reinforcement learning, rollout and training decoupled.", "leeway"};
  app.require_subcommand(1);
  app.footer(
      "A run is described by TOML files, merged in order, and section.key=value overrides: leeway train "
      "configs/sort5.toml seed=2");
  ExitCode code = ExitCode::kOther;

  std::vector<std::string> words;
  const auto add_run_command = [&](const char* name, const char* description, auto run) {
    CLI::App* command = app.add_subcommand(name, description);
    command->add_option("config", words, "TOML files and section.key=value overrides")->required();
    command->callback([&code, &words, run] { code = run(words); });
    return command;
  };
  add_run_command("train", "run a job on this machine: queue, trainer and rollout workers; resumes a run that exists",
                  TrainCommand);
  add_run_command("check", "print every error of a configuration, or what it means and needs; starts nothing",
                  CheckCommand);
  std::string store;
  for (const std::string role : {"queue", "rollout", "trainer"}) {
    CLI::App* command =
        add_run_command(role.c_str(), ("run one process of role " + role + " of a job").c_str(),
                        [role](const std::vector<std::string>& arguments) { return RoleCommand(role, arguments); });
    command->add_option_function<int>(
        "--rank",
        [&words](const int& rank) {
          words.insert(words.end(), {"--rank", std::to_string(rank)});
        },
        "which of the processes of this role it is");
    if (role != "queue") continue;
    command->add_option("--inspect", store, "print what the durable store in this folder (or run directory) holds");
    command->get_option("config")->required(false);
    command->callback([&] {
      if (store.empty() && words.empty()) throw CLI::RequiredError("config");
      code = RoleCommand("queue", store.empty() ? words : std::vector<std::string>{"--inspect", store});
    });
  }

  InspectArguments inspect;
  CLI::App* inspect_command = app.add_subcommand("inspect", "what happened in a run: tables, plots, trajectories");
  inspect_command->add_option("run", inspect.runs, "run directories (or names below runs/)")->required();
  inspect_command->add_flag("--json", inspect.json, "for machines");
  inspect_command->add_option("--plot", inspect.plot, "SVG plot: reward, staleness, waits, reward_vs_lag");
  inspect_command->add_option("--out", inspect.output, "file of the plot (default: standard output)");
  inspect_command->add_option("--trajectory", inspect.trajectory, "show the trajectories kept of a step");
  inspect_command->callback([&] { code = InspectCommand(inspect); });

  EvaluateArguments evaluate;
  CLI::App* evaluate_command = app.add_subcommand("eval", "play held-out episodes with a checkpoint of a run");
  evaluate_command->add_option("run", evaluate.run, "run directory (or name below runs/)")->required();
  evaluate_command->add_option("override", evaluate.overrides, "section.key=value, for example eval.greedy=true");
  evaluate_command->add_option("--step", evaluate.step, "checkpoint (default: the newest)");
  evaluate_command->add_option("--episodes", evaluate.episodes, "episodes (default: eval.episodes of the run)");
  evaluate_command->add_flag("--json", evaluate.json, "for machines");
  evaluate_command->callback([&] { code = EvaluateCommand(evaluate); });

  ExportArguments exported;
  CLI::App* export_command = app.add_subcommand(
      "export", "write a checkpoint of a run as a Hugging Face directory, for transformers and others");
  export_command->add_option("run", exported.run, "run directory (or name below runs/)")->required();
  export_command->add_option("--to", exported.to, "directory to make; it must not exist, or be empty")->required();
  export_command->add_option("--step", exported.step, "checkpoint (default: the newest that is whole)");
  export_command->callback([&] { code = ExportCommand(exported); });

  CertificateArguments certificates;
  CLI::App* doctor = app.add_subcommand("doctor", "what this machine has and lacks; makes certificates");
  CLI::Option* make = doctor->add_option("--make-certificates", certificates.directory,
                                         "make an authority, certificates, keys and tokens in this folder");
  doctor->add_option("--host", certificates.hosts, "further names and addresses of the server's certificate")
      ->needs(make);
  doctor->add_option("--days", certificates.days, "how long the certificates are valid (default: 825)")
      ->check(CLI::Range(1, 36500))
      ->needs(make);
  doctor->callback([&] { code = make->count() > 0 ? MakeCertificatesCommand(certificates) : DoctorCommand(); });
  std::string topic = "config";
  CLI::App* docs = app.add_subcommand("docs", "print reference pages made from the code");
  docs->add_option("topic", topic, "config: markdown of all configuration keys; schema: their JSON Schema")
      ->check(CLI::IsMember({"config", "schema"}));
  docs->callback([&] { code = DocsCommand(topic); });

  // The text of the whole, before a command is parsed.
  CLI::App* help_command = app.add_subcommand("help", "print this");
  const std::string help = app.help();
  help_command->callback([&code, &help] {
    fmt::print("{}", help);
    code = ExitCode::kDone;
  });

  // CLI11 would only say that a command is missing.
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  if (argc > 1 && argv[1][0] != '-' && std::find(commands.begin(), commands.end(), argv[1]) == commands.end()) {
    const std::optional<std::string> nearest = NearestWord(argv[1], commands);
    fmt::print(stderr, "no command \"{}\"{}; commands: {}\n", argv[1],
               nearest.has_value() ? fmt::format(" (did you mean \"{}\"?)", *nearest) : "", fmt::join(commands, ", "));
    return static_cast<int>(ExitCode::kConfiguration);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kConfiguration);
  }
  return static_cast<int>(code);
}
