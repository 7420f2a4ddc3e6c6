#include "model/tensor_parallel.h"

#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/random_case.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ModelShape FourHeads(bool tied, ModelFamily family = ModelFamily::kLlama) {
  ModelShape shape = internal::OddShape();
  shape.family = family;
  shape.key_value_heads = 4;
  shape.tied_head = tied;
  return shape;
}

TEST(TensorParallelTest, SizesThatDoNotDivideAreNamed) {
  ModelShape shape = internal::SmolShape();  // 9 heads, 3 for keys and values, intermediate 1536
  EXPECT_TRUE(CheckTensorParallel(shape, 1).ok());
  EXPECT_THAT(
      std::string(CheckTensorParallel(shape, 2).message()),
      AllOf(HasSubstr("model.heads = 9"), HasSubstr("model.key_value_heads = 3"), Not(HasSubstr("intermediate"))));
  EXPECT_THAT(std::string(CheckTensorParallel(FourHeads(true), 3).message()), HasSubstr("expected 1, 2 or 4"));
  EXPECT_THAT(std::string(CheckTensorParallel(internal::OddShape(), 4).message()),
              HasSubstr("model.key_value_heads = 2"));
  EXPECT_TRUE(CheckTensorParallel(FourHeads(false), 4).ok());
}

TEST(TensorParallelTest, SharesTogetherAreTheWhole) {
  for (const ModelShape& shape : {FourHeads(true), FourHeads(false), FourHeads(true, ModelFamily::kQwen2),
                                  FourHeads(false, ModelFamily::kQwen3)}) {
    const std::vector<ParameterInfo> layout = ParameterLayout(shape);
    std::vector<double> whole(static_cast<size_t>(shape.ParameterCount()));
    std::iota(whole.begin(), whole.end(), 1.0);
    for (const int64_t size : {1, 2, 4}) {
      std::vector<int> holders(whole.size(), 0);
      std::vector<double> joined(whole.size(), 0.0);
      int64_t vocabulary = 0;
      for (int64_t rank = 0; rank < size; ++rank) {
        const ModelShape share = TensorShard(shape, rank, size);
        EXPECT_EQ(vocabulary, VocabularyBegin(shape.vocabulary, rank, size));
        vocabulary += share.vocabulary;
        const std::vector<ShardSlice> slices = TensorShardSlices(shape, rank, size);
        std::vector<double> shard(static_cast<size_t>(share.ParameterCount()), 0.0);
        CopyToShard<double>(slices, whole, absl::MakeSpan(shard));
        for (const double value : shard) ++holders[static_cast<size_t>(value) - 1];  // 0 would be out of range
        CopyFromShard<double>(slices, shard, absl::MakeSpan(joined));
      }
      EXPECT_EQ(vocabulary, shape.vocabulary);
      EXPECT_EQ(joined, whole);
      for (const ParameterInfo& info : layout) {
        for (int64_t i = 0; i < info.element_count; ++i) {
          ASSERT_EQ(holders[info.offset + i], IsReplicated(info) ? size : 1) << info.name << " element " << i;
        }
      }
    }
  }
}

TEST(TensorParallelTest, HeadsStayWholeAndColumnsFollowThem) {
  const ModelShape shape = FourHeads(true);
  const std::vector<ShardSlice> slices = TensorShardSlices(shape, 1, 2);
  const std::vector<ParameterInfo> layout = ParameterLayout(shape);
  for (size_t i = 0; i < layout.size(); ++i) {
    const ShardSlice& slice = slices[i];
    if (layout[i].name == "model.layers.1.self_attn.q_proj.weight") {
      EXPECT_EQ(slice.whole_offset, layout[i].offset + 2 * shape.head_dim * shape.hidden);
      EXPECT_EQ(slice.rows, 2 * shape.head_dim);
      EXPECT_EQ(slice.columns, shape.hidden);
    } else if (layout[i].name == "model.layers.1.self_attn.o_proj.weight") {
      EXPECT_EQ(slice.whole_offset, layout[i].offset + 2 * shape.head_dim);
      EXPECT_EQ(slice.whole_stride, 4 * shape.head_dim);
      EXPECT_EQ(slice.rows, shape.hidden);
      EXPECT_EQ(slice.columns, 2 * shape.head_dim);
    } else if (layout[i].name == "model.embed_tokens.weight") {
      EXPECT_EQ(slice.whole_offset, layout[i].offset + 26 * shape.hidden);  // 53 ids: 26 and 27
      EXPECT_EQ(slice.rows, 27);
    }
  }
}

}  // namespace
}  // namespace leeway
