#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "base/file_system.h"
#include "base/status_macros.h"
#include "fmt/format.h"
#include "launch/commands/commands.h"
#include "launch/commands/prepared_config.h"
#include "launch/display/job_view.h"
#include "launch/display/status_feed.h"
#include "launch/roles/role_process.h"
#include "launch/run/job_monitor.h"
#include "launch/run/launch_plan.h"
#include "launch/run/run_directory.h"
#include "launch/supervision/posix_spawner.h"
#include "nlohmann/json.hpp"
#include "trainer/checkpoint/checkpoint_manifest.h"

namespace leeway {
namespace {

// The trainer must not be done before the evaluation is.
constexpr int64_t kStepsToCome = 1'000'000;

// Waits for the evaluation of one version. On the supervisor's thread.
class EvaluationMonitor : public SupervisionObserver {
 public:
  EvaluationMonitor(const Config& config, uint64_t version, StatusFeed* feed)
      : version_(version),
        stall_timeout_(absl::Seconds(config.GetReal("run.stall_timeout"))),
        feed_(feed),
        view_(ViewOf(config, RealClock()->Now())) {}

  void OnEvent(const std::string& line, const std::string& log_path) override {
    // Starts and stops are no news here; deaths are.
    if (!log_path.empty()) fmt::print(stderr, "{}\n{}\n", line, LastLines(log_path, 12));
  }

  Pulse OnPulse(const SupervisionPolicy& policy) override {
    Pulse pulse;
    const MonotonicTime now = RealClock()->Now();
    const StatusFeed::Reading reading = feed_->Latest();
    if (reading.serial != last_serial_) {
      last_serial_ = reading.serial;
      view_.OnStatus(reading.status, now);
    }
    if (policy.is_ending() || result_.complete()) return pulse;
    if (reading.status.has_value()) {
      for (const v1::EvaluationResult& result : reading.status->evaluations()) {
        if (result.weights().version() != version_) continue;
        result_ = result;
        if (result.complete()) pulse.goal = "evaluation is complete";
      }
    }
    if (view_.since_progress(now) > stall_timeout_)
      pulse.stall_diagnosis = "nothing has progressed: " + view_.DescribeWaits();
    return pulse;
  }

  const v1::EvaluationResult& result() const { return result_; }

