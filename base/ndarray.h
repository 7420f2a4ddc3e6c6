#ifndef LEEWAY_BASE_NDARRAY_H_
#define LEEWAY_BASE_NDARRAY_H_

// A named-by-nobody array: dtype, shape and bytes, row-major, little-endian. The currency in which weights and payloads
// cross folder borders; it knows no arithmetic.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace leeway {

// Names as safetensors writes them: F32, BF16, ...
enum class DType { kBool, kU8, kI8, kI16, kU16, kF16, kBF16, kI32, kU32, kF32, kI64, kU64, kF64 };

size_t DTypeBytes(DType dtype);
absl::string_view DTypeName(DType dtype);
// INVALID_ARGUMENT naming the unknown dtype.
absl::StatusOr<DType> DTypeFromName(absl::string_view name);

// Product of the dimensions with overflow check; 1 for rank 0. INVALID_ARGUMENT for negative or overflowing shapes.
absl::StatusOr<int64_t> ElementCount(absl::Span<const int64_t> shape);

// Owns its bytes (64-byte aligned) or borrows them; copies share the bytes. Not thread-safe for concurrent writes.
class NDArray {
 public:
  NDArray() = default;
  // Zero-filled.
  NDArray(DType dtype, std::vector<int64_t> shape);
  // Borrows `data`, which `owner` keeps alive (may be null when the caller guarantees the lifetime).
  NDArray(DType dtype, std::vector<int64_t> shape, std::byte* data, std::shared_ptr<void> owner);

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t element_count() const { return element_count_; }
  size_t size_bytes() const { return static_cast<size_t>(element_count_) * DTypeBytes(dtype_); }
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }

  // Typed access; T must match dtype (checked).
  template <typename T>
  absl::Span<T> values();
  template <typename T>
  absl::Span<const T> values() const;

 private:
  DType dtype_ = DType::kF32;
  std::vector<int64_t> shape_;
  int64_t element_count_ = 0;
  std::byte* data_ = nullptr;
  std::shared_ptr<void> owner_;
};

}  // namespace leeway

#endif  // LEEWAY_BASE_NDARRAY_H_
