#include "launch/display/log_tail.h"

#include <filesystem>
#include <fstream>

namespace leeway {
namespace {

uint64_t SizeOf(const std::string& path) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

}  // namespace

LogTail::LogTail(std::string path) : path_(std::move(path)), offset_(SizeOf(path_)) {}

std::vector<std::string> LogTail::Poll() {
  std::vector<std::string> lines;
  if (SizeOf(path_) <= offset_) return lines;
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset_));
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) break;  // not whole yet
    offset_ += line.size() + 1;
    lines.push_back(std::move(line));
  }
  return lines;
}

std::pair<std::string, std::string> LevelAndText(const std::string& line) {
  // The first one; a level's name later in the line is text.
  std::pair<std::string, std::string> found = {"", line};
  size_t first = std::string::npos;
  for (const std::string level : {"debug", "info", "warning", "error", "critical"}) {
    const size_t at = line.find(" " + level + ": ");
    if (at >= first) continue;
    first = at;
    found = {level, line.substr(at + level.size() + 3)};
  }
  return found;
}

}  // namespace leeway
