// One rank as a process, for the tests:  gloo_rank STORE GENERATION RANK SIZE TIMEOUT_MS MODE
//   suite   runs every check of the suite, each with a communicator of its own
//   whole   sums with all ranks until that fails
//   halves  the same among the lower and among the upper half of the ranks
//   bench   times all-reduces
// Prints "ready" when it has communicated, then what ended it.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "collective/communicator_test_suite.h"
#include "collective/cpu/file_rendezvous_store.h"
#include "collective/cpu/gloo_communicator.h"

namespace leeway {
namespace {

absl::Status RunSuite(GlooOptions options) {
  absl::Status result;
  const std::string generation = options.generation;
  for (const CommunicatorCheck& check : CommunicatorChecks()) {
    options.generation = absl::StrCat(generation, "-", check.name);
    LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> communicator, CreateGlooCommunicator(options));
    const absl::Status status = check.run(communicator.get());
    if (status.ok()) continue;
    communicator->Abort(status.ToString());
    std::printf("%s: %s\n", check.name, status.ToString().c_str());
    result = absl::InternalError("not all checks hold");
  }
  return result;
}

absl::Status SumUntilFailure(Communicator* communicator) {
  std::vector<float> data(300'000, 1.0f);
  for (int i = 0;; ++i) {
    LEEWAY_RETURN_IF_ERROR(communicator->AllReduce(ReduceOp::kMax, DType::kF32, data.data(), 300'000));
    if (i == 10) {
      std::printf("ready\n");
      std::fflush(stdout);
    }
  }
}

absl::Status Bench(Communicator* communicator) {
  for (const int64_t bytes : {4, 16 << 10, 1 << 20, 64 << 20}) {
    std::vector<float> data(static_cast<size_t>(bytes / 4), 1.0f);
    std::vector<double> milliseconds;
    for (int i = 0; i < 15; ++i) {
      LEEWAY_RETURN_IF_ERROR(communicator->Barrier());
      const MonotonicTime start = RealClock()->Now();
      LEEWAY_RETURN_IF_ERROR(communicator->AllReduce(ReduceOp::kSum, DType::kF32, data.data(), bytes / 4));
      milliseconds.push_back(absl::ToDoubleMilliseconds(RealClock()->Now() - start));
    }
    std::sort(milliseconds.begin(), milliseconds.end());
    if (communicator->rank() == 0) std::printf("all_reduce of %ld bytes: median %.3f ms\n", bytes, milliseconds[7]);
  }
  return absl::OkStatus();
}

absl::Status Run(const GlooOptions& options, const std::string& mode) {
  if (mode == "suite") return RunSuite(options);
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> whole, CreateGlooCommunicator(options));
  if (mode == "bench") return Bench(whole.get());
  if (mode == "whole") return SumUntilFailure(whole.get());
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> half,
                          whole->Split(options.rank * 2 / options.size, "half"));
  return SumUntilFailure(half.get());
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: gloo_rank STORE GENERATION RANK SIZE TIMEOUT_MS suite|whole|halves|bench\n");
    return 2;
  }
  leeway::FileRendezvousStore store(argv[1]);
  leeway::GlooOptions options;
  options.store = &store;
  options.generation = argv[2];
  options.rank = std::atoi(argv[3]);
  options.size = std::atoi(argv[4]);
  options.name = "ranks";
  options.timeout = absl::Milliseconds(std::atoi(argv[5]));
  options.rendezvous_timeout = absl::Seconds(60);
  const absl::Status status = leeway::Run(options, argv[6]);
  std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
