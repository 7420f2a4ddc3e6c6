#include "formats/safetensors.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/fake_file_system.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SafetensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/safetensors." + std::to_string(getpid());
    std::filesystem::create_directories(directory_);
    path_ = directory_ + "/weights.safetensors";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // A file of this header and data, the length field made right.
  void WriteRaw(const std::string& header, const std::string& data) {
    const uint64_t length = header.size();
    WriteBytes(std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
  }
  void WriteBytes(const std::string& bytes) { ASSERT_TRUE(RealFileSystem()->WriteFileAtomically(path_, bytes).ok()); }
  std::string ReadBytes() { return *RealFileSystem()->ReadFile(path_); }

  // The message of opening what is at path_; fails the test if it opens.
  std::string Refusal() {
    const auto opened = SafetensorsFile::Open(path_);
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument) << opened.status();
    EXPECT_THAT(std::string(opened.status().message()), HasSubstr(path_));
    return std::string(opened.status().message());
  }
  std::string RefusalOf(const std::string& header, size_t data_bytes = 0) {
    WriteRaw(header, std::string(data_bytes, '\1'));
    return Refusal();
  }

  std::string directory_;
  std::string path_;
};

NDArray Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  NDArray array(DType::kF32, std::move(shape));
  std::copy(values.begin(), values.end(), array.values<float>().begin());
  return array;
}

TEST_F(SafetensorsTest, WritesTheBytesThatTheFormatPrescribes) {
  NDArray half(DType::kBF16, {1});
  half.data()[0] = std::byte{0x80};
  half.data()[1] = std::byte{0x3f};
  const std::vector<NamedTensor> tensors = {{"a", half}, {"z", Floats({2}, {1.0f, -2.0f})}, {"b", Floats({}, {0.5f})}};
  ASSERT_TRUE(WriteSafetensors(RealFileSystem(), path_, tensors, {{"format", "pt"}}).ok());
  // Written by hand: four-byte types first, then by name, two-byte types last; the header is padded to a multiple of
  // eight.
  std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("z":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"a":{"dtype":"BF16","shape":[1],"data_offsets":[12,14]}})";
  while (header.size() % 8 != 0) header += ' ';
  const uint64_t length = header.size();
  const std::string data("\0\0\0\x3f\0\0\x80\x3f\0\0\0\xc0\x80\x3f", 14);
  EXPECT_EQ(ReadBytes(), std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
}

TEST_F(SafetensorsTest, ReadsBackWhatItWrote) {
  const std::vector<NamedTensor> tensors = {{"weights", Floats({2, 3}, {1, 2, 3, 4, 5, 6})},
                                            {"empty", NDArray(DType::kF32, {0, 4})},
                                            {"scalar", Floats({}, {7})}};
  ASSERT_TRUE(WriteSafetensors(RealFileSystem(), path_, tensors, {{"a", "1"}, {"b", "two"}}).ok());
  const auto file = SafetensorsFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata(), (SafetensorsMetadata{{"a", "1"}, {"b", "two"}}));
  EXPECT_TRUE(file->Contains("empty"));
  EXPECT_FALSE(file->Contains("other"));
  ASSERT_EQ(file->entries().size(), 3u);
  EXPECT_EQ(file->entries()[0].name, "empty");
  const auto weights = file->Tensor("weights");
  ASSERT_TRUE(weights.ok());
  EXPECT_THAT(weights->shape(), ElementsAre(2, 3));
  EXPECT_THAT(weights->values<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(file->Tensor("empty")->element_count(), 0);
  EXPECT_THAT(file->Tensor("scalar")->values<float>(), ElementsAre(7));
  EXPECT_EQ(file->Tensor("other").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SafetensorsTest, ArraysOutliveTheFileAndNeverWriteToIt) {
  ASSERT_TRUE(WriteSafetensors(RealFileSystem(), path_, {NamedTensor{"w", Floats({1}, {3})}}).ok());
  const std::string before = ReadBytes();
  NDArray array;
  {
    const auto file = SafetensorsFile::Open(path_);
    array = *file->Tensor("w");
  }
  EXPECT_EQ(array.values<float>()[0], 3.0f);
  array.values<float>()[0] = 4.0f;
  EXPECT_EQ(array.values<float>()[0], 4.0f);
  EXPECT_EQ(ReadBytes(), before);
}

TEST_F(SafetensorsTest, EmptyFilesAndOtherWritersPaddingAreFine) {
  WriteRaw("{}", "");
  EXPECT_TRUE(SafetensorsFile::Open(path_)->entries().empty());
  WriteRaw(R"({"__metadata__":{}}     )", "");
  EXPECT_TRUE(SafetensorsFile::Open(path_)->metadata().empty());
  // An unpadded header leaves the data at an odd address: the array is an aligned copy.
  std::string header = R"({"w":{"shape":[1],"dtype":"F32","data_offsets":[0,4]}})";
  while (header.size() % 4 != 1) header += ' ';
  WriteRaw(header, std::string("\0\0\x80\x3f", 4));
  const auto array = SafetensorsFile::Open(path_)->Tensor("w");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(array->data()) % 4, 0u);
  EXPECT_EQ(array->values<float>()[0], 1.0f);
}

