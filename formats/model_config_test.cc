#include "formats/model_config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The config.json of a small Llama as older transformers write it.
nlohmann::json OldStyle() {
  return nlohmann::json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.02, "intermediate_size": 1536,
    "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 9,
    "num_hidden_layers": 30, "num_key_value_heads": 3, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 49152})");
}

// Qwen2.5-0.5B's and Qwen3-0.6B's, as published.
nlohmann::json Qwen2() {
  return nlohmann::json::parse(R"({
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
    "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
    "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
    "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true,
    "use_mrope": false, "use_sliding_window": false, "vocab_size": 151936})");
}

nlohmann::json Qwen3() {
  return nlohmann::json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
    "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
}

std::string Refusal(const nlohmann::json& json) {
  const auto config = ParseModelConfig(json.dump(), "dir/config.json");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

TEST(ModelConfigTest, ReadsTheOldStyle) {
  const auto config = ParseModelConfig(OldStyle().dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->vocab_size, 49152);
  EXPECT_EQ(config->hidden_size, 576);
  EXPECT_EQ(config->intermediate_size, 1536);
  EXPECT_EQ(config->num_hidden_layers, 30);
  EXPECT_EQ(config->num_attention_heads, 9);
  EXPECT_EQ(config->num_key_value_heads, 3);
  EXPECT_EQ(config->head_dim, 64);
  EXPECT_EQ(config->max_position_embeddings, 8192);
  EXPECT_EQ(config->rms_norm_eps, 1e-5);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->rope.type, RopeType::kDefault);
  EXPECT_EQ(config->rope.theta, 100000.0);
  EXPECT_EQ(config->dtype, "bfloat16");
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));
}

TEST(ModelConfigTest, ReadsQwen2) {
  const auto config = ParseModelConfig(Qwen2().dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model_type, ModelFamily::kQwen2);
  EXPECT_EQ(config->head_dim, 64);
  EXPECT_EQ(config->num_key_value_heads, 2);
  EXPECT_EQ(config->rms_norm_eps, 1e-6);
  EXPECT_EQ(config->rope.theta, 1e6);
  EXPECT_TRUE(config->tie_word_embeddings);
}

TEST(ModelConfigTest, ReadsQwen3) {
  const auto config = ParseModelConfig(Qwen3().dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model_type, ModelFamily::kQwen3);
  // Not hidden_size / num_attention_heads = 64.
  EXPECT_EQ(config->head_dim, 128);
  EXPECT_EQ(config->num_key_value_heads, 8);
  EXPECT_EQ(config->max_position_embeddings, 40960);
}

// The defaults of transformers 5's configuration classes.
TEST(ModelConfigTest, AbsentKeysMeanWhatTheFamilyMeansByThem) {
  for (const nlohmann::json& whole : {OldStyle(), Qwen2(), Qwen3()}) {
    nlohmann::json json = whole;
    const bool is_llama = json["model_type"] == "llama";
    json["num_attention_heads"] = 64;
    json["hidden_size"] = 4096;
    for (const char* key : {"num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta",
                            "tie_word_embeddings", "torch_dtype", "use_sliding_window", "sliding_window"}) {
      json.erase(key);
    }
    const auto config = ParseModelConfig(json.dump(), "config.json");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->num_key_value_heads, is_llama ? 64 : 32);
    EXPECT_EQ(config->head_dim, json["model_type"] == "qwen3" ? 128 : 64);
    EXPECT_EQ(config->max_position_embeddings, is_llama ? 2048 : 32768);
    EXPECT_EQ(config->rms_norm_eps, 1e-6);
    EXPECT_EQ(config->rope.theta, 10000.0);
    EXPECT_FALSE(config->tie_word_embeddings);
    EXPECT_EQ(config->dtype, "float32");
    json["num_key_value_heads"] = nullptr;
    EXPECT_EQ(ParseModelConfig(json.dump(), "config.json")->num_key_value_heads, 64);
  }
}

