#include "model/model_files.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "base/fake_file_system.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/random_case.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

class ModelFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { directory_ = JoinPath(::testing::TempDir(), "model_files_test"); }
  void TearDown() override { ASSERT_TRUE(RealFileSystem()->RemoveAll(directory_).ok()); }

  ModelDirectory Model(const ModelShape& shape) {
    return {shape, internal::SpreadParameters<float>(shape, 3), 1, {0, 7}};
  }
  std::string ReadError() {
    const absl::StatusOr<ModelDirectory> model = ReadModelDirectory(directory_);
    return model.ok() ? "" : std::string(model.status().message());
  }

  std::string directory_;
};

TEST_F(ModelFilesTest, ReadsBackWhatItWrote) {
  for (const ModelShape& shape :
       {internal::OddShape(), internal::SmallShape(), internal::OddQwen2Shape(), internal::TiedQwen3Shape()}) {
    const ModelDirectory written = Model(shape);
    ASSERT_TRUE(WriteModelDirectory(RealFileSystem(), directory_, written).ok());
    const absl::StatusOr<ModelDirectory> read = ReadModelDirectory(directory_);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->parameters, written.parameters);
    EXPECT_EQ(read->bos_token_id, written.bos_token_id);
    EXPECT_EQ(read->eos_token_ids, written.eos_token_ids);
    EXPECT_EQ(read->shape.family, shape.family);
    EXPECT_EQ(read->shape.head_dim, shape.head_dim);
    EXPECT_EQ(read->shape.key_value_heads, shape.key_value_heads);
    EXPECT_EQ(read->shape.tied_head, shape.tied_head);
    EXPECT_EQ(read->shape.rope_theta, shape.rope_theta);
    EXPECT_EQ(read->shape.rms_epsilon, shape.rms_epsilon);
    EXPECT_EQ(read->shape.max_positions, shape.max_positions);
    EXPECT_EQ(read->shape.ParameterCount(), shape.ParameterCount());
    EXPECT_THAT(*RealFileSystem()->ReadFile(JoinPath(directory_, "generation_config.json")),
                HasSubstr("\"pad_token_id\": 0"));
  }
}

