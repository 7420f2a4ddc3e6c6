#include "launch/report/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fmt/format.h"

namespace leeway {
namespace {

constexpr double kWidth = 800;
constexpr double kHeight = 420;
constexpr double kLeft = 70;
constexpr double kRight = 780;
constexpr double kTop = 50;
constexpr double kBottom = 350;
constexpr const char* kColours[] = {"#2563eb", "#dc2626", "#059669", "#d97706",
                                    "#7c3aed", "#0891b2", "#be185d", "#4d7c0f"};

std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

// Maps data to the drawing area.
class Frame {
 public:
  explicit Frame(const Plot& plot) {
    double low_x = std::numeric_limits<double>::infinity();
    double high_x = -low_x;
    double low_y = low_x;
    double high_y = -low_x;
    for (const PlotSeries& series : plot.series) {
      for (const auto& [x, y] : series.points) {
        low_x = std::min(low_x, x);
        high_x = std::max(high_x, x);
        low_y = std::min(low_y, y);
        high_y = std::max(high_y, y);
      }
    }
    if (low_x > high_x) low_x = high_x = low_y = high_y = 0;
    if (plot.bars) {
      low_y = std::min(low_y, 0.0);
      low_x -= 0.5;
      high_x += 0.5;
    }
    if (high_x == low_x) high_x = low_x + 1;
    if (high_y == low_y) high_y = low_y + 1;
    x_ticks_ = RoundTicks(low_x, high_x, 8);
    y_ticks_ = RoundTicks(low_y, high_y, 6);
    low_x_ = low_x;
    high_x_ = high_x;
    low_y_ = std::min(low_y, y_ticks_.front());
    high_y_ = std::max(high_y, y_ticks_.back());
  }

  double X(double x) const { return kLeft + (x - low_x_) / (high_x_ - low_x_) * (kRight - kLeft); }
  double Y(double y) const { return kBottom - (y - low_y_) / (high_y_ - low_y_) * (kBottom - kTop); }
  double unit_x() const { return (kRight - kLeft) / (high_x_ - low_x_); }
  const std::vector<double>& x_ticks() const { return x_ticks_; }
  const std::vector<double>& y_ticks() const { return y_ticks_; }
  bool Shows(double x) const { return x >= low_x_ && x <= high_x_; }

 private:
  double low_x_, high_x_, low_y_, high_y_;
  std::vector<double> x_ticks_, y_ticks_;
};

std::string Text(double x, double y, const std::string& anchor, const std::string& text, const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     Escape(text));
}

std::string Axes(const Plot& plot, const Frame& frame) {
  std::string svg;
  for (const double tick : frame.y_ticks()) {
    svg += fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"#e5e7eb\"/>\n", kLeft,
                       frame.Y(tick), kRight, frame.Y(tick));
    svg += Text(kLeft - 8, frame.Y(tick) + 4, "end", fmt::format("{:g}", tick));
  }
  if (plot.x_names.empty()) {
    for (const double tick : frame.x_ticks()) {
      if (!frame.Shows(tick) || (plot.bars && tick != std::floor(tick))) continue;
      svg += fmt::format("<line x1=\"{:.1f}\" y1=\"{}\" x2=\"{:.1f}\" y2=\"{}\" stroke=\"#9ca3af\"/>\n", frame.X(tick),
                         kBottom, frame.X(tick), kBottom + 5);
      svg += Text(frame.X(tick), kBottom + 20, "middle", fmt::format("{:g}", tick));
    }
  }
  for (size_t i = 0; i < plot.x_names.size(); ++i) {
    svg += Text(frame.X(static_cast<double>(i)), kBottom + 20, "middle", plot.x_names[i]);
  }
  svg += fmt::format("<path d=\"M{} {}V{}H{}\" fill=\"none\" stroke=\"#374151\"/>\n", kLeft, kTop, kBottom, kRight);
  svg += Text((kLeft + kRight) / 2, kBottom + 42, "middle", plot.x_label);
  svg += Text(18, (kTop + kBottom) / 2, "middle", plot.y_label,
              fmt::format(" transform=\"rotate(-90 18 {:.1f})\"", (kTop + kBottom) / 2));
  svg += Text(kLeft, 24, "start", plot.title, " font-size=\"16\" font-weight=\"bold\"");
  return svg;
}

std::string Bars(const PlotSeries& series, size_t index, size_t count, const Frame& frame, const char* colour) {
  std::string svg;
  const double width = 0.8 * frame.unit_x() / static_cast<double>(count);
  for (const auto& [x, y] : series.points) {
    const double left = frame.X(x) + (static_cast<double>(index) - static_cast<double>(count) / 2) * width;
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", left,
                       frame.Y(std::max(y, 0.0)), width, std::abs(frame.Y(0) - frame.Y(y)), colour);
  }
  return svg;
}

std::string Line(const PlotSeries& series, const Frame& frame, const char* colour) {
  std::string svg;
  if (!series.marks_only) {
    svg += "<polyline fill=\"none\" stroke-width=\"1.6\" stroke=\"" + std::string(colour) + "\" points=\"";
    for (const auto& [x, y] : series.points) svg += fmt::format("{:.1f},{:.1f} ", frame.X(x), frame.Y(y));
    svg += "\"/>\n";
  }
  if (series.marks_only || series.points.size() <= 40) {
    for (const auto& [x, y] : series.points) {
      svg +=
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", frame.X(x), frame.Y(y), colour);
    }
  }
  return svg;
}

}  // namespace

std::vector<double> RoundTicks(double low, double high, int count) {
  const double raw = (high - low) / std::max(count, 1);
  if (!(raw > 0)) return {low};
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= raw * 0.999999) step = factor * power;
  }
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9);
  const double last = std::ceil(high / step - 1e-9);
  // Multiples by count, so that errors do not add up; -0 is written as 0.
  for (double i = first; i <= last; ++i) ticks.push_back(i * step + 0.0);
  return ticks;
}

std::string DrawSvg(const Plot& plot) {
  const Frame frame(plot);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"#111827\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, kHeight, kWidth, kHeight);
  svg += Axes(plot, frame);
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const char* colour = kColours[i % std::size(kColours)];
    svg += plot.bars ? Bars(plot.series[i], i, plot.series.size(), frame, colour) : Line(plot.series[i], frame, colour);
    // The legend stands in rows of four above the axes' end.
    const double x = kLeft + 10 + static_cast<double>(i % 4) * 178;
    const double y = kTop - 10 + static_cast<double>(i / 4) * 16;
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"4\" fill=\"{}\"/>\n", x, y - 5, colour);
    svg += Text(x + 17, y, "start", plot.series[i].name);
  }
  return svg + "</svg>\n";
}

}  // namespace leeway
