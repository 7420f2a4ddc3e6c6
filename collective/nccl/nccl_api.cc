#include "collective/nccl/nccl_api.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

// Non-blocking communicators.
constexpr int kFirstVersion = 21403;
constexpr int kCudaSuccess = 0, kCudaNotReady = 600;
constexpr int kShrinkAbort = 1, kRevokeDefault = 0;

// The fields that a ncclConfig_t began with in 2.14; by size and version NCCL fills in the later ones.
struct Config {
  size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;
};

absl::StatusOr<void*> Open(const std::vector<std::string>& files) {
  std::vector<std::string> errors;
  for (const std::string& file : files) {
    if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* error = dlerror();
    errors.emplace_back(error != nullptr ? error : file);
  }
  return absl::NotFoundError(
      absl::StrCat("GPUs cannot be used: ", absl::StrJoin(errors, "; "),
                   "; install the library or name its folder in LD_LIBRARY_PATH, or run on CPUs"));
}

template <typename Function>
absl::Status Find(void* library, const std::string& name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name.c_str()));
  if (*function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the library has no function ", name));
}

NcclResult Result(int code) { return static_cast<NcclResult>(code); }

}  // namespace

std::string NcclResultName(NcclResult result) {
  switch (result) {
    case NcclResult::kSuccess:
      return "ncclSuccess";
    case NcclResult::kUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case NcclResult::kSystemError:
      return "ncclSystemError";
    case NcclResult::kInternalError:
      return "ncclInternalError";
    case NcclResult::kInvalidArgument:
      return "ncclInvalidArgument";
    case NcclResult::kInvalidUsage:
      return "ncclInvalidUsage";
    case NcclResult::kRemoteError:
      return "ncclRemoteError";
    case NcclResult::kInProgress:
      return "ncclInProgress";
  }
  return absl::StrCat("ncclResult ", static_cast<int>(result));
}

std::string NcclVersionName(int version) {
  // Until 2.8 the number had one digit less.
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int rest = version < 10000 ? version % 1000 : version % 10000;
  return absl::StrCat(major, ".", rest / 100, ".", rest % 100);
}

absl::StatusOr<NcclApi> LoadNccl(const std::vector<std::string>& nccl_files,
                                 const std::vector<std::string>& cuda_files) {
  LEEWAY_ASSIGN_OR_RETURN(void* const cuda, Open(cuda_files));
  LEEWAY_ASSIGN_OR_RETURN(void* const nccl, Open(nccl_files));
  NcclApi api;
  int (*get_version)(int*) = nullptr;
  LEEWAY_RETURN_IF_ERROR(Find(nccl, "ncclGetVersion", &get_version));
  if (get_version(&api.version) != 0 || api.version < kFirstVersion) {
    return absl::FailedPreconditionError(absl::StrCat("NCCL ", NcclVersionName(api.version), " is too old: ",
                                                      NcclVersionName(kFirstVersion), " is the first that does"));
  }
  int (*get_unique_id)(NcclUniqueId*) = nullptr;
  int (*init_rank)(NcclComm*, int, NcclUniqueId, int, Config*) = nullptr;
  int (*async_error)(NcclComm, int*) = nullptr;
  int (*abort)(NcclComm) = nullptr;
  int (*finalize)(NcclComm) = nullptr;
  int (*destroy)(NcclComm) = nullptr;
  const char* (*last_error)(NcclComm) = nullptr;
  int (*query_stream)(CudaStream) = nullptr;
  LEEWAY_RETURN_IF_ERROR(Find(nccl, "ncclGetUniqueId", &get_unique_id));
  LEEWAY_RETURN_IF_ERROR(Find(nccl, "ncclCommInitRankConfig", &init_rank));
  LEEWAY_RETURN_IF_ERROR(Find(nccl, "ncclCommGetAsyncError", &async_error));
  LEEWAY_RETURN_IF_ERROR(Find(nccl, "ncclCommAbort", &abort));
  LEEWAY_RETURN_IF_ERROR(Find(nccl, "ncclCommFinalize", &finalize));
  LEEWAY_RETURN_IF_ERROR(Find(nccl, "ncclCommDestroy", &destroy));
  LEEWAY_RETURN_IF_ERROR(Find(nccl, "ncclGetLastError", &last_error));
  LEEWAY_RETURN_IF_ERROR(Find(cuda, "cudaStreamQuery", &query_stream));
  api.get_unique_id = [get_unique_id](NcclUniqueId* id) { return Result(get_unique_id(id)); };
  api.init_rank = [init_rank](NcclComm* comm, int size, const NcclUniqueId& id, int rank) {
    Config config;
    return Result(init_rank(comm, size, id, rank, &config));
  };
  api.async_error = [async_error](NcclComm comm, NcclResult* state) {
    int code = 0;
    const NcclResult result = Result(async_error(comm, &code));
    *state = Result(code);
    return result;
  };
  api.abort = [abort](NcclComm comm) { return Result(abort(comm)); };
  api.finalize = [finalize](NcclComm comm) { return Result(finalize(comm)); };
  api.destroy = [destroy](NcclComm comm) { return Result(destroy(comm)); };
  api.last_error = [last_error](NcclComm comm) {
    const char* text = last_error(comm);
    return std::string(text != nullptr ? text : "");
  };
  api.query_stream = [query_stream](CudaStream stream) {
    const int code = query_stream(stream);
    return code == kCudaSuccess    ? StreamState::kDone
           : code == kCudaNotReady ? StreamState::kBusy
                                   : StreamState::kFailed;
  };
  int (*shrink)(NcclComm, int*, int, NcclComm*, Config*, int) = nullptr;
  if (Find(nccl, "ncclCommShrink", &shrink).ok()) {
    api.shrink = [shrink](NcclComm comm, std::vector<int> excluded, NcclComm* result) {
      Config config;
      return Result(shrink(comm, excluded.data(), static_cast<int>(excluded.size()), result, &config, kShrinkAbort));
    };
  }
  int (*revoke)(NcclComm, int) = nullptr;
  if (Find(nccl, "ncclCommRevoke", &revoke).ok()) {
    api.revoke = [revoke](NcclComm comm) { return Result(revoke(comm, kRevokeDefault)); };
  }
  return api;
}

}  // namespace leeway
