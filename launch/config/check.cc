#include "launch/config/check.h"

#include <unistd.h>

#include <filesystem>
#include <map>

#include "fmt/format.h"
#include "formats/model_config.h"
#include "launch/config/rank_memory.h"
#include "launch/roles/security_options.h"
#include "launch/roles/task_options.h"
#include "launch/roles/trainer_role.h"
#include "model/memory.h"
#include "model/model_files.h"
#include "rpc/address.h"
#include "rpc/listener/listening_socket.h"

namespace leeway {
namespace {

std::string HumanBytes(double bytes) {
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = next;
  }
  return fmt::format("{:.{}f} {}", bytes, bytes < 10 && *unit != 'B' ? 1 : 0, unit);
}

// Estimates in bytes.
struct MemoryNeed {
  double trainer = 0;  // all ranks
  double worker = 0;
  int64_t workers = 0;
  double in_flight = 0;

  double Total() const { return trainer + static_cast<double>(workers) * worker + in_flight; }
};

// nullopt: the shape is not known (other errors say why).
std::optional<MemoryNeed> MemoryNeedOf(const ResolvedConfig& resolved) {
  const Config& config = resolved.config;
  if (resolved.task == nullptr || resolved.tokenizer == nullptr || config.GetInteger("model.head_dim") == 0)
    return std::nullopt;
  const std::optional<RankMemory> rank = RankMemoryOf(resolved);
  if (!rank.has_value()) return std::nullopt;
  const ModelShape shape = ShapeOf(config, resolved.tokenizer->vocabulary_size());
  const double parameters = static_cast<double>(shape.ParameterCount());
  const double key_value = static_cast<double>(shape.layers * shape.key_value_heads * shape.head_dim);
  const double tokens = resolved.task->max_episode_tokens();
  MemoryNeed need;
  need.trainer =
      static_cast<double>(config.GetInteger("trainer.ranks")) * rank->Total() + static_cast<double>(rank->published);
  const bool is_bf16 = config.GetString("model.dtype") == "bfloat16";
  const double payload = (is_bf16 ? 2 : 4) * parameters;
  // Two received sets, and the one that the engine reads.
  const int64_t packed = PackedWeightBytes(shape, {}, /*is_streamed=*/false, /*backward=*/false, sizeof(float),
                                           WeightFormatOf(shape, is_bf16));
  need.worker = 2 * payload + static_cast<double>(packed) +
                2 * 4 * key_value * tokens * static_cast<double>(config.GetInteger("rollout.slots"));
  need.workers = config.GetInteger("rollout.workers");
  need.in_flight = 2 * payload;
  return need;
}

// Collects complaints about one configuration.
class Checker {
 public:
  explicit Checker(const ResolvedConfig& resolved) : config_(resolved.config), resolved_(resolved) {}

  std::vector<Diagnostic> Run() {
    CheckModel();
    CheckInitialModel();
    CheckGroups();
    CheckQueue();
    CheckStaleness();
    CheckTrainer();
    CheckMemory();
    CheckPlaces();
    CheckPorts(CheckSecurity());
    return std::move(errors_);
  }

 private:
  int64_t Integer(const char* key) const { return config_.GetInteger(key); }
  const std::string& Text(const char* key) const { return config_.GetString(key); }

  void Error(const std::string& key, std::string message) {
    errors_.push_back({config_.PlaceOf(key), key, std::move(message)});
  }

  // The first of the keys that somebody wrote: errors between keys point at it.
  std::string Written(std::initializer_list<const char*> keys) const {
    for (const char* key : keys) {
      if (!config_.IsDefault(key)) return key;
    }
    return *keys.begin();
  }

  void CheckModel() {
    const int64_t hidden = Integer("model.hidden");
    const int64_t heads = Integer("model.heads");
    const int64_t groups = Integer("model.key_value_heads");
    if (Integer("model.head_dim") == 0) {
      Error(Written({"model.heads", "model.hidden"}),
            fmt::format("model.hidden = {} is not divisible by model.heads = {}; change one, or set model.head_dim",
                        hidden, heads));
    } else if (Integer("model.head_dim") % 2 != 0) {
      Error(Written({"model.head_dim", "model.heads", "model.hidden"}),
            fmt::format("heads are {} wide; rotary positions need an even width", Integer("model.head_dim")));
    }
    if (heads % groups != 0) {
      Error("model.key_value_heads", fmt::format("expected a divisor of model.heads = {}, got {}", heads, groups));
    }
    if (resolved_.task == nullptr) return;
    const int64_t needed = resolved_.task->max_episode_tokens();
    if (Integer("model.max_positions") < needed) {
      Error("model.max_positions", fmt::format("expected at least {}, what the longest episode of {} needs, got {}",
                                               needed, Text("task.name"), Integer("model.max_positions")));
    }
  }