 private:
  const uint64_t version_;
  const absl::Duration stall_timeout_;
  StatusFeed* const feed_;
  JobView view_;
  uint64_t last_serial_ = 0;
  v1::EvaluationResult result_;
};

// The newest checkpoint's step, or the one that is asked for. It is whole.
absl::StatusOr<int64_t> FindCheckpoint(const RunPaths& paths, int64_t wanted) {
  const std::vector<int64_t> steps = CheckpointSteps(paths);
  if (steps.empty()) return absl::NotFoundError(fmt::format("{} has no checkpoint", paths.root));
  const int64_t step = wanted < 0 ? steps.back() : wanted;
  std::string others;
  for (const int64_t other : steps) {
    if (other != step) others += fmt::format("{}{}", others.empty() ? "" : ", ", other);
  }
  if (std::find(steps.begin(), steps.end(), step) == steps.end()) {
    return absl::NotFoundError(
        fmt::format("{} has no checkpoint of step {}; of these it has: {}", paths.root, step, others));
  }
  const std::string path = fmt::format("{}/step-{}", paths.checkpoints(), step);
  if (const absl::Status whole = VerifyCheckpoint(RealFileSystem(), path); !whole.ok()) {
    return absl::DataLossError(fmt::format(
        "the checkpoint {} is damaged or incomplete: {}; {}", path, std::string(whole.message()),
        others.empty() ? "put it back from a copy" : fmt::format("evaluate another one with --step: {}", others)));
  }
  return step;
}

// A folder that goes away with the object.
class Scratch {
 public:
  Scratch() {
    char name[] = "/tmp/leeway-eval-XXXXXX";
    if (mkdtemp(name) != nullptr) path_ = name;
  }
  ~Scratch() {
    if (!path_.empty()) static_cast<void>(RealFileSystem()->RemoveAll(path_));
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

absl::Status CopyCheckpoint(const RunPaths& from, const RunPaths& to, int64_t step) {
  const std::string name = fmt::format("/step-{}", step);
  std::error_code error;
  std::filesystem::create_directories(to.checkpoints(), error);
  std::filesystem::copy(from.checkpoints() + name, to.checkpoints() + name, std::filesystem::copy_options::recursive,
                        error);
  if (!error) std::filesystem::copy_file(from.lineage(), to.lineage(), error);
  if (error)
    return absl::InternalError(fmt::format("can not copy the checkpoint of step {}: {}", step, error.message()));
  return RealFileSystem()->WriteFileAtomically(to.checkpoints() + "/latest", fmt::format("step-{}\n", step));
}

ExitCode Fail(const absl::Status& status) {
  fmt::print(stderr, "{}\n", std::string(status.message()));
  return ExitCodeOf(status);
}

void Report(const EvaluateArguments& arguments, const RunPaths& paths, int64_t step,
            const v1::EvaluationResult& result) {
  const bool has_reward = result.episodes() > result.failed();
  if (arguments.json) {
    nlohmann::ordered_json json;
    json["run"] = paths.root;
    json["step"] = step;
    json["episodes"] = result.episodes();
    json["failed"] = result.failed();
    json["reward"] = has_reward ? nlohmann::ordered_json(result.reward_mean()) : nullptr;
    fmt::print("{}\n", json.dump());
    return;
  }
  fmt::print("step {} of {}: mean reward {} over {} held-out episodes, {} failed\n", step, paths.root,
             has_reward ? fmt::format("{:.4f}", result.reward_mean()) : "–", result.episodes(), result.failed());
}

}  // namespace

// The checkpoint is restored by a trainer of its own in a scratch copy of the run, as if training went on for one more
// step: publishing its weights makes the queue plan their evaluation, and the job ends when that is complete, whatever
// the trainer does.
ExitCode EvaluateCommand(const EvaluateArguments& arguments) {
  const RunPaths paths(std::filesystem::absolute(FindRun(arguments.run)).lexically_normal().string());
  const absl::StatusOr<Config> existing = ReadRunConfig(paths);
  if (!existing.ok()) return Fail(existing.status());
  const absl::StatusOr<int64_t> step = FindCheckpoint(paths, arguments.step);
  if (!step.ok()) return Fail(step.status());
  const Scratch scratch;
  if (scratch.path().empty()) return Fail(absl::PermissionDeniedError("/tmp is not writable"));
  std::vector<std::string> words = {paths.config()};
  words.insert(words.end(), arguments.overrides.begin(), arguments.overrides.end());
  const int64_t episodes = arguments.episodes > 0 ? arguments.episodes : existing->GetInteger("eval.episodes");
  for (const std::string& word :
       {fmt::format("run.directory={}", scratch.path()), std::string("run.name=eval"),
        fmt::format("trainer.steps={}", *step + kStepsToCome),
        fmt::format("eval.every={}", std::max<int64_t>(*step, 1)), fmt::format("eval.episodes={}", episodes),
        std::string("checkpoint.every=0"),
        // Nothing is trained.
        std::string("trainer.ranks=1"), std::string("trainer.tensor_parallel=1"),
        std::string("trainer.sequence_parallel=false"),
        // The run itself may be going on: its addresses are taken.
        std::string("queue.address="), std::string("weights.address="), std::string("metrics.port=0"),
        // And unix sockets need none of the files that it was guarded with.
        std::string("security.certificate="), std::string("security.key="), std::string("security.authority="),
        std::string("security.token_file=")}) {
    words.push_back(word);
  }
  const PreparedConfig prepared = PrepareConfig(words);
  if (!prepared.errors.empty()) {
    fmt::print(stderr, "{}", DescribeErrors(prepared.errors));
    return ExitCode::kConfiguration;
  }
  const Config& config = prepared.resolved.config;
  const absl::StatusOr<std::string> binaries = FindBinaries();
  if (!binaries.ok()) return Fail(binaries.status());
  absl::StatusOr<std::unique_ptr<PosixSpawner>> spawner = PosixSpawner::Create();
  if (!spawner.ok()) return Fail(spawner.status());
  absl::StatusOr<std::vector<Supervisor::Child>> children =
      PlanChildren(config, RunPaths(prepared.run_directory), *binaries, ProcessEnvironment());
  if (!children.ok()) return Fail(children.status());
  absl::StatusOr<RunDirectory> run = RunDirectory::Open(prepared.run_directory, config);
  if (!run.ok()) return Fail(run.status());
  if (const absl::Status copied = CopyCheckpoint(paths, run->paths(), *step); !copied.ok()) return Fail(copied);
  absl::StatusOr<std::unique_ptr<StatusFeed>> feed = StatusFeed::Start(QueueAddressOf(config, run->paths()));
  if (!feed.ok()) return Fail(feed.status());
  EvaluationMonitor monitor(config, static_cast<uint64_t>(*step) + 1, feed->get());
  Supervisor supervisor(SupervisionOptionsOf(config), *std::move(children), spawner->get(), &monitor);
  const ExitCode code = supervisor.Run();
  if (code != ExitCode::kDone || !monitor.result().complete()) {
    fmt::print(stderr, "no result: {}\n", supervisor.policy().reason());
    return code == ExitCode::kDone ? ExitCode::kOther : code;
  }
  Report(arguments, paths, *step, monitor.result());
  return ExitCode::kDone;
}

}  // namespace leeway
