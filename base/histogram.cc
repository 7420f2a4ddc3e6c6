#include "base/histogram.h"

#include <algorithm>
#include <numeric>

#include "base/status_macros.h"

namespace leeway {

Histogram::Histogram(std::vector<double> upper_bounds, std::vector<uint64_t> counts, double sum)
    : upper_bounds_(std::move(upper_bounds)),
      counts_(std::move(counts)),
      sum_(sum),
      total_(std::accumulate(counts_.begin(), counts_.end(), uint64_t{0})) {
  LEEWAY_CHECK(counts_.size() == upper_bounds_.size() + 1);
}

Histogram Histogram::Geometric(double first, double factor, int count) {
  std::vector<double> bounds;
  for (double bound = first; static_cast<int>(bounds.size()) < count; bound *= factor) bounds.push_back(bound);
  return Histogram(std::move(bounds));
}

void Histogram::Add(double value, uint64_t times) {
  const auto bucket = std::lower_bound(upper_bounds_.begin(), upper_bounds_.end(), value);
  counts_[bucket - upper_bounds_.begin()] += times;
  sum_ += value * static_cast<double>(times);
  total_ += times;
}

}  // namespace leeway