  void CheckInitialModel() {
    const std::string& directory = Text("model.init");
    // What is wrong with its config.json may have been said.
    if (directory.empty() || std::any_of(errors_.begin(), errors_.end(), IsOfInitialModel) ||
        std::any_of(resolved_.errors.begin(), resolved_.errors.end(), IsOfInitialModel)) {
      return;
    }
    const size_t before = errors_.size();
    CompareWithModel(directory);
    if (errors_.size() > before) return;
    // Without this the trainer would find out, when everything else has been started.
    if (const absl::Status weights = CheckModelDirectory(directory); !weights.ok()) {
      Error("model.init",
            fmt::format("{}; fetch or convert that model again, or leave model.init empty to start from random weights",
                        std::string(weights.message())));
    }
  }

  static bool IsOfInitialModel(const Diagnostic& error) { return error.key == "model.init"; }

  void CompareWithModel(const std::string& directory) {
    const std::string config_path = directory + "/config.json";
    const absl::StatusOr<ModelConfig> model = ReadModelConfig(directory);
    if (!model.ok()) {
      Error("model.init", std::string(model.status().message()));
      return;
    }
    const auto compare = [&](const char* key, const char* name, auto theirs) {
      const auto ours = std::get<decltype(theirs)>(config_.Get(key));
      if (ours != theirs) {
        Error(config_.IsDefault(key) ? "model.init" : key,
              fmt::format("{} = {}, but {} says {} = {}", key, ours, config_path, name, theirs));
      }
    };
    compare("model.family", "model_type", std::string(ModelFamilyName(model->model_type)));
    compare("model.hidden", "hidden_size", model->hidden_size);
    compare("model.layers", "num_hidden_layers", model->num_hidden_layers);
    compare("model.heads", "num_attention_heads", model->num_attention_heads);
    compare("model.key_value_heads", "num_key_value_heads", model->num_key_value_heads);
    compare("model.head_dim", "head_dim", model->head_dim);
    compare("model.intermediate", "intermediate_size", model->intermediate_size);
    compare("model.tied_head", "tie_word_embeddings", model->tie_word_embeddings);
    compare("model.rope_theta", "rope_theta", model->rope.theta);
    compare("model.rms_epsilon", "rms_norm_eps", model->rms_norm_eps);
    if (Integer("model.max_positions") > model->max_position_embeddings) {
      Error(config_.IsDefault("model.max_positions") ? "model.init" : "model.max_positions",
            fmt::format("sequences need {} positions, but {} says max_position_embeddings = {}",
                        Integer("model.max_positions"), config_path, model->max_position_embeddings));
    }
    if (resolved_.tokenizer != nullptr && model->vocab_size != resolved_.tokenizer->vocabulary_size()) {
      Error("model.init", fmt::format("vocabularies differ: {} has {} tokens, task {} uses the {} vocabulary of {}",
                                      config_path, model->vocab_size, Text("task.name"), resolved_.tokenizer->name(),
                                      resolved_.tokenizer->vocabulary_size()));
    }
  }

  void CheckGroups() {
    const int64_t size = Integer("trainer.group_size");
    if (size < 2) {
      Error(Written({"trainer.group_size", "objective.advantage"}),
            fmt::format("groups of 1 have advantage 0 under `{}`: nothing would be learnt; expected at least 2",
                        Text("objective.advantage")));
    }
    if (Text("queue.short_group") == "train" && Integer("queue.short_group_minimum") > size) {
      Error("queue.short_group_minimum", fmt::format("expected at most trainer.group_size = {}, got {}", size,
                                                     Integer("queue.short_group_minimum")));
    }
  }

