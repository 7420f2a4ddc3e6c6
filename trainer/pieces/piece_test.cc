#include "trainer/pieces/piece.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PieceTest, PlacesAreReadAsTheyAreWritten) {
  const PiecePlace matrix{{16, 32, 0, 64}, {128, 64}};
  EXPECT_EQ(FormatPlace(matrix), "[16:32, 0:64] of [128, 64]");
  EXPECT_EQ(*ParsePlace("[16:32, 0:64] of [128, 64]"), matrix);
  EXPECT_THAT(matrix.shape(), ElementsAre(16, 64));
  const PiecePlace vector{{3, 5, 0, 1}, {7}};
  EXPECT_EQ(FormatPlace(vector), "[3:5] of [7]");
  EXPECT_EQ(*ParsePlace("[3:5] of [7]"), vector);
  EXPECT_THAT(vector.shape(), ElementsAre(2));
}

TEST(PieceTest, NothingElseIsAPlace) {
  for (const char* text : {"",
                           "[]",
                           "[0:1]",
                           "[0:1] of []",
                           "[0:1] of [2] ",
                           " [0:1] of [2]",
                           "[0:1] of [2, 3]",
                           "[0:1, 0:1] of [2]",
                           "[0:1, 0:1] of [2, 3, 4]",
                           "[01:2] of [3]",
                           "[-1:2] of [3]",
                           "[+1:2] of [3]",
                           "[1:1] of [3]",
                           "[2:1] of [3]",
                           "[1:4] of [3]",
                           "[0:1, 0:4] of [2, 3]",
                           "[0:1,0:3] of [2, 3]",
                           "[0:99999999999999999999] of [3]",
                           "[0:1] OF [2]",
                           "[a:1] of [2]"}) {
    const auto place = ParsePlace(text);
    EXPECT_EQ(place.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(place.status().message()), HasSubstr(text));
  }
}

TEST(PieceTest, RectanglesMeetWhereBothAre) {
  EXPECT_EQ(Intersection({0, 4, 2, 8}, {3, 9, 0, 5}), (Rectangle{3, 4, 2, 5}));
  EXPECT_EQ(Intersection({0, 4, 0, 8}, {4, 9, 0, 8}).area(), 0);
  EXPECT_EQ(Intersection({0, 2, 0, 2}, {5, 9, 5, 8}).area(), 0);
}

TEST(PieceTest, OneWriterHasThePlainName) {
  EXPECT_EQ(ShardFileName(ShardKind::kWeights, 0, 1), "weights.safetensors");
  EXPECT_EQ(ShardFileName(ShardKind::kOptimizer, 1, 4), "optimizer-00002-of-00004.safetensors");
}

TEST(PieceTest, FilesAreThoseOfAllWriters) {
  const std::vector<std::string> names = {"optimizer.safetensors", "state.json", "weights-00002-of-00002.safetensors",
                                          "weights-00001-of-00002.safetensors"};
  EXPECT_THAT(*ShardFilesAmong(ShardKind::kWeights, names),
              ElementsAre("weights-00001-of-00002.safetensors", "weights-00002-of-00002.safetensors"));
  EXPECT_THAT(*ShardFilesAmong(ShardKind::kOptimizer, names), ElementsAre("optimizer.safetensors"));
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{},
        {"weights-00001-of-00002.safetensors"},
        {"weights-00001-of-00003.safetensors", "weights-00003-of-00003.safetensors"},
        {"weights.safetensors", "weights-00001-of-00002.safetensors"},
        {"weights-00001-of-00002.safetensors", "weights-00002-of-00003.safetensors"}}) {
    EXPECT_EQ(ShardFilesAmong(ShardKind::kWeights, bad).status().code(), absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace leeway