TEST_F(ModelFilesTest, MissingFilesAreNamed) {
  EXPECT_THAT(ReadError(), HasSubstr("no such folder: " + directory_));
  ASSERT_TRUE(RealFileSystem()->CreateDirectory(directory_).ok());
  EXPECT_THAT(ReadError(), HasSubstr("config.json"));
  ASSERT_TRUE(WriteModelDirectory(RealFileSystem(), directory_, Model(internal::SmallShape())).ok());
  ASSERT_TRUE(RealFileSystem()->RemoveAll(JoinPath(directory_, "model.safetensors")).ok());
  EXPECT_THAT(ReadError(), HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
}

TEST_F(ModelFilesTest, MissingUnexpectedAndMisshapenTensorsAreListed) {
  const ModelDirectory model = Model(internal::OddShape());
  ASSERT_TRUE(WriteModelDirectory(RealFileSystem(), directory_, model).ok());
  std::vector<NamedTensor> tensors = ParameterTensors(model.shape, model.parameters);
  const NDArray first = tensors[0].array;
  tensors[0].name = "surprise";
  tensors[3].array = first;
  ASSERT_TRUE(WriteSafetensors(RealFileSystem(), JoinPath(directory_, "model.safetensors"), tensors).ok());
  const std::string error = ReadError();
  EXPECT_THAT(error, HasSubstr("missing: model.embed_tokens.weight"));
  EXPECT_THAT(error, HasSubstr("model.layers.0.self_attn.k_proj.weight is [53, 36], expected [20, 36]"));
  EXPECT_THAT(error, HasSubstr("unexpected: surprise"));
}

TEST_F(ModelFilesTest, WhatOneFamilyLacksAnotherDoesNotMind) {
  // Qwen2's weights under Llama's configuration: the biases are named, not dropped.
  const ModelDirectory model = Model(internal::OddQwen2Shape());
  ASSERT_TRUE(WriteModelDirectory(RealFileSystem(), directory_, model).ok());
  ASSERT_TRUE(
      RealFileSystem()
          ->WriteFileAtomically(JoinPath(directory_, "config.json"), FormatModelConfig(ConfigOf(internal::OddShape())))
          .ok());
  EXPECT_THAT(ReadError(), HasSubstr("unexpected: model.layers.0.self_attn.k_proj.bias"));
}

TEST_F(ModelFilesTest, TypesThatAreNoWeightsAreListed) {
  const ModelDirectory model = Model(internal::SmallShape());
  ASSERT_TRUE(WriteModelDirectory(RealFileSystem(), directory_, model).ok());
  std::vector<NamedTensor> tensors = ParameterTensors(model.shape, model.parameters);
  std::vector<double> wide(64);
  for (const size_t i : {1, 6}) {
    ASSERT_EQ(tensors[i].array.shape(), std::vector<int64_t>{64});
    tensors[i].array = NDArray(DType::kF64, {64}, reinterpret_cast<std::byte*>(wide.data()), nullptr);
  }
  ASSERT_TRUE(WriteSafetensors(RealFileSystem(), JoinPath(directory_, "model.safetensors"), tensors).ok());
  EXPECT_THAT(ReadError(), HasSubstr("not F32, BF16 or F16: model.layers.0.input_layernorm.weight is F64, "
                                     "model.layers.0.post_attention_layernorm.weight is F64"));
}

TEST_F(ModelFilesTest, WhatTransformersCouldNotLoadIsNotWritten) {
  ModelShape shape = internal::OddShape();
  shape.heads = 10;
  EXPECT_THAT(std::string(WriteModelDirectory(RealFileSystem(), directory_, Model(shape)).message()),
              HasSubstr("model.hidden = 36, model.heads = 10"));
  shape.family = ModelFamily::kQwen3;
  EXPECT_TRUE(WriteModelDirectory(RealFileSystem(), directory_, Model(shape)).ok());
}

TEST_F(ModelFilesTest, TheCheckSaysWhatReadingWouldSay) {
  const ModelDirectory model = Model(internal::SmallShape());
  ASSERT_TRUE(WriteModelDirectory(RealFileSystem(), directory_, model).ok());
  EXPECT_TRUE(CheckModelDirectory(directory_).ok());
  const std::string weights = JoinPath(directory_, "model.safetensors");
  const std::string whole = *RealFileSystem()->ReadFile(weights);
  std::vector<NamedTensor> tensors = ParameterTensors(model.shape, model.parameters);
  tensors.pop_back();
  ASSERT_TRUE(WriteSafetensors(RealFileSystem(), weights, tensors).ok());
  const std::string one_missing = *RealFileSystem()->ReadFile(weights);
  for (const std::string& bytes : {whole.substr(0, whole.size() - 1), whole.substr(0, 4), one_missing,
                                   std::string("version https://git-lfs.github.com/spec/v1\n")}) {
    ASSERT_TRUE(RealFileSystem()->WriteFileAtomically(weights, bytes).ok());
    const absl::Status checked = CheckModelDirectory(directory_);
    EXPECT_FALSE(checked.ok());
    EXPECT_EQ(checked, ReadModelDirectory(directory_).status());
    EXPECT_THAT(std::string(checked.message()), HasSubstr(weights));
  }
  ASSERT_TRUE(RealFileSystem()->RemoveAll(weights).ok());
  EXPECT_EQ(CheckModelDirectory(directory_).code(), absl::StatusCode::kNotFound);
}

TEST_F(ModelFilesTest, ShardsAreReadThroughTheIndex) {
  const ModelDirectory model = Model(internal::SmallShape());
  ASSERT_TRUE(WriteModelDirectory(RealFileSystem(), directory_, model).ok());
  ASSERT_TRUE(RealFileSystem()->RemoveAll(JoinPath(directory_, "model.safetensors")).ok());
  const std::vector<NamedTensor> all = ParameterTensors(model.shape, model.parameters);
  std::string map;
  std::vector<NamedTensor> shards[2];
  for (size_t i = 0; i < all.size(); ++i) {
    shards[i % 2].push_back(all[i]);
    map += (map.empty() ? "\"" : ", \"") + all[i].name + "\": \"model-0000" + std::to_string(i % 2 + 1) +
           "-of-00002.safetensors\"";
  }
  for (int i = 0; i < 2; ++i) {
    const std::string name = "model-0000" + std::to_string(i + 1) + "-of-00002.safetensors";
    ASSERT_TRUE(WriteSafetensors(RealFileSystem(), JoinPath(directory_, name), shards[i]).ok());
  }
  const std::string index = JoinPath(directory_, "model.safetensors.index.json");
  ASSERT_TRUE(RealFileSystem()->WriteFileAtomically(index, "{\"metadata\": {}, \"weight_map\": {" + map + "}}").ok());
  const absl::StatusOr<ModelDirectory> read = ReadModelDirectory(directory_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->parameters, model.parameters);

  // The index names the other file; both files hold one tensor.
  std::string swapped = map;
  const size_t digit = swapped.find("model-00001") + 10;
  swapped[digit] = '2';
  ASSERT_TRUE(RealFileSystem()->WriteFileAtomically(index, "{\"weight_map\": {" + swapped + "}}").ok());
  EXPECT_THAT(ReadError(), HasSubstr("names tensors that are not there: model.embed_tokens.weight in model-00002"));
  ASSERT_TRUE(RealFileSystem()->WriteFileAtomically(index, "{\"weight_map\": {" + map + "}}").ok());
  shards[1].push_back(all[0]);
  ASSERT_TRUE(
      WriteSafetensors(RealFileSystem(), JoinPath(directory_, "model-00002-of-00002.safetensors"), shards[1]).ok());
  EXPECT_THAT(ReadError(), HasSubstr("in two files: model.embed_tokens.weight"));

  ASSERT_TRUE(RealFileSystem()->WriteFileAtomically(index, "{\"weight_map\": {\"a\": \"../b\"}}").ok());
  EXPECT_THAT(ReadError(), HasSubstr("is not a file name"));
  ASSERT_TRUE(RealFileSystem()->WriteFileAtomically(index, "[1]").ok());
  EXPECT_THAT(ReadError(), HasSubstr("weight_map"));
}

TEST_F(ModelFilesTest, NarrowFloatsAreWidenedExactly) {
  ModelShape shape = internal::SmallShape();
  shape.vocabulary = 4;
  shape.hidden = 2;
  shape.heads = shape.key_value_heads = 2;
  const ModelDirectory model = Model(shape);
  ASSERT_TRUE(WriteModelDirectory(RealFileSystem(), directory_, model).ok());
  // 1, -2, smallest denormal, infinity, largest, -0, 1 + 2^-10, a denormal.
  std::vector<uint16_t> half = {0x3c00, 0xc000, 0x0001, 0x7c00, 0x7bff, 0x8000, 0x3c01, 0x8200};
  std::vector<float> expected_half = {1.0f,     -2.0f, std::ldexp(1.0f, -24), std::numeric_limits<float>::infinity(),
                                      65504.0f, -0.0f, 1.0009765625f,         -std::ldexp(1.0f, -15)};
  std::vector<uint16_t> brain = {0x3f80, 0xc000, 0x0001, 0x7f80, 0x7f7f, 0x8000, 0x3f81, 0x4049};
  std::vector<float> expected_brain = {1.0f,
                                       -2.0f,
                                       std::ldexp(1.0f, -133),
                                       std::numeric_limits<float>::infinity(),
                                       std::ldexp(255.0f, 120),
                                       -0.0f,
                                       1.0078125f,
                                       3.140625f};
  for (const bool is_half : {true, false}) {
    std::vector<NamedTensor> tensors = ParameterTensors(model.shape, model.parameters);
    std::vector<uint16_t>& bits = is_half ? half : brain;
    tensors[0].array =
        NDArray(is_half ? DType::kF16 : DType::kBF16, {4, 2}, reinterpret_cast<std::byte*>(bits.data()), nullptr);
    ASSERT_TRUE(WriteSafetensors(RealFileSystem(), JoinPath(directory_, "model.safetensors"), tensors).ok());
    const absl::StatusOr<ModelDirectory> read = ReadModelDirectory(directory_);
    ASSERT_TRUE(read.ok()) << read.status();
    const std::vector<float>& expected = is_half ? expected_half : expected_brain;
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(read->parameters[i], expected[i]) << i;
      EXPECT_EQ(std::signbit(read->parameters[i]), std::signbit(expected[i])) << i;
    }
  }
}

TEST_F(ModelFilesTest, StretchedPositionsAndImpossibleShapesAreRefused) {
  ModelConfig config = ConfigOf(internal::SmallShape());
  EXPECT_TRUE(ShapeOf(config).ok());
  config.rope.type = RopeType::kLlama3;
  EXPECT_THAT(std::string(ShapeOf(config).status().message()), HasSubstr("rope_type 'llama3'"));
  config.rope.type = RopeType::kDefault;
  config.num_key_value_heads = 3;
  EXPECT_THAT(std::string(ShapeOf(config).status().message()), HasSubstr("model.key_value_heads = 3"));
}

TEST_F(ModelFilesTest, FailedWritesAreReported) {
  for (const std::string operation : {"create_directory", "write_atomically"}) {
    FaultyFileSystem files([&](absl::string_view actual, const std::string& path) {
      return actual == operation ? absl::ResourceExhaustedError(path) : absl::OkStatus();
    });
    EXPECT_EQ(WriteModelDirectory(&files, directory_, Model(internal::SmallShape())).code(),
              absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace leeway
