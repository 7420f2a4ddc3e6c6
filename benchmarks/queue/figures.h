#ifndef LEEWAY_BENCHMARKS_QUEUE_FIGURES_H_
#define LEEWAY_BENCHMARKS_QUEUE_FIGURES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace leeway {

// A quantity that was measured several times.
struct Figure {
  double min = 0;
  double median = 0;
  double max = 0;
};
// All zero when nothing was measured.
Figure FigureOf(std::vector<double> values);
// "123 k [120-130]"
std::string FormatFigure(const Figure& figure);
// "123 k", "1.2 M", "12.3": three digits.
std::string FormatNumber(double value);
// The value below which a share `quantile` of `values` lies; 0 of none. Reorders.
double Quantile(std::vector<double>* values, double quantile);

// Columns of equal width, for people.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) { Add(std::move(header)); }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// A ratio that has to be reached, with its verdict.
struct Target {
  std::string what;
  double value = 0;
  double at_least = 0;
  bool is_met() const { return value >= at_least; }
};
// One line each; returns whether all are met.
bool PrintTargets(const std::vector<Target>& targets);

}  // namespace leeway

#endif  // LEEWAY_BENCHMARKS_QUEUE_FIGURES_H_
