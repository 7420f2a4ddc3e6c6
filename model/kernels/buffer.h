#ifndef LEEWAY_MODEL_KERNELS_BUFFER_H_
#define LEEWAY_MODEL_KERNELS_BUFFER_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace leeway {
namespace internal {

// Aligned memory that only grows and is kept between calls: the first touch of a page costs more than the arithmetic
// done on it. Large blocks ask for huge pages. One owner; not thread-safe.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { std::free(data_); }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), capacity_(std::exchange(other.capacity_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }

  // At least `count` elements (plus one panel that kernels may read past the end). Growing loses the contents; new
  // memory is zero.
  T* Reserve(int64_t count) {
    if (count <= capacity_) return data_;
    // A little more than asked, so that batches of varying size soon stop growing it.
    const int64_t wanted = capacity_ == 0 ? count : count + count / 4;
    constexpr size_t kHugePage = size_t{2} << 20;
    size_t bytes = (static_cast<size_t>(wanted) + 16) * sizeof(T);
    const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
    bytes = (bytes + alignment - 1) / alignment * alignment;
    std::free(data_);
    data_ = static_cast<T*>(std::aligned_alloc(alignment, bytes));
    if (data_ == nullptr) {
      capacity_ = 0;
      throw std::bad_alloc();
    }
    // Advice only: without huge pages the memory works all the same.
    if (alignment == kHugePage) (void)madvise(data_, bytes, MADV_HUGEPAGE);
    std::memset(static_cast<void*>(data_), 0, bytes);
    capacity_ = wanted;
    return data_;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t capacity() const { return capacity_; }

 private:
  T* data_ = nullptr;
  int64_t capacity_ = 0;  // elements
};

}  // namespace internal
}  // namespace leeway

#endif  // LEEWAY_MODEL_KERNELS_BUFFER_H_
