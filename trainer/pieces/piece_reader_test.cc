#include "trainer/pieces/piece_reader.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/temporary_directory_test.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kWriters = 3;

// One entry of a file: a piece of the matrix "m" of 4 x 6 values, of the vector "v" of 5 or of an array of the
// optimizer. Element i of an array is i, the optimizer's begin at 100.
struct Entry {
  std::string name;
  PiecePlace place;
  bool is_told = true;  // in the metadata
};

// `m` in three files, `v` in the first; an optimizer that has an array for `m` alone.
class PieceReaderTest : public ::testing::Test {
 protected:
  static NamedTensor Tensor(const Entry& entry) {
    NDArray values(DType::kF32, entry.place.shape());
    const Rectangle& r = entry.place.rectangle;
    const int64_t width = WholeOf(entry.place.whole_shape).columns();
    size_t i = 0;
    for (int64_t row = r.row_begin; row < r.row_end; ++row) {
      for (int64_t column = r.column_begin; column < r.column_end; ++column) {
        values.values<float>()[i++] = static_cast<float>(row * width + column + (entry.name == "m.moment" ? 100 : 0));
      }
    }
    return {entry.name, std::move(values)};
  }

  void SetUp() override {
    weights_ = {{{"m", {{0, 2, 0, 6}, {4, 6}}}, {"v", {{0, 5, 0, 1}, {5}}, /*is_told=*/false}},
                {{"m", {{2, 4, 0, 4}, {4, 6}}}},
                {{"m", {{2, 4, 4, 6}, {4, 6}}}}};
    optimizer_ = {{"m.moment", {{0, 4, 0, 6}, {4, 6}}, /*is_told=*/false}};
  }

  void Write(const std::string& name, const std::vector<Entry>& entries) {
    std::vector<NamedTensor> tensors;
    SafetensorsMetadata places = more_places_;
    for (const Entry& entry : entries) {
      tensors.push_back(Tensor(entry));
      if (entry.is_told) places.emplace(entry.name, FormatPlace(entry.place));
    }
    ASSERT_TRUE(WriteSafetensors(RealFileSystem(), JoinPath(directory_.path(), name), tensors, places).ok());
  }
  absl::StatusOr<PieceReader> Open() {
    std::vector<std::string> names = {"optimizer.safetensors", "state.json"};
    Write("optimizer.safetensors", optimizer_);
    for (int writer = 0; writer < kWriters; ++writer) {
      names.push_back(ShardFileName(ShardKind::kWeights, writer, kWriters));
      Write(names.back(), weights_[writer]);
    }
    return PieceReader::Open(directory_.path(), names, layout_);
  }
  // Opening fails with words that name the place.
  void ExpectFault(absl::StatusCode code, const std::vector<std::string>& words) {
    const absl::Status status = Open().status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(directory_.path()));
    for (const std::string& word : words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }

  const TemporaryDirectory directory_;
  std::vector<ParameterInfo> layout_ = {{.name = "m", .shape = {4, 6}, .offset = 0, .element_count = 24},
                                        {.name = "v", .shape = {5}, .offset = 24, .element_count = 5}};
  std::vector<std::vector<Entry>> weights_;
  std::vector<Entry> optimizer_;
  SafetensorsMetadata more_places_;
};

TEST_F(PieceReaderTest, AnyPartOfAnArrayIsReadWhateverFilesItIsIn) {
  const absl::StatusOr<PieceReader> reader = Open();
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->type(), DType::kF32);
  std::vector<float> expected(29);
  std::iota(expected.begin(), expected.begin() + 24, 0.0f);
  std::iota(expected.begin() + 24, expected.end(), 0.0f);
  EXPECT_EQ(*reader->ReadParameters<float>(), expected);
  EXPECT_EQ(reader->ReadParameters<double>().status().code(), absl::StatusCode::kInvalidArgument);
  // Every rectangle of the matrix.
  for (int64_t top = 0; top < 4; ++top) {
    for (int64_t bottom = top + 1; bottom <= 4; ++bottom) {
      for (int64_t left = 0; left < 6; ++left) {
        for (int64_t right = left + 1; right <= 6; ++right) {
          const Rectangle rectangle{top, bottom, left, right};
          std::vector<float> values(static_cast<size_t>(rectangle.area()), -1.0f);
          reader->Read("m", rectangle, values.data());
          size_t i = 0;
          for (int64_t row = top; row < bottom; ++row) {
            for (int64_t column = left; column < right; ++column) EXPECT_EQ(values[i++], row * 6 + column);
          }
        }
      }
    }
  }
  std::vector<float> values(2);
  reader->Read("v", {1, 3, 0, 1}, values.data());
  EXPECT_THAT(values, ElementsAre(1, 2));
  EXPECT_THAT(reader->array_kinds(), ElementsAre("moment"));
  EXPECT_TRUE(reader->Contains("m.moment"));
  EXPECT_FALSE(reader->Contains("v.moment"));
  reader->Read("m.moment", {3, 4, 4, 6}, values.data());
  EXPECT_THAT(values, ElementsAre(122, 123));
}

