#include "collective/rank_environment.h"

#include <unistd.h>

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace leeway {
namespace {

// Ports that no service is registered for and no kernel hands out by itself (Linux: 32768 and up).
constexpr int kFirstSlurmPort = 20000, kSlurmPorts = 10000;

// Reads variables and gathers what is wrong with them.
class Reader {
 public:
  explicit Reader(const std::map<std::string, std::string>& variables) : variables_(variables) {}

  // An empty variable counts as absent.
  bool Has(const std::string& name) const { return !Text(name).empty(); }

  std::string Text(const std::string& name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? "" : found->second;
  }

  std::optional<int> Number(const std::string& name) {
    if (!Has(name)) return std::nullopt;
    int value = 0;
    if (absl::SimpleAtoi(Text(name), &value) && value >= 0) return value;
    Complain(absl::StrCat(name, "=", Text(name), " is not a number from 0"));
    return std::nullopt;
  }

  // A number that comes with `companion`.
  int Required(const std::string& name, const std::string& companion) {
    if (!Has(name)) Complain(absl::StrCat(name, " is missing beside ", companion, "=", Text(companion)));
    return Number(name).value_or(0);
  }

  void Complain(const std::string& what) { complaints_.push_back(what); }
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  const std::map<std::string, std::string>& variables_;
  std::vector<std::string> complaints_;
};

// One launcher's names.
struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* attempt_parts[3];  // joined by "."
};
constexpr Names kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", nullptr}},
    {"MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     {"PMIX_NAMESPACE", nullptr, nullptr}},
    {"MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", {"PMI_JOBID", nullptr, nullptr}},
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
};

bool IsStartedBy(const Names& names, const Reader& reader) {
  // In a batch script Slurm gives a rank to a process that is none.
  if (names.launcher == absl::string_view("Slurm")) return reader.Has(names.size);
  return reader.Has(names.rank) || reader.Has(names.size);
}

void ReadRank(const Names& names, Reader* reader, RankEnvironment* result) {
  result->launcher = names.launcher;
  result->rank = reader->Required(names.rank, names.size);
  result->size = reader->Required(names.size, names.rank);
  result->local_rank = reader->Number(names.local_rank).value_or(0);
  if (!reader->complaints().empty()) return;
  if (result->size < 1) reader->Complain(absl::StrCat(names.size, "=0: there is at least one rank"));
  if (result->size >= 1 && result->rank >= result->size) {
    reader->Complain(absl::StrCat(names.rank, "=", result->rank, " is not below ", names.size, "=", result->size));
  }
  if (result->size >= 1 && result->local_rank >= result->size) {
    reader->Complain(
        absl::StrCat(names.local_rank, "=", result->local_rank, " is not below ", names.size, "=", result->size));
  }
}

void ReadAddress(Reader* reader, RankEnvironment* result) {
  const bool has_address = reader->Has("MASTER_ADDR"), has_port = reader->Has("MASTER_PORT");
  if (has_address != has_port) {
    reader->Complain(has_address
                         ? absl::StrCat("MASTER_PORT is missing beside MASTER_ADDR=", reader->Text("MASTER_ADDR"))
                         : absl::StrCat("MASTER_ADDR is missing beside MASTER_PORT=", reader->Text("MASTER_PORT")));
    return;
  }
  if (has_address) {
    result->address = reader->Text("MASTER_ADDR");
    const std::optional<int> port = reader->Number("MASTER_PORT");
    if (port.has_value() && (*port < 1 || *port > 65535)) {
      reader->Complain(absl::StrCat("MASTER_PORT=", *port, " is not a port (1 to 65535)"));
    }
    result->port = port.value_or(0);
  } else if (result->launcher == "Slurm") {
    result->address = FirstSlurmHost(reader->Has("SLURM_STEP_NODELIST") ? reader->Text("SLURM_STEP_NODELIST")
                                                                        : reader->Text("SLURM_JOB_NODELIST"));
    const std::optional<int> job = reader->Number("SLURM_JOB_ID");
    if (!result->address.empty() && job.has_value()) {
      result->port = kFirstSlurmPort + *job % kSlurmPorts;
    } else {
      result->address.clear();
    }
  }
}

}  // namespace

absl::StatusOr<RankEnvironment> FindRankEnvironment(const std::map<std::string, std::string>& variables) {
  Reader reader(variables);
  RankEnvironment result;
  const Names* names = nullptr;
  for (const Names& candidate : kLaunchers) {
    if (names == nullptr && IsStartedBy(candidate, reader)) names = &candidate;
  }
  if (names == nullptr) return result;
  ReadRank(*names, &reader, &result);
  ReadAddress(&reader, &result);
  std::vector<std::string> attempt;
  for (const char* part : names->attempt_parts) {
    if (part != nullptr && reader.Has(part)) attempt.push_back(reader.Text(part));
  }
  result.attempt = absl::StrJoin(attempt, ".");
  if (reader.complaints().empty()) return result;
  return absl::InvalidArgumentError(absl::StrCat("the environment looks like ", names->launcher, "'s, but ",
                                                 absl::StrJoin(reader.complaints(), "; ")));
}

std::map<std::string, std::string> ProcessVariables() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::string FirstSlurmHost(const std::string& list) {
  const size_t end = list.find_first_of(",[");
  std::string host = list.substr(0, end);
  if (end == std::string::npos || list[end] == ',') return host;
  return host + list.substr(end + 1, list.find_first_of(",-]", end) - end - 1);
}

}  // namespace leeway