  void CheckQueue() {
    const int64_t batch = Integer("trainer.groups_per_step");
    const int64_t size = Integer("trainer.group_size");
    const int64_t largest = Integer("queue.max_trajectory_bytes");
    if (Integer("queue.max_groups") < batch) {
      Error("queue.max_groups",
            fmt::format(
                "the trainer would wait for ever: a batch is {} groups (trainer.groups_per_step), the queue holds {}",
                batch, Integer("queue.max_groups")));
    }
    if (largest == 0) return;
    // In floating point: the product of legal keys may not fit an integer.
    const double needed = static_cast<double>(batch) * static_cast<double>(size) * static_cast<double>(largest);
    if (needed > static_cast<double>(Integer("queue.max_bytes"))) {
      Error("queue.max_bytes", fmt::format("the trainer would wait for ever: a batch reserves {} groups x {} episodes "
                                           "x {} bytes = {:.0f} bytes, the queue holds {}",
                                           batch, size, largest, needed, Integer("queue.max_bytes")));
    }
    if (resolved_.task != nullptr && resolved_.tokenizer != nullptr) {
      const int64_t possible = LargestTrajectoryBytes(*resolved_.task, resolved_.tokenizer->vocabulary_size());
      if (largest < possible) {
        Error("queue.max_trajectory_bytes",
              fmt::format("expected at least {}, what the longest episode of {} may take, got {}", possible,
                          Text("task.name"), largest));
      }
    }
  }

  void CheckStaleness() {
    const std::string& order = Text("staleness.order");
    if (Text("staleness.breach") == "wait" && order != "ticket") {
      Error(Written({"staleness.breach", "staleness.order"}),
            fmt::format("`wait` needs order `ticket`, got order `{}`: a group taken late could never be waited for",
                        order));
    }
    if (Text("mode") == "sync" && !config_.IsDefault("staleness.budget") && Integer("staleness.budget") != 0) {
      Error("staleness.budget",
            fmt::format("mode `sync` takes turns, so no lag can occur; expected 0 or nothing, got {}",
                        Integer("staleness.budget")));
    }
  }

  void CheckTrainer() {
    if (Integer("trainer.updates_per_step") > Integer("trainer.groups_per_step")) {
      Error("trainer.updates_per_step",
            fmt::format("a batch of {} groups can not be split into {} updates", Integer("trainer.groups_per_step"),
                        Integer("trainer.updates_per_step")));
    }
    if (resolved_.task != nullptr && Integer("trainer.warm_start.steps") > 0 &&
        !resolved_.task->Demonstrate(resolved_.task->TrainSeed(1, 0)).has_value()) {
      Error("trainer.warm_start.steps", fmt::format("task {} has no demonstrations to start from", Text("task.name")));
    }
    if (resolved_.task == nullptr || Integer("model.head_dim") == 0) return;
    for (const ConfigProblem& problem :
         TrainerProblems(TrainerOptionsOf(config_, *resolved_.task, resolved_.tokenizer->vocabulary_size(), ""))) {
      // Its words for the shape as a whole; what is wrong with single sizes was said above.
      const std::string key = FindKey(problem.key) != nullptr ? problem.key : "model.hidden";
      const std::string section = key.substr(0, key.find('.'));
      bool is_known = false;
      for (const Diagnostic& error : errors_)
        is_known |= error.key == key || (section == "model" && error.key.rfind("model.", 0) == 0);
      if (!is_known) Error(key, problem.message);
    }
  }

  void CheckMemory() {
    const std::optional<MemoryNeed> need = MemoryNeedOf(resolved_);
    const double has = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
    if (!need.has_value() || need->Total() <= has) return;
    Error(Written({"model.layers", "model.hidden", "model.intermediate", "rollout.slots", "rollout.workers"}),
          fmt::format("the processes need about {} (trainer {}, each of {} rollout workers {}, weights in flight {}), "
                      "this machine has {}",
                      HumanBytes(need->Total()), HumanBytes(need->trainer), need->workers, HumanBytes(need->worker),
                      HumanBytes(need->in_flight), HumanBytes(has)));
  }

  void CheckPlaces() {
    const std::string& name = Text("run.name");
    if (name.find('/') != std::string::npos || name == "." || name == "..") {
      Error("run.name", fmt::format("expected a name without '/', got \"{}\"", name));
    }
    std::filesystem::path directory = Text("run.directory");
    if (std::any_of(directory.begin(), directory.end(), [](const auto& part) { return part == "~"; })) {
      Error("run.directory", "a ~ here is a folder of that name, not your home folder; write the path in full");
      return;
    }
    std::error_code error;
    const std::filesystem::path run = directory / name;
    if (std::filesystem::exists(run, error) && !std::filesystem::is_directory(run, error)) {
      Error("run.name", fmt::format("{} exists and is no folder", run.string()));
      return;
    }
    // The nearest part that exists decides whether the rest can be made.
    while (!std::filesystem::exists(directory, error) && directory.has_relative_path())
      directory = directory.parent_path();
    if (!std::filesystem::is_directory(directory, error)) {
      Error("run.directory", fmt::format("{} is no folder", directory.string()));
    } else if (access(directory.c_str(), W_OK) != 0) {
      Error("run.directory", fmt::format("{} is not writable", directory.string()));
    }
  }