TEST_F(PieceReaderTest, AGapIsNamed) {
  weights_[1] = {{"m", {{2, 4, 0, 3}, {4, 6}}}};
  ExpectFault(absl::StatusCode::kDataLoss, {"of m only 22 of 24", "weights-00002-of-00003.safetensors"});
  SetUp();
  optimizer_ = {{"m.moment", {{0, 3, 0, 6}, {4, 6}}}};
  ExpectFault(absl::StatusCode::kDataLoss, {"of m.moment only 18 of 24", "optimizer.safetensors"});
}

TEST_F(PieceReaderTest, AnOverlapIsNamed) {
  weights_[2] = {{"m", {{1, 4, 4, 6}, {4, 6}}}};
  ExpectFault(absl::StatusCode::kDataLoss, {"weights-00003-of-00003.safetensors: m at [1:4, 4:6] of [4, 6] is also in",
                                            "weights-00001-of-00003.safetensors at [0:2, 0:6] of [4, 6]"});
  // Twice the same, and a hole of its size elsewhere: the sizes would add up.
  SetUp();
  weights_[2] = {{"m", {{2, 4, 2, 4}, {4, 6}}}};
  ExpectFault(absl::StatusCode::kDataLoss, {"m at [2:4, 2:4]"});
  SetUp();
  weights_[1].push_back({"v", {{4, 5, 0, 1}, {5}}});
  ExpectFault(absl::StatusCode::kDataLoss, {"weights-00002-of-00003.safetensors: v at [4:5] of [5]"});
}

TEST_F(PieceReaderTest, PlacesThatCannotBeAreNamed) {
  more_places_ = {{"m", "[0:2, 0:6] of four"}};
  ExpectFault(absl::StatusCode::kDataLoss, {"m: '[0:2, 0:6] of four' is not the place of a piece"});
  more_places_ = {{"m", "[0:3, 0:6] of [4, 6]"}};
  ExpectFault(absl::StatusCode::kDataLoss, {"m has the shape [2, 6] and is said to lie at [0:3, 0:6] of [4, 6]"});
  more_places_ = {{"absent", "[0:2] of [4]"}};
  ExpectFault(absl::StatusCode::kDataLoss, {"says where absent lies"});
}

TEST_F(PieceReaderTest, AnotherModelIsSaidToBeOne) {
  layout_[0].shape = {6, 4};
  ExpectFault(absl::StatusCode::kInvalidArgument, {"m has another shape than the model: [4, 6] and not [6, 4]"});
  layout_[0].shape = {4, 6};
  layout_.push_back({.name = "w", .shape = {1}, .offset = 29, .element_count = 1});
  ExpectFault(absl::StatusCode::kInvalidArgument, {"has no w"});
  layout_.pop_back();
  const ParameterInfo v = layout_.back();
  layout_.pop_back();
  ExpectFault(absl::StatusCode::kInvalidArgument, {"v belongs to no parameter of the model"});
  layout_.push_back(v);
  optimizer_[0].name = "moment";
  ExpectFault(absl::StatusCode::kInvalidArgument, {"optimizer.safetensors: moment belongs to no parameter"});
}

TEST_F(PieceReaderTest, AFileThatIsNoSafetensorsFileIsDamaged) {
  ASSERT_TRUE(Open().ok());
  const std::string name = ShardFileName(ShardKind::kWeights, 1, kWriters);
  const std::string path = JoinPath(directory_.path(), name);
  const std::string whole = *RealFileSystem()->ReadFile(path);
  std::vector<std::string> names = {"optimizer.safetensors"};
  for (int writer = 0; writer < kWriters; ++writer)
    names.push_back(ShardFileName(ShardKind::kWeights, writer, kWriters));
  for (const std::string& bad : {std::string(), whole.substr(0, 20), whole.substr(0, whole.size() - 4)}) {
    ASSERT_TRUE(RealFileSystem()->WriteFileAtomically(path, bad).ok());
    const absl::Status status = PieceReader::Open(directory_.path(), names, layout_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
}

}  // namespace
}  // namespace leeway
