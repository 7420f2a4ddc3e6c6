// Speed and memory of one train step of the product's Learner, alone in its process: PPO-clip, AdamW, arithmetic in
// fp32.
//
//   trainer_benchmark [--shape smollm2-135m|15m|8m] [--sequences 8] [--prompt 32] [--response 224] [--threads 2]
//                     [--recompute none|selective|full] [--micro-batch-tokens 16384] [--dtype f32|bf16]
//                     [--steps 5] [--phases] [--json FILE]
//
// Each step trains the same sequences of random ids. Their recorded log-probabilities are those that the step before
// computed: data that is one step old, ratios near one, nothing refused. The first step, which also touches all memory
// for the first time, counts in the peak of memory only.
//
// Counted: seconds of Learner::Train, of wall time and of processors (all threads); tokens of sequences, prompt
// included, a second. Shares of the peak of fused multiply-adds, measured in this process: of model FLOPs (causal
// attention, the head at scored positions) and of 6 x parameters x tokens. Memory is the largest resident set from the
// first step on (VmHWM): what making the initial weights took has been given back.
// --dtype bf16: trainer.bf16_parameters, weights in bf16 beside a master copy.
// --phases times the parts of a step afterwards, one by one, with a model of their own.

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "base/allocator.h"
#include "base/executor.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "collective/in_process/in_process_group.h"
#include "model/compute_peak.h"
#include "model/memory.h"
#include "model/random_case.h"
#include "nlohmann/json.hpp"
#include "trainer/learner.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/parallel/flops.h"

