#ifndef LEEWAY_COLLECTIVE_NCCL_NCCL_API_H_
#define LEEWAY_COLLECTIVE_NCCL_NCCL_API_H_

// What leeway calls of NCCL and of the CUDA runtime, found when the program runs: one binary serves machines with and
// without a GPU, and compiles without CUDA's headers. The declarations repeat those of nccl.h that are part of its ABI.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace leeway {

using NcclComm = struct NcclCommOpaque*;
using CudaStream = struct CudaStreamOpaque*;
struct NcclUniqueId {
  char bytes[128];
};

enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class StreamState { kBusy, kDone, kFailed };

// Every communicator is made non-blocking: calls return kInProgress and async_error says how they go on.
struct NcclApi {
  int version = 0;  // 22809 for 2.28.9
  std::function<NcclResult(NcclUniqueId* id)> get_unique_id;
  std::function<NcclResult(NcclComm* comm, int size, const NcclUniqueId& id, int rank)> init_rank;
  std::function<NcclResult(NcclComm comm, NcclResult* state)> async_error;
  // May wait for other ranks, or for ever.
  std::function<NcclResult(NcclComm comm)> abort;
  std::function<NcclResult(NcclComm comm)> finalize;
  std::function<NcclResult(NcclComm comm)> destroy;
  // Empty where this NCCL has none (before 2.27.3, 2.28.7). shrink ends what the parent is doing.
  std::function<NcclResult(NcclComm comm, std::vector<int> excluded, NcclComm* result)> shrink;
  std::function<NcclResult(NcclComm comm)> revoke;
  // What the library says of its last error; "" for nothing.
  std::function<std::string(NcclComm comm)> last_error;
  std::function<StreamState(CudaStream stream)> query_stream;
};

// "ncclRemoteError".
std::string NcclResultName(NcclResult result);
// 22809 -> "2.28.9".
std::string NcclVersionName(int version);

// Loads the libraries; they stay loaded. The first file that is found counts.
// NOT_FOUND: neither is there (a machine without GPUs), with the loader's words; FAILED_PRECONDITION: too old, or not
// what it should be, naming the function that is missing.
absl::StatusOr<NcclApi> LoadNccl(const std::vector<std::string>& nccl_files = {"libnccl.so.2"},
                                 const std::vector<std::string>& cuda_files = {"libcudart.so.13", "libcudart.so.12"});

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_NCCL_NCCL_API_H_
