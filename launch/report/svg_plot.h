#ifndef LEEWAY_LAUNCH_REPORT_SVG_PLOT_H_
#define LEEWAY_LAUNCH_REPORT_SVG_PLOT_H_

#include <string>
#include <utility>
#include <vector>

namespace leeway {

// One line or set of marks of a plot.
struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;
  bool marks_only = false;
};

// What a plot shows. Axes cover all points; ticks are round numbers.
struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<PlotSeries> series;
  // Bars from 0 instead of lines: at each x, the series side by side.
  bool bars = false;
  // Names at x = 0, 1, 2, ... instead of numbers.
  std::vector<std::string> x_names;
};

// A self-contained SVG of 800 x 420 points: axes, grid, legend. Deterministic.
std::string DrawSvg(const Plot& plot);

// About `count` round numbers that cover [low, high]: steps of 1, 2 or 5 times a power of ten.
std::vector<double> RoundTicks(double low, double high, int count);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_REPORT_SVG_PLOT_H_
