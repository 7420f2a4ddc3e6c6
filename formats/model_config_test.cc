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

std::string Refusal(const nlohmann::json& json) {
  const auto config = ParseLlamaConfig(json.dump(), "dir/config.json");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

TEST(LlamaConfigTest, ReadsTheOldStyle) {
  const auto config = ParseLlamaConfig(OldStyle().dump(), "config.json");
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

TEST(LlamaConfigTest, ReadsTheNewStyleAndAbsentKeysAsTransformersDoes) {
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
  const auto config = ParseLlamaConfig(json.dump(), "config.json");
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

TEST(LlamaConfigTest, ReadsEitherSpellingOfTheRopeType) {
  for (const char* key : {"type", "rope_type"}) {
    nlohmann::json json = OldStyle();
    json["rope_scaling"] = {{key, "linear"}, {"factor", 2.0}};
    const auto config = ParseLlamaConfig(json.dump(), "config.json");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->rope.type, RopeType::kLinear);
    EXPECT_EQ(config->rope.factor, 2.0);
    EXPECT_EQ(config->rope.theta, 100000.0);
  }
}

TEST(LlamaConfigTest, BothRopeStylesMustAgree) {
  nlohmann::json json = OldStyle();
  json["rope_parameters"] = {{"rope_theta", 100000.0}, {"rope_type", "default"}};
  EXPECT_TRUE(ParseLlamaConfig(json.dump(), "config.json").ok());
  json["rope_parameters"]["rope_theta"] = 5000.0;
  EXPECT_THAT(Refusal(json), HasSubstr("'rope_parameters' contradicts"));
  json["rope_parameters"] = {{"rope_type", "default"}};
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_THAT(Refusal(json), HasSubstr("'rope_parameters' contradicts"));
}

TEST(LlamaConfigTest, WhatWouldChangeTheComputationIsRefused) {
  const struct {
    const char* key;
    nlohmann::json value;
    const char* message;
  } cases[] = {
      {"model_type", "qwen3_moe", "'model_type' is 'qwen3_moe', which is not supported"},
      {"model_type", nullptr, "'model_type' is missing"},
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

TEST(LlamaConfigTest, AllFaultsAreToldAtOnce) {
  nlohmann::json json = OldStyle();
  json.erase("hidden_size");
  json["rms_norm_eps"] = "small";
  json["rope_scaling"] = {{"rope_type", "llama3"}};
  EXPECT_THAT(Refusal(json), AllOf(HasSubstr("'hidden_size' is missing"), HasSubstr("'rms_norm_eps'"),
                                   HasSubstr("'rope_scaling.factor' is missing"),
                                   HasSubstr("'rope_scaling.low_freq_factor' is missing")));
}

TEST(LlamaConfigTest, BadJsonIsAnErrorWithItsPlace) {
  EXPECT_THAT(std::string(ParseLlamaConfig("{\n\"a\": }", "c.json").status().message()), HasSubstr("c.json:2:6"));
  EXPECT_THAT(std::string(ParseLlamaConfig("[]", "c.json").status().message()), HasSubstr("c.json: is array"));
  EXPECT_THAT(std::string(ParseLlamaConfig("{\"a\":1,\"a\":2}", "c.json").status().message()), HasSubstr("twice"));
}

TEST(LlamaConfigTest, WhatIsWrittenIsReadBackAndIsLoadableByEitherStyle) {
  LlamaConfig config;
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
  for (const std::vector<int64_t>& eos : {std::vector<int64_t>{}, {0}, {0, 5}}) {
    config.eos_token_ids = eos;
    const std::string text = FormatLlamaConfig(config);
    const auto read = ParseLlamaConfig(text, "config.json");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(FormatLlamaConfig(*read), text);
    EXPECT_EQ(read->eos_token_ids, eos);
    EXPECT_EQ(read->rope.original_max_position_embeddings, 256);
    const nlohmann::json json = nlohmann::json::parse(text);
    EXPECT_EQ(json["architectures"], nlohmann::json::array({"LlamaForCausalLM"}));
    EXPECT_EQ(json["rope_theta"], 500000.0);
    EXPECT_EQ(json["rope_scaling"]["rope_type"], "llama3");
    EXPECT_EQ(json["rope_parameters"]["rope_theta"], 500000.0);
  }
  config.rope = RopeConfig{};
  const nlohmann::json json = nlohmann::json::parse(FormatLlamaConfig(config));
  EXPECT_TRUE(json["rope_scaling"].is_null());
  EXPECT_EQ(json["rope_parameters"]["rope_type"], "default");
}

}  // namespace
}  // namespace leeway