  void CheckPorts(const absl::StatusOr<ConnectionSecurity>& security) {
    for (const char* key : {"queue.address", "weights.address"}) {
      if (Text(key).empty()) continue;
      const absl::StatusOr<RpcAddress> address = ParseRpcAddress(Text(key));
      if (!address.ok()) {
        Error(key, std::string(address.status().message()));
      } else if (address->is_unix()) {
        CheckSocket(key, address->unix_path);
      } else if (address->port == 0) {
        Error(key, "port 0 means any free one, which the other processes could not know; choose a port");
      } else if (CheckExposure(key, *address, security)) {
        CheckPort(key, *address, "");
      }
    }
    if (!Text("queue.address").empty() && Text("queue.address") == Text("weights.address")) {
      Error("weights.address", "is the queue's address too; expected another one");
    }
    const int64_t base = Integer("metrics.port");
    if (base == 0) return;
    const int64_t last = base + 1 + Integer("rollout.workers");
    if (last > 65535) {
      Error("metrics.port", fmt::format("the last process would need port {}; expected at most {}", last,
                                        65535 - 1 - Integer("rollout.workers")));
      return;
    }
    for (int64_t port = base; port <= last; ++port) {
      RpcAddress address;
      address.host = "127.0.0.1";
      address.port = static_cast<int>(port);
      CheckPort("metrics.port", address, port == base ? "" : fmt::format(" (metrics.port + {})", port - base));
    }
  }

  // Whether a server may listen there with what security.* gives it. Without its files nobody can tell: they have an
  // error of their own.
  bool CheckExposure(const char* key, const RpcAddress& address, const absl::StatusOr<ConnectionSecurity>& security) {
    if (!security.ok()) return true;
    ConnectionSecurity own = *security;
    // On loopback the run makes its tokens itself.
    if (own.tokens.empty() && address.is_loopback()) own.tokens = RoleTokens::Generate();
    const absl::Status status = CheckServerSecurity(address, own);
    if (!status.ok()) Error(key, std::string(status.message()));
    return status.ok();
  }

  absl::StatusOr<ConnectionSecurity> CheckSecurity() {
    absl::StatusOr<ConnectionSecurity> security = LoadSecurity(SecurityFilesOf(config_));
    if (!security.ok()) {
      // It begins with the name of the file that is at fault.
      const std::string message(security.status().message());
      const size_t colon = message.find(": ");
      const std::string key = "security." + message.substr(0, colon);
      // What is missing has no place: that of what it is missing beside.
      const std::string place =
          config_.IsDefault(key) ? Written({"security.certificate", "security.key", "security.authority"}) : key;
      errors_.push_back({config_.PlaceOf(place), key, message.substr(colon + 2)});
    }
    return security;
  }

  void CheckSocket(const char* key, const std::string& path) {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error) || access(folder.c_str(), W_OK) != 0) {
      Error(key, fmt::format("{} is no folder that can be written to", folder.string()));
    } else if (const absl::Status status = CheckSocketFolder(folder.string()); !status.ok()) {
      Error(key, std::string(status.message()));
    } else if (IsSocketServed(path)) {
      Error(key, fmt::format("a server listens on {} already; choose another one", path));
    }
  }

  void CheckPort(const char* key, const RpcAddress& address, const std::string& remark) {
    const absl::Status status = ListeningSocket::Open(address).status();
    if (absl::IsAlreadyExists(status)) {
      Error(key, fmt::format("port {}{} is busy; choose another one", address.port, remark));
    } else if (!status.ok()) {
      Error(key, std::string(status.message()));
    }
  }

  const Config& config_;
  const ResolvedConfig& resolved_;
  std::vector<Diagnostic> errors_;
};

// Where a key's value comes from: the key itself, or what a derived value was derived from.
Place PlaceOfCause(const Config& config, const std::string& key) {
  static const auto* const causes = new std::map<std::string, std::vector<std::string>>{
      {"model.key_value_heads", {"model.heads"}},
      {"model.head_dim", {"model.hidden", "model.heads"}},
      {"model.intermediate", {"model.hidden"}},
      {"model.max_positions", {"task.file", "task.max_answer_tokens", "task.name"}}};
  const auto found = causes->find(key);
  if (!config.IsDefault(key) || found == causes->end()) return config.PlaceOf(key);
  for (const std::string& cause : found->second) {
    if (!config.IsDefault(cause)) return config.PlaceOf(cause);
  }
  return config.PlaceOf(key);
}

}  // namespace

