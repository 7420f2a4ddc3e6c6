#include "launch/config/nearest.h"

#include <algorithm>

namespace leeway {

int EditDistance(const std::string& a, const std::string& b) {
  std::vector<std::vector<int>> distance(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) distance[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) distance[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replace = distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      distance[i][j] = std::min({replace, distance[i - 1][j] + 1, distance[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[a.size()][b.size()];
}

std::optional<std::string> NearestWord(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string last_part = word.substr(word.rfind('.') + 1);
  const int limit = std::max<int>(2, static_cast<int>(word.size()) / 3);
  std::optional<std::string> nearest;
  int nearest_distance = limit + 1;
  for (const std::string& candidate : candidates) {
    const int distance = EditDistance(word, candidate);
    if (distance < nearest_distance) {
      nearest_distance = distance;
      nearest = candidate;
    }
  }
  if (nearest.has_value()) return nearest;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > last_part.size() && candidate.ends_with("." + last_part)) return candidate;
  }
  return std::nullopt;
}

}  // namespace leeway
