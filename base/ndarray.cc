#include "base/ndarray.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

struct DTypeFacts {
  DType dtype;
  const char* name;
  size_t bytes;
};

constexpr DTypeFacts kDTypes[] = {
    {DType::kBool, "BOOL", 1}, {DType::kU8, "U8", 1},   {DType::kI8, "I8", 1},     {DType::kI16, "I16", 2},
    {DType::kU16, "U16", 2},   {DType::kF16, "F16", 2}, {DType::kBF16, "BF16", 2}, {DType::kI32, "I32", 4},
    {DType::kU32, "U32", 4},   {DType::kF32, "F32", 4}, {DType::kI64, "I64", 8},   {DType::kU64, "U64", 8},
    {DType::kF64, "F64", 8},
};

const DTypeFacts& Facts(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

template <typename T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<float>() {
  return DType::kF32;
}
template <>
constexpr DType DTypeOf<double>() {
  return DType::kF64;
}
template <>
constexpr DType DTypeOf<int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType DTypeOf<int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType DTypeOf<uint8_t>() {
  return DType::kU8;
}
template <>
constexpr DType DTypeOf<uint16_t>() {
  return DType::kU16;
}

constexpr size_t kAlignmentBytes = 64;

}  // namespace

size_t DTypeBytes(DType dtype) { return Facts(dtype).bytes; }

absl::string_view DTypeName(DType dtype) { return Facts(dtype).name; }

absl::StatusOr<DType> DTypeFromName(absl::string_view name) {
  for (const DTypeFacts& facts : kDTypes) {
    if (name == facts.name) return facts.dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown dtype \"", name, "\""));
}

absl::StatusOr<int64_t> ElementCount(absl::Span<const int64_t> shape) {
  int64_t count = 1;
  for (int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(count, dimension, &count)) {
      return absl::InvalidArgumentError(absl::StrCat("impossible shape [", absl::StrJoin(shape, ", "), "]"));
    }
  }
  return count;
}

NDArray::NDArray(DType dtype, std::vector<int64_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
  const absl::StatusOr<int64_t> count = ElementCount(shape_);
  LEEWAY_CHECK(count.ok()) << count.status();
  element_count_ = *count;
  const size_t padded = (size_bytes() + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  if (padded == 0) return;
  data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignmentBytes, padded));
  LEEWAY_CHECK(data_ != nullptr) << "out of memory for " << padded << " bytes";
  std::memset(data_, 0, padded);
  owner_ = std::shared_ptr<void>(data_, std::free);
}

NDArray::NDArray(DType dtype, std::vector<int64_t> shape, std::byte* data, std::shared_ptr<void> owner)
    : dtype_(dtype), shape_(std::move(shape)), data_(data), owner_(std::move(owner)) {
  const absl::StatusOr<int64_t> count = ElementCount(shape_);
  LEEWAY_CHECK(count.ok()) << count.status();
  element_count_ = *count;
}

template <typename T>
absl::Span<T> NDArray::values() {
  LEEWAY_CHECK(dtype_ == DTypeOf<T>()) << "array of " << DTypeName(dtype_) << " read as another type";
  return absl::MakeSpan(reinterpret_cast<T*>(data_), element_count_);
}

template <typename T>
absl::Span<const T> NDArray::values() const {
  LEEWAY_CHECK(dtype_ == DTypeOf<T>()) << "array of " << DTypeName(dtype_) << " read as another type";
  return absl::MakeConstSpan(reinterpret_cast<const T*>(data_), element_count_);
}

#define LEEWAY_INSTANTIATE(T)                  \
  template absl::Span<T> NDArray::values<T>(); \
  template absl::Span<const T> NDArray::values<T>() const;
LEEWAY_INSTANTIATE(float)
LEEWAY_INSTANTIATE(double)
LEEWAY_INSTANTIATE(int32_t)
LEEWAY_INSTANTIATE(int64_t)
LEEWAY_INSTANTIATE(uint8_t)
LEEWAY_INSTANTIATE(uint16_t)
#undef LEEWAY_INSTANTIATE

}  // namespace leeway
