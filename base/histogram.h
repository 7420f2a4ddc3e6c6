#ifndef LEEWAY_BASE_HISTOGRAM_H_
#define LEEWAY_BASE_HISTOGRAM_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace leeway {

// How often a value fell into which bucket. Bucket i counts values <= upper_bounds[i] and above the bound before; one
// more, the last, those above all bounds. Thread-compatible value.
class Histogram {
 public:
  // REQUIRES ascending bounds.
  explicit Histogram(std::vector<double> upper_bounds)
      : upper_bounds_(std::move(upper_bounds)), counts_(upper_bounds_.size() + 1, 0) {}
  // As it was told: `counts` has one more than there are bounds.
  Histogram(std::vector<double> upper_bounds, std::vector<uint64_t> counts, double sum);
  // `count` bounds from `first` on, each `factor` times the one before.
  static Histogram Geometric(double first, double factor, int count);

  void Add(double value, uint64_t times = 1);

  const std::vector<double>& upper_bounds() const { return upper_bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }
  double sum() const { return sum_; }
  uint64_t total() const { return total_; }

 private:
  std::vector<double> upper_bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
  uint64_t total_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_BASE_HISTOGRAM_H_