TEST(ModelConfigTest, WindowsAreRefusedWhereALayerUsesThem) {
  nlohmann::json json = Qwen2();
  json["use_sliding_window"] = true;
  // The 24 layers below max_window_layers see everything.
  EXPECT_TRUE(ParseModelConfig(json.dump(), "config.json").ok());
  json["max_window_layers"] = 23;
  EXPECT_THAT(Refusal(json), HasSubstr("'use_sliding_window' is true: attention sees all earlier tokens here"));
  json["sliding_window"] = nullptr;
  EXPECT_TRUE(ParseModelConfig(json.dump(), "config.json").ok());
  json = Qwen3();
  json["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_TRUE(ParseModelConfig(json.dump(), "config.json").ok());
  json["layer_types"][1] = "sliding_attention";
  EXPECT_THAT(Refusal(json), HasSubstr("'layer_types' is [\"full_attention\",\"sliding_attention\"]"));
}

TEST(ModelConfigTest, BiasesThatTheFamilyDoesNotHaveAreRefused) {
  nlohmann::json json = Qwen3();
  json["attention_bias"] = true;
  EXPECT_THAT(Refusal(json), HasSubstr("'attention_bias' is true"));
  // Qwen2 knows no such key: its biases are there whatever it says.
  json = Qwen2();
  json["attention_bias"] = false;
  EXPECT_TRUE(ParseModelConfig(json.dump(), "config.json").ok());
}

TEST(ModelConfigTest, ReadsTheNewStyleAndAbsentKeysAsTransformersDoes) {
  nlohmann::json json = OldStyle();
  for (const char* key : {"rope_theta", "rope_scaling", "torch_dtype", "num_key_value_heads", "tie_word_embeddings",
                          "attention_bias", "mlp_bias", "hidden_act", "bos_token_id"}) {
    json.erase(key);
  }
  json["dtype"] = "float16";
  json["head_dim"] = 32;
  json["eos_token_id"] = {128001, 128008};
  json["rope_parameters"] = {{"rope_theta", 500000.0},  {"rope_type", "llama3"},
                             {"factor", 32.0},          {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  const auto config = ParseModelConfig(json.dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_key_value_heads, 9);
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_EQ(config->dtype, "float16");
  EXPECT_FALSE(config->bos_token_id.has_value());
  EXPECT_THAT(config->eos_token_ids, ElementsAre(128001, 128008));
  EXPECT_EQ(config->rope.type, RopeType::kLlama3);
  EXPECT_EQ(config->rope.theta, 500000.0);
  EXPECT_EQ(config->rope.factor, 32.0);
  EXPECT_EQ(config->rope.high_freq_factor, 4.0);
  EXPECT_EQ(config->rope.original_max_position_embeddings, 8192);
}

TEST(ModelConfigTest, ReadsEitherSpellingOfTheRopeType) {
  for (const char* key : {"type", "rope_type"}) {
    nlohmann::json json = OldStyle();
    json["rope_scaling"] = {{key, "linear"}, {"factor", 2.0}};
    const auto config = ParseModelConfig(json.dump(), "config.json");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->rope.type, RopeType::kLinear);
    EXPECT_EQ(config->rope.factor, 2.0);
    EXPECT_EQ(config->rope.theta, 100000.0);
  }
}

TEST(ModelConfigTest, BothRopeStylesMustAgree) {
  nlohmann::json json = OldStyle();
  json["rope_parameters"] = {{"rope_theta", 100000.0}, {"rope_type", "default"}};
  EXPECT_TRUE(ParseModelConfig(json.dump(), "config.json").ok());
  json["rope_parameters"]["rope_theta"] = 5000.0;
  EXPECT_THAT(Refusal(json), HasSubstr("'rope_parameters' contradicts"));
  json["rope_parameters"] = {{"rope_type", "default"}};
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_THAT(Refusal(json), HasSubstr("'rope_parameters' contradicts"));
}

TEST(ModelConfigTest, WhatWouldChangeTheComputationIsRefused) {
  const struct {
    const char* key;
    nlohmann::json value;
    const char* message;
  } cases[] = {
      {"model_type", "qwen3_moe", "'model_type' is 'qwen3_moe', which is not supported"},
      {"model_type", nullptr, "'model_type' is missing; expected one of llama, qwen2, qwen3"},
      {"architectures",
       {"LlamaForSequenceClassification"},
       "'architectures' is [\"LlamaForSequenceClassification\"], "},
      {"architectures", {"MistralForCausalLM"}, "expected [\"LlamaForCausalLM\"]"},
      {"attention_dropout", 0.1, "'attention_dropout' is 0.1, expected 0"},
      {"partial_rotary_factor", 0.5, "'partial_rotary_factor' is not 1"},
      {"auto_map", {{"AutoModel", "own.Model"}}, "'auto_map' is set"},
      {"is_causal", false, "'is_causal' is false"},
      {"rope_parameters",
       {{"rope_theta", 100000.0}, {"partial_rotary_factor", 0.25}},
       "'rope_parameters.partial_rotary_factor' is not 1"},
      {"rope_parameters",
       {{"full_attention", {{"rope_theta", 100000.0}}}},
       "'rope_parameters.full_attention' is {\"rope_theta\":100000.0}, which is not known here"},
      {"attention_bias", true, "'attention_bias' is true"},
      {"mlp_bias", true, "'mlp_bias' is true"},
      {"hidden_act", "gelu", "'hidden_act' is 'gelu', expected silu"},
      {"sliding_window", 4096, "'sliding_window' is set"},
      {"quantization_config", {{"bits", 4}}, "'quantization_config' is set"},
      {"rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 4.0}},
       "'rope_scaling.rope_type' is 'yarn', which is not supported"},
      {"rope_scaling", {{"rope_type", "linear"}}, "'rope_scaling.factor' is missing"},
      {"rope_scaling", "linear", "'rope_scaling' is \"linear\", expected an object"},
      {"rope_theta", -1, "'rope_theta' is -1, expected a positive number"},
      {"torch_dtype", "float8", "'torch_dtype' is 'float8'"},
      {"dtype", "float32", "'dtype' is 'float32', but 'torch_dtype' is 'bfloat16'"},
      {"vocab_size", nullptr, "'vocab_size' is missing"},
      {"vocab_size", "many", "'vocab_size' is \"many\", expected a whole number from 1"},
      {"num_hidden_layers", 0, "'num_hidden_layers' is 0"},
      {"num_hidden_layers", 2.5, "'num_hidden_layers' is 2.5"},
      {"num_hidden_layers", 18446744073709551615u, "'num_hidden_layers' is 18446744073709551615"},
      {"num_key_value_heads", 2, "not a multiple of num_key_value_heads 2"},
      {"num_attention_heads", 7, "not a multiple of num_attention_heads 7, and head_dim is not given"},
      {"head_dim", 63, "'head_dim' is 63: rotary positions need an even number"},
      {"tie_word_embeddings", 1, "'tie_word_embeddings' is 1, expected true or false"},
      {"eos_token_id", {2, "x"}, "'eos_token_id' is [2,\"x\"]"},
      {"eos_token_id", -3, "'eos_token_id' is -3"},
  };
  for (const auto& test_case : cases) {
    nlohmann::json json = OldStyle();
    json[test_case.key] = test_case.value;
    EXPECT_THAT(Refusal(json), AllOf(HasSubstr("dir/config.json"), HasSubstr(test_case.message)));
  }
}

TEST(ModelConfigTest, AllFaultsAreToldAtOnce) {
  nlohmann::json json = OldStyle();
  json.erase("hidden_size");
  json["rms_norm_eps"] = "small";
  json["rope_scaling"] = {{"rope_type", "llama3"}};
  EXPECT_THAT(Refusal(json), AllOf(HasSubstr("'hidden_size' is missing"), HasSubstr("'rms_norm_eps'"),
                                   HasSubstr("'rope_scaling.factor' is missing"),
                                   HasSubstr("'rope_scaling.low_freq_factor' is missing")));
}

TEST(ModelConfigTest, BadJsonIsAnErrorWithItsPlace) {
  EXPECT_THAT(std::string(ParseModelConfig("{\n\"a\": }", "c.json").status().message()), HasSubstr("c.json:2:6"));
  EXPECT_THAT(std::string(ParseModelConfig("[]", "c.json").status().message()), HasSubstr("c.json: is array"));
  EXPECT_THAT(std::string(ParseModelConfig("{\"a\":1,\"a\":2}", "c.json").status().message()), HasSubstr("twice"));
}

TEST(ModelConfigTest, WhatIsWrittenIsReadBackAndIsLoadableByEitherStyle) {
  ModelConfig config;
  config.vocab_size = 64;
  config.hidden_size = 48;
  config.intermediate_size = 128;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.max_position_embeddings = 512;
  config.rms_norm_eps = 1e-6;
  config.tie_word_embeddings = true;
  config.rope = {RopeType::kLlama3, 500000.0, 8.0, 1.0, 4.0, 256};
  config.dtype = "bfloat16";
  config.bos_token_id = 1;
  const std::pair<ModelFamily, const char*> families[] = {{ModelFamily::kQwen2, "Qwen2ForCausalLM"},
                                                          {ModelFamily::kQwen3, "Qwen3ForCausalLM"},
                                                          {ModelFamily::kLlama, "LlamaForCausalLM"}};
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<int64_t> eos = std::vector<std::vector<int64_t>>{{}, {0}, {0, 5}}[i];
    config.model_type = families[i].first;
    config.eos_token_ids = eos;
    const std::string text = FormatModelConfig(config);
    const auto read = ParseModelConfig(text, "config.json");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(FormatModelConfig(*read), text);
    EXPECT_EQ(read->eos_token_ids, eos);
    EXPECT_EQ(read->rope.original_max_position_embeddings, 256);
    const nlohmann::json json = nlohmann::json::parse(text);
    EXPECT_EQ(read->model_type, config.model_type);
    EXPECT_EQ(json["architectures"], nlohmann::json::array({families[i].second}));
    EXPECT_EQ(json.contains("attention_bias"), config.model_type != ModelFamily::kQwen2);
    const nlohmann::json generation = nlohmann::json::parse(FormatGenerationConfig(config));
    EXPECT_EQ(generation["eos_token_id"], json["eos_token_id"]);
    EXPECT_EQ(generation["bos_token_id"], 1);
    EXPECT_EQ(generation.contains("pad_token_id"), !eos.empty());
    EXPECT_EQ(json["rope_theta"], 500000.0);
    EXPECT_EQ(json["rope_scaling"]["rope_type"], "llama3");
    EXPECT_EQ(json["rope_parameters"]["rope_theta"], 500000.0);
  }
  config.rope = RopeConfig{};
  const nlohmann::json json = nlohmann::json::parse(FormatModelConfig(config));
  EXPECT_TRUE(json["rope_scaling"].is_null());
  EXPECT_EQ(json["rope_parameters"]["rope_type"], "default");
}

}  // namespace
}  // namespace leeway