TEST_F(SafetensorsTest, DtypesThatArraysDoNotHoldAreValidatedAndReported) {
  WriteRaw(
      R"({"q":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]},"c":{"dtype":"C64","shape":[1],"data_offsets":[3,11]}})",
      std::string(11, '\0'));
  const auto file = SafetensorsFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->entries()[0].dtype, "F4");
  EXPECT_EQ(file->Tensor("q").status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(file->Tensor("c").status().message()), HasSubstr("tensor 'c' is C64"));
}

TEST_F(SafetensorsTest, WriterRefusesNamesThatCanNotBe) {
  const NDArray array = Floats({1}, {1});
  const auto twice = WriteSafetensors(RealFileSystem(), path_, {NamedTensor{"a", array}, NamedTensor{"a", array}});
  EXPECT_THAT(std::string(twice.message()), AllOf(HasSubstr(path_), HasSubstr("two tensors are named 'a'")));
  EXPECT_FALSE(WriteSafetensors(RealFileSystem(), path_, {NamedTensor{"__metadata__", array}}).ok());
  EXPECT_THAT(std::string(WriteSafetensors(RealFileSystem(), path_, {NamedTensor{"\xff", array}}).message()),
              HasSubstr("not valid UTF-8"));
  EXPECT_FALSE(std::filesystem::exists(path_));
  const auto nowhere = WriteSafetensors(RealFileSystem(), directory_ + "/none/x", {NamedTensor{"a", array}});
  EXPECT_EQ(nowhere.code(), absl::StatusCode::kNotFound) << nowhere;
}

