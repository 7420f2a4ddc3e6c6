#ifndef LEEWAY_MODEL_WEIGHT_FORMAT_H_
#define LEEWAY_MODEL_WEIGHT_FORMAT_H_

// Which values a Transformer computes with, and how it keeps them. Arithmetic is in Reals always.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "model/bfloat16.h"

namespace leeway {

enum class WeightFormat {
  kReal,         // as given
  kRoundedReal,  // rounded to bf16, kept as Reals
  kBf16,         // rounded to bf16 and kept so, but for norms and biases: the bits of kRoundedReal from half the bytes
};

// Parameters in the type that they come in. Borrowed.
template <typename Real>
class WeightSpan {
 public:
  WeightSpan() = default;
  WeightSpan(absl::Span<const Real> values) : reals_(values.data()), size_(static_cast<int64_t>(values.size())) {}
  WeightSpan(const std::vector<Real>& values) : WeightSpan(absl::MakeConstSpan(values)) {}
  WeightSpan(absl::Span<const uint16_t> bf16) : bf16_(bf16.data()), size_(static_cast<int64_t>(bf16.size())) {}

  int64_t size() const { return size_; }
  bool is_bf16() const { return bf16_ != nullptr; }
  // Null if they are bf16.
  const Real* reals() const { return reals_; }
  // Null if they are Reals.
  const uint16_t* bf16() const { return bf16_; }

  WeightSpan subspan(int64_t begin, int64_t count) const {
    WeightSpan part = *this;
    if (part.reals_ != nullptr) part.reals_ += begin;
    if (part.bf16_ != nullptr) part.bf16_ += begin;
    part.size_ = count;
    return part;
  }

  // to[i] = value i, of `format`.
  void CopyTo(WeightFormat format, Real* to) const {
    for (int64_t i = 0; i < size_; ++i) {
      to[i] = bf16_ != nullptr                ? static_cast<Real>(FromBf16(bf16_[i]))
              : format == WeightFormat::kReal ? reals_[i]
                                              : static_cast<Real>(FromBf16(ToBf16(static_cast<float>(reals_[i]))));
    }
  }
  // to[i] = value i as bf16.
  void CopyTo(uint16_t* to) const {
    for (int64_t i = 0; i < size_; ++i) to[i] = bf16_ != nullptr ? bf16_[i] : ToBf16(static_cast<float>(reals_[i]));
  }

 private:
  const Real* reals_ = nullptr;
  const uint16_t* bf16_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_MODEL_WEIGHT_FORMAT_H_
