#include <algorithm>
#include <iterator>

#include "tests/fuzz/fuzz_target.h"

namespace leeway {

std::vector<FuzzTarget> AllFuzzTargets() {
  std::vector<FuzzTarget> all = QueueFuzzTargets();
  for (std::vector<FuzzTarget> more : {TextFuzzTargets(), HttpFuzzTargets()}) {
    std::move(more.begin(), more.end(), std::back_inserter(all));
  }
  std::sort(all.begin(), all.end(), [](const FuzzTarget& a, const FuzzTarget& b) { return a.name < b.name; });
  return all;
}

}  // namespace leeway