namespace leeway {
namespace {

struct Arguments {
  std::string shape = "smollm2-135m";
  int sequences = 8;
  int prompt = 32;
  int response = 224;
  int threads = 2;
  int steps = 5;
  std::string recompute = "none";
  int64_t micro_batch_tokens = TrainerOptions().micro_batch_tokens;
  std::string dtype = "f32";
  bool phases = false;
  std::string json;
};

ModelShape ShapeNamed(const std::string& name) {
  if (name == "smollm2-135m") return internal::SmolShape();
  return {.vocabulary = name == "15m" ? 32'000 : 8'192,
          .hidden = 288,
          .layers = 6,
          .heads = 6,
          .key_value_heads = 6,
          .head_dim = 48,
          .intermediate = 768,
          .max_positions = 2'048,
          .tied_head = true};
}

struct Times {
  double wall = 0;
  double processors = 0;
};

Times Now() {
  const auto read = [](clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  return {read(CLOCK_MONOTONIC), read(CLOCK_PROCESS_CPUTIME_ID)};
}

Times Since(const Times& begin) {
  const Times now = Now();
  return {now.wall - begin.wall, now.processors - begin.processors};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Forgets the peak so far, once what was freed has been given back.
void ForgetPeakMemory() {
  using MallCtl = int (*)(const char*, void*, size_t*, void*, size_t);
  // jemalloc's, where it is the allocator; of all arenas.
  const auto control = reinterpret_cast<MallCtl>(dlsym(RTLD_DEFAULT, "mallctl"));
  if (control != nullptr) control("arena.4096.purge", nullptr, nullptr, nullptr, 0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

int64_t PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

// Groups of up to 8 episodes: a prompt, then one sampled response; half of each group is rewarded.
LeasedBatch RandomGroups(const Arguments& arguments, const ModelShape& shape) {
  constexpr int kGroupSize = 8;
  LeasedBatch batch;
  batch.lag_limit = 1;
  for (int s = 0; s < arguments.sequences; ++s) {
    const uint32_t member = static_cast<uint32_t>(s % kGroupSize);
    const uint64_t ticket = static_cast<uint64_t>(s / kGroupSize) + 1;
    if (member == 0) batch.groups.push_back({ticket, 1, {}});
    v1::Trajectory trajectory;
    trajectory.mutable_key()->set_ticket(ticket);
    trajectory.mutable_key()->set_issue(1);
    trajectory.mutable_key()->set_member(member);
    trajectory.mutable_key()->set_attempt(1);
    trajectory.set_outcome(v1::COMPLETED);
    trajectory.set_kv_cache_consistent(true);
    trajectory.mutable_score()->set_status(v1::Score::SCORED);
    trajectory.mutable_score()->set_reward(s % 2);
    uint64_t position = 0;
    for (const bool is_sampled : {false, true}) {
      v1::Span* const span = trajectory.add_spans();
      span->set_sampled(is_sampled);
      if (is_sampled) span->set_temperature(1.0f);
      const int count = is_sampled ? arguments.response : arguments.prompt;
      for (int i = 0; i < count; ++i) {
        const RandomKey key{.purpose = RandomPurpose::kSampling,
                            .ticket = ticket,
                            .member = is_sampled ? member + 1 : 0,
                            .position = position++};
        span->add_ids(static_cast<int32_t>(RandomBelow(key, static_cast<uint64_t>(shape.vocabulary))));
        if (is_sampled) span->add_logprobs(-1.0f);
      }
    }
    v1::VersionRun* const run = trajectory.mutable_spans(1)->add_versions();
    run->mutable_weights()->set_lineage(1);
    run->set_count(static_cast<uint32_t>(arguments.response));
    batch.groups.back().members.push_back(std::move(trajectory));
  }
  return batch;
}

// Everything was sampled by version `version`, whose log-probabilities are given (none: as they are).
void Record(uint64_t version, absl::Span<const double> logprobs, LeasedBatch* batch) {
  const double* next = logprobs.data();
  for (BatchGroup& group : batch->groups) {
    for (v1::Trajectory& member : group.members) {
      v1::Span* const span = member.mutable_spans(1);
      span->mutable_versions(0)->mutable_weights()->set_version(version);
      if (logprobs.empty()) continue;
      for (float& logprob : *span->mutable_logprobs()) logprob = static_cast<float>(*next++);
    }
  }
}

void Add(const Times& more, Times* sum) {
  sum->wall += more.wall;
  sum->processors += more.processors;
}

// Median seconds of processors of the parts of a step: the whole batch scored, the gradients, the optimizer with the
// norm, and the packing of the new weights.
nlohmann::json MeasurePhases(const Arguments& arguments, const TrainerOptions& options, const TrainBatch& batch,
                             absl::Span<const float> initial, ParallelFor* parallel) {
  const WeightFormat format = options.sharding.bf16_parameters ? FormatOfBf16(options.model) : WeightFormat::kReal;
  Transformer<float> model(options.model, parallel, {.recompute = options.recompute, .weights = format});
  AdamW optimizer(options.optimizer, ParameterLayout(options.model), parallel);
  std::vector<float> parameters(initial.begin(), initial.end());
  std::vector<float> gradients(parameters.size());
  model.SetParameters(parameters);
  std::vector<double> seconds[4];
  for (int repeat = 0; repeat < arguments.steps; ++repeat) {
    Times parts[4];
    std::fill(gradients.begin(), gradients.end(), 0.0f);
    for (const MicroBatch& micro : batch.micro_batches) {
      PositionScores<float> scores;
      Times begin = Now();
      LEEWAY_CHECK(model.Score(micro.sequences, micro.positions, batch.legal_sets, true, &scores).ok());
      Add(Since(begin), &parts[0]);
      const std::vector<float> of_logprobs(micro.positions.size(), 1e-3f);
      const std::vector<float> of_entropies(micro.positions.size(), 0.0f);
      begin = Now();
      LEEWAY_CHECK(model.Backward(of_logprobs, of_entropies, absl::MakeSpan(gradients)).ok());
      Add(Since(begin), &parts[1]);
    }
    Times begin = Now();
    const double norm = GlobalNorm(absl::MakeConstSpan(gradients), parallel);
    optimizer.Step(1e-6, ClipScale(norm, options.optimizer.max_grad_norm), gradients, absl::MakeSpan(parameters));
    parts[2] = Since(begin);
    begin = Now();
    model.SetParameters(parameters);
    parts[3] = Since(begin);
    for (int part = 0; part < 4; ++part) {
      if (repeat > 0 || arguments.steps == 1) seconds[part].push_back(parts[part].processors);
    }
  }
  return {{"score", Median(seconds[0])},
          {"backward", Median(seconds[1])},
          {"optimizer", Median(seconds[2])},
          {"packing", Median(seconds[3])}};
}

absl::Status Run(const Arguments& arguments) {
  TrainerOptions options;
  options.model = ShapeNamed(arguments.shape);
  options.steps = arguments.steps + 1;
  options.groups_per_step = (arguments.sequences + 7) / 8;
  options.group_size = 8;
  options.staleness_budget = 1;
  options.micro_batch_tokens = arguments.micro_batch_tokens;
  options.optimizer.schedule.peak = 1e-6;
  options.sharding.bf16_parameters = arguments.dtype == "bf16";
  LEEWAY_ASSIGN_OR_RETURN(options.recompute, ParseRecompute(arguments.recompute));

  ParallelFor parallel(arguments.threads);
  const std::unique_ptr<Communicator> alone = InProcessGroup(1, "trainer", absl::InfiniteDuration()).Take(0);
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Mesh> mesh, Mesh::Create({}, alone.get()));
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<Learner> learner, Learner::Create(options, mesh.get(), &parallel));
  LEEWAY_RETURN_IF_ERROR(learner->Reset(RandomParameters(options.model, 1)));
  LeasedBatch leased = RandomGroups(arguments, options.model);

  ForgetPeakMemory();
  std::vector<double> wall;
  std::vector<double> processors;
  std::vector<double> peaks = {MeasureComputePeak(&parallel)};
  for (int step = 0; step <= arguments.steps; ++step) {
    // The first step's data claims to be of the version before, of which nothing is known.
    Record(static_cast<uint64_t>(step) + 1, learner->recomputed(), &leased);
    StepReport report;
    const Times begin = Now();
    LEEWAY_RETURN_IF_ERROR(learner->Train(static_cast<uint64_t>(step) + 2, leased, &report));
    const Times times = Since(begin);
    LEEWAY_CHECK(report.refused.empty() && report.updates == 1) << report.refused.size() << " groups refused";
    if (step == 0) continue;
    wall.push_back(times.wall);
    processors.push_back(times.processors);
    peaks.push_back(MeasureComputePeak(&parallel));
  }
  const int64_t peak_memory = PeakMemoryBytes();

  // The fastest of several, for the machine may have been busy.
  const double peak = *std::max_element(peaks.begin(), peaks.end());
  const double tokens = static_cast<double>(arguments.sequences * (arguments.prompt + arguments.response));
  const double model_flops = ModelFlops(options.model, learner->batch().work, AttentionCount::kCausal);
  const double simple_flops = 6 * static_cast<double>(options.model.ParameterCount()) * tokens;
  const double seconds = Median(wall);
  nlohmann::json result = {{"shape", arguments.shape},
                           {"parameters", options.model.ParameterCount()},
                           {"threads", arguments.threads},
                           {"tokens", tokens},
                           {"recompute", arguments.recompute},
                           {"dtype", arguments.dtype},
                           {"micro_batch_tokens", arguments.micro_batch_tokens},
                           {"seconds", wall},
                           {"processor_seconds", processors},
                           {"tokens_per_second", tokens / seconds},
                           {"peak_flops", peak},
                           {"model_flops", model_flops},
                           {"peak_memory_bytes", peak_memory},
                           {"allocator", AllocatorName()}};
  absl::PrintF("%s, %d tokens, %d threads: %.2f s a step, %.2f s of processors, %.0f tokens/s\n", arguments.shape,
               static_cast<int>(tokens), arguments.threads, seconds, Median(processors), tokens / seconds);
  absl::PrintF("of %.0f GFLOP/s: model FLOPs (causal) %.1f %%, 6PT %.1f %%; per processor second %.1f %% and %.1f %%\n",
               1e-9 * peak, 100 * model_flops / seconds / peak, 100 * simple_flops / seconds / peak,
               100 * model_flops / Median(processors) / peak * arguments.threads,
               100 * simple_flops / Median(processors) / peak * arguments.threads);
  absl::PrintF("peak memory %.2f GB\n", 1e-9 * static_cast<double>(peak_memory));
  if (arguments.phases) {
    const TrainBatch batch = learner->batch();
    const std::vector<float> parameters(learner->parameters().begin(), learner->parameters().end());
    learner.reset();
    result["phases"] = MeasurePhases(arguments, options, batch, parameters, &parallel);
    absl::PrintF("phases, s of processors: %s\n", result["phases"].dump());
  }
  if (!arguments.json.empty()) {
    std::ofstream out(arguments.json);
    out << result.dump() << "\n";
    if (!out.flush()) return absl::UnavailableError(absl::StrCat("cannot write ", arguments.json));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  leeway::PrepareAllocator();
  leeway::Arguments arguments;
  CLI::App app("Speed and memory of one train step.");
  app.add_option("--shape", arguments.shape)->check(CLI::IsMember({"smollm2-135m", "15m", "8m"}));
  app.add_option("--sequences", arguments.sequences)->check(CLI::Range(2, 4096));
  app.add_option("--prompt", arguments.prompt)->check(CLI::Range(1, 4096));
  app.add_option("--response", arguments.response)->check(CLI::Range(1, 4096));
  app.add_option("--threads", arguments.threads)->check(CLI::Range(1, 256));
  app.add_option("--recompute", arguments.recompute)->check(CLI::IsMember(leeway::RecomputeNames()));
  app.add_option("--micro-batch-tokens", arguments.micro_batch_tokens)->check(CLI::PositiveNumber);
  app.add_option("--dtype", arguments.dtype)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--steps", arguments.steps, "that count")->check(CLI::Range(1, 1000));
  app.add_flag("--phases", arguments.phases);
  app.add_option("--json", arguments.json, "figures, as one object");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = leeway::Run(arguments);
  if (!status.ok()) {
    std::cerr << status << std::endl;
    return 1;
  }
  return 0;
}
