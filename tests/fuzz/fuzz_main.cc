// libFuzzer's side: `leeway_fuzz --target=NAME [libFuzzer's options] [corpus folders]`; `--list` prints the names.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/logging.h"
#include "tests/fuzz/fuzz_target.h"

namespace {
leeway::FuzzTarget* chosen = nullptr;
}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  std::string name;
  for (int i = 1; i < *argc; ++i) {
    if (strncmp((*argv)[i], "--target=", 9) == 0) name = (*argv)[i] + 9;
    if (strcmp((*argv)[i], "--list") == 0) {
      for (const leeway::FuzzTarget& target : leeway::AllFuzzTargets()) puts(target.name.c_str());
      exit(0);
    }
  }
  for (leeway::FuzzTarget& target : leeway::AllFuzzTargets()) {
    if (target.name == name) chosen = new leeway::FuzzTarget(std::move(target));
  }
  if (chosen == nullptr) {
    fprintf(stderr, "--target=%s: expected one of --list\n", name.c_str());
    exit(2);
  }
  spdlog::set_level(spdlog::level::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen->run(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
