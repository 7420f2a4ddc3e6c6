#include "rpc/security/method_roles.h"

#include "absl/container/flat_hash_map.h"

namespace leeway {

const std::vector<MethodAccess>& MethodTable() {
  static const auto* const table = new std::vector<MethodAccess>{
      {"/leeway.v1.Queue/Register", Role::kPush},
      {"/leeway.v1.Queue/AcquireTickets", Role::kPush},
      {"/leeway.v1.Queue/Push", Role::kPush},
      {"/leeway.v1.Queue/Heartbeat", Role::kPush},
      {"/leeway.v1.Queue/AllocateLineage", Role::kTrain},
      {"/leeway.v1.Queue/Restore", Role::kTrain},
      {"/leeway.v1.Queue/LeaseBatch", Role::kTrain},
      {"/leeway.v1.Queue/Commit", Role::kTrain},
      {"/leeway.v1.Queue/Settle", Role::kTrain},
      {"/leeway.v1.Queue/LedgerSnapshot", Role::kTrain},
      {"/leeway.v1.Queue/RetireGroup", Role::kTrain},
      {"/leeway.v1.Queue/FenceWorker", Role::kTrain},
      {"/leeway.v1.Queue/Status", std::nullopt},
      {"/leeway.v1.Queue/Drain", Role::kAdmin},
      {"/leeway.v1.Weights/Attach", Role::kPush},
      {"/leeway.v1.Weights/Fetch", Role::kPush},
      // Every server has it (RpcServer). A prober needs a token like everybody else.
      {"/grpc.health.v1.Health/Check", std::nullopt},
      {"/grpc.health.v1.Health/Watch", std::nullopt},
  };
  return *table;
}

const MethodAccess* FindMethod(absl::string_view path) {
  static const auto* const index = [] {
    auto* made = new absl::flat_hash_map<absl::string_view, const MethodAccess*>();
    for (const MethodAccess& method : MethodTable()) (*made)[method.path] = &method;
    return made;
  }();
  const auto found = index->find(path);
  return found == index->end() ? nullptr : found->second;
}

}  // namespace leeway
