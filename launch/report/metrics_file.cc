#include "launch/report/metrics_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "nlohmann/json.hpp"

namespace leeway {

std::optional<double> MetricsLine::Get(const std::string& name) const {
  const auto found = values.find(name);
  if (found == values.end()) return std::nullopt;
  return found->second;
}

std::optional<MetricsLine> ParseMetricsLine(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number()) return std::nullopt;
  MetricsLine line;
  for (const auto& [name, value] : json.items()) {
    if (value.is_number()) line.values[name] = value.get<double>();
    if (name == "staleness/histogram" && value.is_array()) {
      for (const auto& count : value) line.lag_histogram.push_back(count.is_number() ? count.get<int64_t>() : 0);
    }
  }
  return line;
}

std::vector<MetricsLine> ReadMetricsFile(const std::string& path) {
  std::vector<MetricsLine> lines;
  std::ifstream file(path, std::ios::binary);
  for (std::string text; std::getline(file, text);) {
    std::optional<MetricsLine> line = ParseMetricsLine(text);
    if (!line.has_value()) break;
    lines.push_back(*std::move(line));
  }
  return lines;
}

MetricsTail::News MetricsTail::Poll() {
  News news;
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path_, error);
  if (error) {
    news.restarted = offset_ > 0;
    offset_ = 0;
    last_line_.clear();
    return news;
  }
  std::ifstream file(path_, std::ios::binary);
  bool is_same_file = size >= offset_;
  if (is_same_file && !last_line_.empty()) {
    std::string there(last_line_.size(), '\0');
    file.seekg(static_cast<std::streamoff>(offset_ - last_line_.size()));
    file.read(there.data(), static_cast<std::streamsize>(there.size()));
    is_same_file = file.good() && there == last_line_;
  }
  if (!is_same_file) {
    news.restarted = true;
    offset_ = 0;
    last_line_.clear();
    file.clear();
  }
  if (size == offset_) return news;
  file.seekg(static_cast<std::streamoff>(offset_));
  std::stringstream rest;
  rest << file.rdbuf();
  const std::string text = rest.str();
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    last_line_ = text.substr(begin, end + 1 - begin);
    if (std::optional<MetricsLine> line = ParseMetricsLine(text.substr(begin, end - begin)))
      news.lines.push_back(*std::move(line));
  }
  offset_ += begin;
  return news;
}

}  // namespace leeway
