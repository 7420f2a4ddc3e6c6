#ifndef LEEWAY_TESTS_FUZZ_FUZZ_TARGET_H_
#define LEEWAY_TESTS_FUZZ_FUZZ_TARGET_H_

// Decoders as the fuzzer sees them: a name, a function over bytes that must neither crash nor break an invariant (it
// aborts then), and a few good inputs to start from. The same targets run over the checked-in corpus in every test run,
// and under libFuzzer in a tree of their own (README).

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace leeway {

struct FuzzTarget {
  std::string name;
  std::function<void(absl::string_view input)> run;
  // Made, not read: what the corpus folder is filled with at first.
  std::function<std::vector<std::string>()> seeds;
};

// Sorted by name.
std::vector<FuzzTarget> AllFuzzTargets();

std::vector<FuzzTarget> QueueFuzzTargets();
std::vector<FuzzTarget> TextFuzzTargets();
std::vector<FuzzTarget> HttpFuzzTargets();

// Several pieces in one input: two bytes of length (big-endian), then the piece; the last one may be cut short.
class FuzzPieces {
 public:
  explicit FuzzPieces(absl::string_view input) : rest_(input) {}
  bool Next(absl::string_view* piece) {
    if (rest_.size() < 2) return false;
    const size_t size = static_cast<uint8_t>(rest_[0]) << 8 | static_cast<uint8_t>(rest_[1]);
    *piece = rest_.substr(2, size);
    rest_.remove_prefix(2 + piece->size());
    return true;
  }
  static std::string Join(const std::vector<std::string>& pieces) {
    std::string joined;
    for (const std::string& piece : pieces) {
      joined += static_cast<char>(piece.size() >> 8);
      joined += static_cast<char>(piece.size() & 0xff);
      joined += piece;
    }
    return joined;
  }

 private:
  absl::string_view rest_;
};

}  // namespace leeway

#endif  // LEEWAY_TESTS_FUZZ_FUZZ_TARGET_H_