std::vector<Diagnostic> CheckConfig(const ResolvedConfig& resolved) {
  std::vector<Diagnostic> errors = resolved.errors;
  std::vector<Diagnostic> more = Checker(resolved).Run();
  errors.insert(errors.end(), more.begin(), more.end());
  return errors;
}

std::vector<Diagnostic> CheckResume(const Config& existing, const Config& wanted) {
  std::vector<Diagnostic> errors;
  for (const ConfigDifference& difference : CompareForResume(existing, wanted)) {
    if (!difference.is_refused) continue;
    const bool may_grow = FindKey(difference.key)->resume() == ResumeRule::kMayGrow;
    errors.push_back({PlaceOfCause(wanted, difference.key), difference.key,
                      fmt::format("the run that exists has {}, wanted is {}; {}", difference.before, difference.after,
                                  may_grow ? "a resume may raise it, not lower it"
                                           : "a resume can not change it (choose another run.name)")});
  }
  return errors;
}

std::string DescribeFeasibility(const ResolvedConfig& resolved) {
  const Config& config = resolved.config;
  const std::optional<MemoryNeed> need = MemoryNeedOf(resolved);
  if (!need.has_value()) return "";
  const ModelShape shape = ShapeOf(config, resolved.tokenizer->vocabulary_size());
  const double parameters = static_cast<double>(shape.ParameterCount());
  const double queue =
      std::min(static_cast<double>(config.GetInteger("queue.max_bytes")),
               static_cast<double>(config.GetInteger("queue.max_groups") * config.GetInteger("trainer.group_size") *
                                   config.GetInteger("queue.max_trajectory_bytes")));
  std::string text;
  text += fmt::format("model        {:.0f} parameters ({}), vocabulary {} ({})\n", parameters,
                      HumanBytes(4 * parameters), shape.vocabulary, resolved.tokenizer->name());
  text += fmt::format("episodes     at most {} tokens in {} turns, {} a trajectory; {:.0f} a step\n",
                      resolved.task->max_episode_tokens(), resolved.task->max_turns(),
                      HumanBytes(static_cast<double>(config.GetInteger("queue.max_trajectory_bytes"))),
                      BatchEpisodes(config));
  text += fmt::format("queue        {} groups, {} reserved at most, up to {} with unsettled steps\n",
                      config.GetInteger("queue.max_groups"), HumanBytes(queue),
                      HumanBytes(static_cast<double>(config.GetInteger("queue.max_bytes"))));
  text += fmt::format("memory       trainer about {}, each of {} rollout workers about {}, weights in flight {}\n",
                      HumanBytes(need->trainer), need->workers, HumanBytes(need->worker), HumanBytes(need->in_flight));
  const RankMemory rank = *RankMemoryOf(resolved);
  text += fmt::format(
      "trainer      {} rank{} ({} data-parallel x {} tensor-parallel, zero stage {}), each: parameters {}{}, "
      "gradients {}, optimizer {}, buffers {},\n             packed weights {}, activations {} and {} passing "
      "(recompute {}), {} of a checkpoint that is being written{}\n",
      config.GetInteger("trainer.ranks"), config.GetInteger("trainer.ranks") == 1 ? "" : "s",
      config.GetInteger("trainer.ranks") / config.GetInteger("trainer.tensor_parallel"),
      config.GetInteger("trainer.tensor_parallel"), config.GetInteger("trainer.zero_stage"),
      HumanBytes(static_cast<double>(rank.states.parameters)),
      rank.states.master == 0 ? "" : ", master copies " + HumanBytes(static_cast<double>(rank.states.master)),
      HumanBytes(static_cast<double>(rank.states.gradients)), HumanBytes(static_cast<double>(rank.states.optimizer)),
      HumanBytes(static_cast<double>(rank.states.buffers)), HumanBytes(static_cast<double>(rank.packed_weights)),
      HumanBytes(static_cast<double>(rank.activations)), HumanBytes(static_cast<double>(rank.passing)),
      config.GetString("trainer.recompute"), HumanBytes(static_cast<double>(rank.checkpoint)),
      rank.published == 0 ? "" : "; rank 0 the whole weights, " + HumanBytes(static_cast<double>(rank.published)));
  text += fmt::format("staleness    lag of a trained token at most {}\n",
                      config.GetString("mode") == "sync" ? 0 : config.GetInteger("staleness.budget"));
  return text;
}

}  // namespace leeway
