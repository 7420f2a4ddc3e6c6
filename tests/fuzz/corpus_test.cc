// Every target over its checked-in corpus and over cut and bent copies of it: the quick part of fuzzing, in every tree.
// LEEWAY_WRITE_SEEDS=1 writes the targets' seeds into the corpus first.

#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "tests/fuzz/fuzz_target.h"

namespace leeway {
namespace {

class CorpusTest : public ::testing::TestWithParam<std::string> {
 protected:
  static FuzzTarget Target() {
    for (FuzzTarget& target : AllFuzzTargets()) {
      if (target.name == GetParam()) return std::move(target);
    }
    return {};
  }
  static std::string Folder() { return absl::StrCat(LEEWAY_SOURCE_DIR, "/tests/fuzz/corpus/", GetParam()); }
};

TEST_P(CorpusTest, NothingBreaksIt) {
  const FuzzTarget target = Target();
  FileSystem* const files = RealFileSystem();
  if (getenv("LEEWAY_WRITE_SEEDS") != nullptr) {
    ASSERT_TRUE(files->CreateDirectory(Folder()).ok());
    for (const std::string& seed : target.seeds()) {
      const std::string name = Digest128(seed.data(), seed.size()).substr(0, 12);
      ASSERT_TRUE(files->WriteFileAtomically(JoinPath(Folder(), name), seed).ok());
    }
  }
  std::vector<std::string> inputs = target.seeds();
  ASSERT_FALSE(inputs.empty());
  const absl::StatusOr<std::vector<std::string>> names = files->ListDirectory(Folder());
  ASSERT_TRUE(names.ok()) << names.status();
  for (const std::string& name : *names) inputs.push_back(*files->ReadFile(JoinPath(Folder(), name)));
  RandomStream random({.seed = 1, .purpose = RandomPurpose::kTask});
  const int bent = GetParam() == "http2" ? 5 : 50;
  for (const std::string& input : inputs) {
    target.run(input);
    for (int i = 0; i < bent && !input.empty(); ++i) {
      std::string other = input;
      other[random.NextBelow(other.size())] ^= static_cast<char>(1 << random.NextBelow(8));
      if (i % 3 == 0) other.resize(random.NextBelow(other.size()) + 1);
      target.run(other);
    }
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const FuzzTarget& target : AllFuzzTargets()) names.push_back(target.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(, CorpusTest, ::testing::ValuesIn(Names()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace leeway
