#include "benchmarks/queue/figures.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace leeway {

Figure FigureOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

std::string FormatNumber(double value) {
  const double size = std::fabs(value);
  if (size >= 1e6) return absl::StrFormat("%.3g M", value / 1e6);
  if (size >= 1e3) return absl::StrFormat("%.3g k", value / 1e3);
  return absl::StrFormat("%.3g", value);
}

std::string FormatFigure(const Figure& figure) {
  return absl::StrCat(FormatNumber(figure.median), " [", FormatNumber(figure.min), "-", FormatNumber(figure.max), "]");
}

double Quantile(std::vector<double>* values, double quantile) {
  if (values->empty()) return 0;
  const size_t index =
      std::min(values->size() - 1, static_cast<size_t>(quantile * static_cast<double>(values->size())));
  std::nth_element(values->begin(), values->begin() + static_cast<int64_t>(index), values->end());
  return (*values)[index];
}

std::string TextTable::ToString() const {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&text, row[i], std::string(i + 1 < row.size() ? widths[i] - row[i].size() + 2 : 0, ' '));
    }
    text += "\n";
  }
  return text;
}

bool PrintTargets(const std::vector<Target>& targets) {
  bool all_met = true;
  for (const Target& target : targets) {
    all_met &= target.is_met();
    std::printf("%s  %-60s %.2f (target %.2f)\n", target.is_met() ? "met   " : "MISSED", target.what.c_str(),
                target.value, target.at_least);
  }
  return all_met;
}

}  // namespace leeway
