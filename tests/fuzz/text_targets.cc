// What people, other programs and earlier runs wrote into files.

#include "base/failpoint.h"
#include "base/status_macros.h"
#include "envs/tasks/question_set.h"
#include "formats/model_config.h"
#include "formats/safetensors_header.h"
#include "launch/config/config_loader.h"
#include "launch/config/resolve.h"
#include "launch/report/metrics_file.h"
#include "launch/report/trajectory_view.h"
#include "rpc/address.h"
#include "tests/fuzz/fuzz_target.h"
#include "tokenizer/tokenizer.h"
#include "weightsync/manifest.h"

namespace leeway {
namespace {

void RunSafetensorsHeader(absl::string_view input) {
  const absl::StatusOr<internal::SafetensorsHeader> header = internal::ParseSafetensorsHeader(input, /*data_bytes=*/64);
  if (!header.ok()) return;
  // What was read can be written, and reads the same.
  const absl::StatusOr<std::string> text = internal::FormatSafetensorsHeader(*header);
  if (text.ok()) LEEWAY_CHECK(internal::ParseSafetensorsHeader(*text, 64).ok()) << *text;
}

std::vector<std::string> SafetensorsHeaderSeeds() {
  return {
      R"({"a":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},"b":{"dtype":"BF16","shape":[16],"data_offsets":[32,64]}})",
      R"({"__metadata__":{"format":"pt"},"x":{"dtype":"U8","shape":[64],"data_offsets":[0,64]},"empty":{"dtype":"F32","shape":[0],"data_offsets":[64,64]}})",
      "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"};
}

void RunModelConfig(absl::string_view input) {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(input, "config.json");
  if (config.ok()) LEEWAY_CHECK(ParseModelConfig(FormatModelConfig(*config), "again").ok());
}

std::vector<std::string> ModelConfigSeeds() {
  return {
      R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
"intermediate_size":176,"vocab_size":32,"max_position_embeddings":128,"rms_norm_eps":1e-5,"rope_theta":10000.0,"tie_word_embeddings":true,
"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64}})",
      R"({"model_type":"llama","rope_parameters":{"rope_type":"default","rope_theta":500000.0},"hidden_act":"silu"})",
      R"({"model_type":"qwen3","architectures":["Qwen3ForCausalLM"],"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,
"intermediate_size":176,"vocab_size":32,"use_sliding_window":true,"max_window_layers":2,"layer_types":["full_attention"],"eos_token_id":[1,2]})"};
}

void RunQuestions(absl::string_view input) {
  if (input.empty()) return;
  const AnswerMatch match = static_cast<AnswerMatch>(static_cast<uint8_t>(input[0]) % 3);
  input.remove_prefix(1);
  const absl::StatusOr<std::vector<Question>> questions = ParseQuestions(input, "questions.jsonl", match, 64);
  if (!questions.ok()) return;
  for (const Question& question : *questions) static_cast<void>(IsRightAnswer(question, match, question.answer));
  static_cast<void>(SplitQuestions(*questions, 0.5));
}

std::vector<std::string> QuestionSeeds() {
  return {std::string(1, '\0') + "{\"question\":\"1+1=\",\"answer\":\"2\"}\n\n{\"question\":\"2+2=\",\"answer\":4}\n",
          "\1{\"question\":\"a word\",\"answer\":\"[a-z]+\"}\n",
          "\2{\"question\":\"half\",\"answer\":\"1/2\"}\n{\"question\":\"big\",\"answer\":\"1,000e3\"}\n"};
}

void RunConfig(absl::string_view input) {
  const LoadedConfig loaded = ParseConfig(std::string(input), "run.toml");
  if (!loaded.errors.empty()) return;
  const ResolvedConfig resolved = ResolveConfig(loaded.config, "run");
  // What is printed reads back without an error.
  if (resolved.errors.empty()) {
    const LoadedConfig again = ParseConfig(resolved.config.ToToml(), "again.toml");
    LEEWAY_CHECK(again.errors.empty()) << FormatDiagnostics(again.errors);
  }
}

std::vector<std::string> ConfigSeeds() {
  return {
      "[task]\nname = \"sort5\"\n[trainer]\nsteps = 20\ngroups_per_step = 8\ngroup_size = 4\n[staleness]\nbudget = "
      "2\norder = \"ready\"\n",
      "seed = 7\nmode = \"sync\"\n[task]\nname = \"lake4x4\"\n[optimizer]\nlearning_rate = 1e-3\n[eval]\nevery = 0\n",
      "[task]\nname = \"guess20\"\n[model]\nhidden = 60\nheads = 7\n[queue]\nmax_groups = 1\n"};
}

void RunAddress(absl::string_view input) {
  const absl::StatusOr<RpcAddress> address = ParseRpcAddress(std::string(input));
  if (address.ok()) LEEWAY_CHECK(ParseRpcAddress(address->ToString()).ok()) << address->ToString();
}

void RunReports(absl::string_view input) {
  static_cast<void>(ParseMetricsLine(std::string(input)));
  static_cast<void>(FormatTrajectories(std::string(input)));
}

std::vector<std::string> ReportSeeds() {
  return {
      R"({"step":3,"version":4,"staleness/histogram":[1,2,0],"reward/mean":0.5,"time/wall_s":1.5})",
      R"({"step":3,"ticket":7,"member":0,"text":"1 2 3","reward":1.0,"spans":[{"sampled":true,"text":"3 2 1","versions":[[1,3,5]]}]})"
      "\n"};
}

void RunManifest(absl::string_view input) {
  v1::Manifest manifest;
  if (!manifest.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  if (!CheckManifest(manifest).ok()) return;
  static_cast<void>(LayoutDifferences(manifest, manifest));
  static_cast<void>(VerifyBytes(manifest, {}));
}

std::vector<std::string> ManifestSeeds() {
  const std::vector<float> values(8);
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  const std::vector<TensorView> tensors = {{"a", {2, 2}, "F32", {bytes, 16}}, {"b", {4}, "F32", {bytes + 16, 16}}};
  v1::WeightsVersion weights;
  weights.set_lineage(1);
  weights.set_version(2);
  return {MakeManifest(weights, tensors).value().SerializeAsString()};
}

void RunTokenizers(absl::string_view input) {
  for (const char* name : {"byte", "character"}) {
    const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = NewTokenizer(name);
    if (!tokenizer.ok()) continue;
    const absl::StatusOr<std::vector<int32_t>> ids = (*tokenizer)->Encode(input);
    if (!ids.ok()) continue;
    const absl::StatusOr<std::string> text = (*tokenizer)->Decode(*ids);
    LEEWAY_CHECK(text.ok() && *text == input) << name;
  }
}

}  // namespace

std::vector<FuzzTarget> TextFuzzTargets() {
  return {{"safetensors_header", RunSafetensorsHeader, SafetensorsHeaderSeeds},
          {"model_config", RunModelConfig, ModelConfigSeeds},
          {"questions", RunQuestions, QuestionSeeds},
          {"config", RunConfig, ConfigSeeds},
          {"address", RunAddress,
           [] {
             return std::vector<std::string>{"unix:/run/queue.sock", "127.0.0.1:5000", "[::1]:0", "localhost:65536",
                                             "host-1.example:80"};
           }},
          {"reports", RunReports, ReportSeeds},
          {"manifest", RunManifest, ManifestSeeds},
          {"tokenizers", RunTokenizers,
           [] {
             return std::vector<std::string>{"sort: 3 1 2", "\xc3\xa4\xff"};
           }},
          {"failpoints", [](absl::string_view input) { static_cast<void>(FailpointCheck(input)); },
           [] {
             return std::vector<std::string>{"a=kill@3,b=delay:20,c=error", "x=hang"};
           }}};
}

}  // namespace leeway