TEST_F(SafetensorsTest, WritingAgainReplacesTheFileWithEqualBytesAndLeavesNothingElse) {
  // More than the writer's buffer, in tensors below and above its size.
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 3; ++i) {
    NDArray array(DType::kF32, {700'000 * (i + 1)});
    for (int64_t j = 0; j < array.element_count(); j += 1000) array.values<float>()[j] = static_cast<float>(i * 7 + j);
    tensors.push_back({"w" + std::to_string(i), array});
  }
  ASSERT_TRUE(WriteSafetensors(RealFileSystem(), path_, tensors).ok());
  const std::string first = ReadBytes();
  std::swap(tensors[0], tensors[2]);
  ASSERT_TRUE(WriteSafetensors(RealFileSystem(), path_, tensors).ok());
  EXPECT_TRUE(first == ReadBytes());
  EXPECT_THAT(*RealFileSystem()->ListDirectory(directory_), ElementsAre("weights.safetensors"));
  const auto file = SafetensorsFile::Open(path_);
  for (const NamedTensor& tensor : tensors) {
    const NDArray read = *file->Tensor(tensor.name);
    ASSERT_EQ(read.size_bytes(), tensor.array.size_bytes());
    EXPECT_EQ(std::memcmp(read.data(), tensor.array.data(), read.size_bytes()), 0);
  }
}

TEST_F(SafetensorsTest, AFailedWriteLeavesTheOldFileAndNoOther) {
  ASSERT_TRUE(WriteSafetensors(RealFileSystem(), path_, {NamedTensor{"old", Floats({1}, {1})}}).ok());
  for (const char* failing : {"append", "sync", "rename"}) {
    FaultyFileSystem faulty([&](absl::string_view operation, const std::string& path) {
      return operation == failing ? absl::ResourceExhaustedError("no space for " + path) : absl::OkStatus();
    });
    const auto status = WriteSafetensors(&faulty, path_, {NamedTensor{"new", Floats({1}, {2})}});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << failing;
    EXPECT_TRUE(SafetensorsFile::Open(path_)->Contains("old")) << failing;
    EXPECT_THAT(*RealFileSystem()->ListDirectory(directory_), ElementsAre("weights.safetensors")) << failing;
  }
}

TEST_F(SafetensorsTest, MissingFilesAndFoldersAreSaidSo) {
  const auto missing = SafetensorsFile::Open(directory_ + "/none");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/none"));
  const auto folder = SafetensorsFile::Open(directory_);
  EXPECT_THAT(std::string(folder.status().message()), HasSubstr("not a regular file"));
}

TEST_F(SafetensorsTest, ImpostorsAreCalledWhatTheyAre) {
  WriteBytes("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 538090408\n");
  EXPECT_THAT(Refusal(), HasSubstr("git-LFS pointer"));
  WriteBytes("\n <!DOCTYPE html><html><body>Sign in</body></html>");
  EXPECT_THAT(Refusal(), HasSubstr("HTML page"));
  WriteBytes("<HTML>");
  EXPECT_THAT(Refusal(), HasSubstr("HTML page"));
  WriteBytes("GGUF\3\0\0\0aaaaaaaaaaaaaaaaaaaa");
  EXPECT_THAT(Refusal(), HasSubstr("GGUF file"));
  WriteBytes("PK\x03\x04 and more bytes");
  EXPECT_THAT(Refusal(), HasSubstr("zip archive"));
}

TEST_F(SafetensorsTest, LengthFieldFaults) {
  WriteBytes("");
  EXPECT_THAT(Refusal(), HasSubstr("0 bytes, too few for a header length"));
  WriteBytes(std::string("\1\0\0\0", 4));
  EXPECT_THAT(Refusal(), HasSubstr("4 bytes, too few"));
  WriteBytes(std::string("\xff\0\0\0\0\0\0\0{}", 10));
  EXPECT_THAT(Refusal(), HasSubstr("says 255 bytes, but only 2 follow it"));
  WriteBytes("ordinary text that is no weights");
  EXPECT_THAT(Refusal(), HasSubstr("more than 100000000"));
  WriteBytes(std::string("\0\0\0\0\0\0\0\0", 8));
  EXPECT_THAT(Refusal(), HasSubstr("does not begin with '{'"));
}

TEST_F(SafetensorsTest, HeaderFaultsNameTheTensor) {
  const struct {
    const char* header;
    const char* message;
  } cases[] = {
      {"[]", "does not begin with '{'"},
      {" {}", "does not begin with '{'"},
      {"{}\n", "ends with the byte '\\n'"},
      {"{} x", "ends with the byte 'x'"},
      {R"({"a":}})", "not valid JSON in UTF-8 at byte 6"},
      {"{\"a\xff\":{}}", "not valid JSON in UTF-8"},
      {R"({"a":1})", "'a': is the number 1, expected an object"},
      {R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{}})", "the key 'a' is given twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "the key '__metadata__' is given twice"},
      {R"({"__metadata__":[]})", "__metadata__ is an array, expected an object of strings"},
      {R"({"__metadata__":{"k":1}})", "__metadata__ 'k' is the number 1, expected a string"},
      {R"({"__metadata__":{"k":{}}})", "__metadata__ 'k' is an object"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "__metadata__ has the key 'k' twice"},
      {R"({"a":{}})", "tensor 'a' has no dtype"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", "tensor 'a' has no data_offsets"},
      {R"({"a":{"dtype":"F32","dtype":"F32"}})", "has the key 'dtype' twice"},
      {R"({"a":{"strides":[1]}})", "unknown key 'strides'"},
      {R"({"a":{"dtype":1}})", "dtype is the number 1"},
      {R"({"a":{"dtype":null}})", "dtype is null"},
      {R"({"a":{"dtype":"F33","shape":[],"data_offsets":[0,4]}})", "unknown dtype 'F33' (known: BOOL, U8,"},
      {R"({"a":{"shape":4}})", "shape has the number 4"},
      {R"({"a":{"shape":[-1]}})", "shape has the negative number -1"},
      {R"({"a":{"shape":[1.5]}})", "shape has the number 1.5"},
      {R"({"a":{"shape":["1"]}})", "shape has the string '1'"},
      {R"({"a":{"shape":[[1]]}})", "shape has an array"},
      {R"({"a":{"shape":[9223372036854775808]}})", "dimension 9223372036854775808 is too large"},
      {R"({"a":{"shape":[99999999999999999999999]}})", "shape has the number 99999999999999999999999"},
      {R"({"a":{"data_offsets":[0]}})", "data_offsets has 1 numbers, expected two"},
      {R"({"a":{"data_offsets":[0,1,2]}})", "data_offsets has more than two numbers"},
      {R"({"a":{"data_offsets":[true,1]}})", "data_offsets has a boolean"},
      {R"({"a":{"data_offsets":{}}})", "data_offsets has an object"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
       "larger than 64 bits can count"},
      {R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", "not a whole number of bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "do not hold the 8 bytes of shape [2] of F32"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "data_offsets [4, 0]"},
  };
  for (const auto& test_case : cases) EXPECT_THAT(RefusalOf(test_case.header), HasSubstr(test_case.message));
  EXPECT_THAT(RefusalOf(std::string("{}\0\0", 4)), HasSubstr("ends with the byte '\\x00'"));
  EXPECT_THAT(RefusalOf("{\"a\":" + std::string(100'000, '[') + "}"), HasSubstr("'a': is an array"));
}

TEST_F(SafetensorsTest, TensorsMustTileTheData) {
  const std::string one = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  EXPECT_THAT(RefusalOf(one, 3), AllOf(HasSubstr("take 4 bytes, but 3 follow"), HasSubstr("cut off")));
  EXPECT_THAT(RefusalOf(one, 5), HasSubstr("something behind the last tensor"));
  EXPECT_THAT(RefusalOf("{}", 1), HasSubstr("take 0 bytes, but 1 follow"));
  EXPECT_THAT(RefusalOf(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", 4),
              AllOf(HasSubstr("'a' begins at byte 2"), HasSubstr("hole")));
  EXPECT_THAT(
      RefusalOf(
          R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
          4),
      AllOf(HasSubstr("'b' begins at byte 2"), HasSubstr("overlap")));
  EXPECT_THAT(RefusalOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,0]}})", 1),
              HasSubstr("do not hold the 1 bytes"));
  // Empty tensors may lie at any border, in any order of the header.
  WriteRaw(
      R"({"e":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
      R"("f":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]}})",
      "abcd");
  EXPECT_TRUE(SafetensorsFile::Open(path_).ok());
}

// Damaged files are refused or read within their bounds, never anything else. Under AddressSanitizer this proves more.
TEST_F(SafetensorsTest, RandomDamageNeverCrashes) {
  const std::vector<NamedTensor> tensors = {{"model.norm", Floats({4}, {1, 2, 3, 4})},
                                            {"model.embed", Floats({2, 3}, {1, 2, 3, 4, 5, 6})},
                                            {"ids", NDArray(DType::kI64, {2})}};
  ASSERT_TRUE(WriteSafetensors(RealFileSystem(), path_, tensors, {{"k", "v"}}).ok());
  const std::string good = ReadBytes();
  const std::string json_bytes = "{}[],:\"0123456789-eE. \\ntf";
  RandomStream random({.seed = 20});
  int opened_count = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = good;
    if (random.NextBelow(4) == 0) bytes.resize(random.NextBelow(bytes.size()));
    const uint64_t flips = random.NextBelow(4);
    for (uint64_t i = 0; i < flips && !bytes.empty(); ++i) {
      char& byte = bytes[random.NextBelow(bytes.size())];
      byte = random.NextBelow(2) == 0 ? static_cast<char>(random.NextBelow(256))
                                      : json_bytes[random.NextBelow(json_bytes.size())];
    }
    {
      std::ofstream out(path_, std::ios::binary | std::ios::trunc);
      out << bytes;
    }
    const auto file = SafetensorsFile::Open(path_);
    if (!file.ok()) {
      EXPECT_THAT(std::string(file.status().message()), HasSubstr(path_));
      continue;
    }
    ++opened_count;
    for (const SafetensorsEntry& entry : file->entries()) {
      const auto array = file->Tensor(entry.name);
      if (!array.ok()) continue;
      unsigned sum = 0;
      for (size_t i = 0; i < array->size_bytes(); ++i) sum += static_cast<unsigned>(array->data()[i]);
      EXPECT_LE(sum, 255 * array->size_bytes());
    }
  }
  // Undamaged copies and damage to data bytes or names alone still open; most damage does not.
  EXPECT_GT(opened_count, 20);
  EXPECT_LT(opened_count, 300);
}

}  // namespace
}  // namespace leeway
