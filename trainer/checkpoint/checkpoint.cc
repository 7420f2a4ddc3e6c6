#include "trainer/checkpoint/checkpoint.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace leeway {
namespace {

using nlohmann::json;

constexpr char kState[] = "state.json";
constexpr char kLedger[] = "ledger.bin";
constexpr char kRunState[] = "run_state.json";

// Keys sorted, one value a line, a newline at the end.
std::string Text(const json& value) { return value.dump(1, ' ', false, json::error_handler_t::replace) + "\n"; }

std::string StateText(const Checkpoint& checkpoint) {
  json ranges = json::array();
  for (const auto& [first, last] : checkpoint.consumed.ranges()) ranges.push_back({first, last});
  return Text({{"step", checkpoint.step},
               {"version", checkpoint.step + 1},
               // Counter-based random numbers have no other state.
               {"random", {{"generator", "philox4x32-10"}, {"seed", checkpoint.seed}}},
               {"optimizer_updates", checkpoint.optimizer_updates},
               {"skipped_steps", checkpoint.skipped_steps},
               {"consumed_tickets", ranges}});
}

std::string RunStateText(const Checkpoint& checkpoint) {
  json held = json::array();
  for (const HeldLine& line : checkpoint.held_lines) {
    held.push_back({{"step", line.step},
                    {"version", line.version},
                    {"awaits_evaluation", line.awaits_evaluation},
                    {"line", line.json}});
  }
  return Text({{"lineage", checkpoint.lineage},
               {"wall_seconds", checkpoint.wall_seconds},
               {"refused_groups", checkpoint.refused_groups},
               {"config", checkpoint.resolved_config},
               {"held_lines", held}});
}

// Both throw json::exception; see ParseWith.
void ParseState(const json& state, Checkpoint* checkpoint) {
  checkpoint->step = state.at("step").get<uint64_t>();
  checkpoint->seed = state.at("random").at("seed").get<uint64_t>();
  checkpoint->optimizer_updates = state.at("optimizer_updates").get<int64_t>();
  checkpoint->skipped_steps = state.at("skipped_steps").get<uint64_t>();
  const auto ranges = state.at("consumed_tickets").get<std::vector<std::pair<uint64_t, uint64_t>>>();
  if (!checkpoint->consumed.Assign(ranges)) throw json::other_error::create(502, "ranges are not sorted", &state);
}

void ParseRunState(const json& state, Checkpoint* checkpoint) {
  checkpoint->lineage = state.at("lineage").get<uint64_t>();
  checkpoint->wall_seconds = state.at("wall_seconds").get<double>();
  checkpoint->refused_groups = state.value("refused_groups", uint64_t{0});  // older checkpoints have none
  checkpoint->resolved_config = state.at("config").get<std::string>();
  for (const json& line : state.at("held_lines")) {
    checkpoint->held_lines.push_back({line.at("step").get<uint64_t>(), line.at("version").get<uint64_t>(),
                                      line.at("awaits_evaluation").get<bool>(), line.at("line").get<std::string>()});
  }
}

// Runs a parser and turns what it throws into DATA_LOSS naming the file.
template <typename Parse>
absl::Status ParseWith(const std::string& path, const std::string& text, Parse parse) {
  try {
    parse(json::parse(text));
  } catch (const json::exception& error) {
    return absl::DataLossError(absl::StrCat(path, ": ", error.what()));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> CheckpointTextNames() { return {kState, kLedger, kRunState}; }

std::map<std::string, std::string> CheckpointTexts(const Checkpoint& checkpoint) {
  return {{kState, StateText(checkpoint)}, {kLedger, checkpoint.ledger}, {kRunState, RunStateText(checkpoint)}};
}

absl::StatusOr<Checkpoint> ReadCheckpoint(FileSystem* files, const std::string& folder) {
  Checkpoint checkpoint;
  LEEWAY_ASSIGN_OR_RETURN(const std::string state, files->ReadFile(JoinPath(folder, kState)));
  LEEWAY_RETURN_IF_ERROR(
      ParseWith(JoinPath(folder, kState), state, [&](const json& value) { ParseState(value, &checkpoint); }));
  LEEWAY_ASSIGN_OR_RETURN(const std::string run_state, files->ReadFile(JoinPath(folder, kRunState)));
  LEEWAY_RETURN_IF_ERROR(
      ParseWith(JoinPath(folder, kRunState), run_state, [&](const json& value) { ParseRunState(value, &checkpoint); }));
  LEEWAY_ASSIGN_OR_RETURN(checkpoint.ledger, files->ReadFile(JoinPath(folder, kLedger)));
  return checkpoint;
}

}  // namespace leeway
