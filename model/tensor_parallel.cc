#include "model/tensor_parallel.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

// Which dimension of a parameter the ranks share.
enum class Cut { kNone, kRows, kColumns };

Cut CutOf(const ParameterInfo& parameter) {
  if (absl::StrContains(parameter.name, "norm")) return Cut::kNone;
  if (absl::EndsWith(parameter.name, "o_proj.weight") || absl::EndsWith(parameter.name, "down_proj.weight")) {
    return Cut::kColumns;
  }
  return Cut::kRows;
}

}  // namespace

absl::Status CheckTensorParallel(const ModelShape& shape, int64_t size) {
  if (size != 1 && size != 2 && size != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor-parallel size of ", size, ": expected 1, 2 or 4 (sums are formed in 4 fixed blocks)"));
  }
  std::vector<std::string> faults;
  const auto check = [&](const char* key, int64_t value) {
    if (value % size != 0) faults.push_back(absl::StrCat(key, " = ", value));
  };
  check("model.heads", shape.heads);
  check("model.key_value_heads", shape.key_value_heads);
  check("model.intermediate", shape.intermediate);
  if (shape.vocabulary < size) faults.push_back(absl::StrCat("model.vocabulary = ", shape.vocabulary));
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(size, " tensor-parallel ranks can not share ",
                                                 absl::StrJoin(faults, ", "),
                                                 ": choose a tensor-parallel size that divides them"));
}

int64_t VocabularyBegin(int64_t vocabulary, int64_t rank, int64_t size) { return vocabulary * rank / size; }

ModelShape TensorShard(const ModelShape& shape, int64_t rank, int64_t size) {
  ModelShape shard = shape;
  shard.heads /= size;
  shard.key_value_heads /= size;
  shard.intermediate /= size;
  shard.vocabulary = VocabularyBegin(shape.vocabulary, rank + 1, size) - VocabularyBegin(shape.vocabulary, rank, size);
  return shard;
}

bool IsReplicated(const ParameterInfo& parameter) { return CutOf(parameter) == Cut::kNone; }

std::vector<ShardSlice> TensorShardSlices(const ModelShape& shape, int64_t rank, int64_t size) {
  const std::vector<ParameterInfo> whole = ParameterLayout(shape);
  const std::vector<ParameterInfo> share = ParameterLayout(TensorShard(shape, rank, size));
  LEEWAY_CHECK(whole.size() == share.size()) << whole.size() << " and " << share.size();
  std::vector<ShardSlice> slices;
  for (size_t i = 0; i < whole.size(); ++i) {
    const int64_t whole_columns = whole[i].shape.size() > 1 ? whole[i].shape[1] : 1;
    const int64_t columns = share[i].shape.size() > 1 ? share[i].shape[1] : 1;
    const int64_t rows = share[i].shape[0];
    ShardSlice slice{whole[i].offset, whole_columns, share[i].offset, rows, columns};
    switch (CutOf(whole[i])) {
      case Cut::kNone:
        break;
      case Cut::kRows:
        // Also uneven ones: whole heads and intermediate sizes divide, so this is their border too.
        slice.whole_offset += VocabularyBegin(whole[i].shape[0], rank, size) * whole_columns;
        break;
      case Cut::kColumns:
        slice.whole_offset += rank * columns;
        break;
    }
    slices.push_back(slice);
  }
  return slices;
}

template <typename T>
void CopyToShard(absl::Span<const ShardSlice> slices, absl::Span<const T> whole, absl::Span<T> shard) {
  for (const ShardSlice& slice : slices) {
    for (int64_t row = 0; row < slice.rows; ++row) {
      std::copy_n(whole.data() + slice.whole_offset + row * slice.whole_stride, slice.columns,
                  shard.data() + slice.shard_offset + row * slice.columns);
    }
  }
}

template <typename T>
void CopyFromShard(absl::Span<const ShardSlice> slices, absl::Span<const T> shard, absl::Span<T> whole) {
  for (const ShardSlice& slice : slices) {
    for (int64_t row = 0; row < slice.rows; ++row) {
      std::copy_n(shard.data() + slice.shard_offset + row * slice.columns, slice.columns,
                  whole.data() + slice.whole_offset + row * slice.whole_stride);
    }
  }
}

template void CopyToShard<float>(absl::Span<const ShardSlice>, absl::Span<const float>, absl::Span<float>);
template void CopyToShard<double>(absl::Span<const ShardSlice>, absl::Span<const double>, absl::Span<double>);
template void CopyFromShard<float>(absl::Span<const ShardSlice>, absl::Span<const float>, absl::Span<float>);
template void CopyFromShard<double>(absl::Span<const ShardSlice>, absl::Span<const double>, absl::Span<double>);

}  // namespace leeway
