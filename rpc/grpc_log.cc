#include "rpc/grpc_log.h"

#include <mutex>

#include "base/logging.h"
#include "grpc/support/log.h"

namespace leeway {

void RouteGrpcLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_set_log_function([](gpr_log_func_args* args) {
      switch (args->severity) {
        case GPR_LOG_SEVERITY_ERROR:
          LEEWAY_LOG_WARNING("grpc: {}", args->message);
          break;
        case GPR_LOG_SEVERITY_INFO:
          LEEWAY_LOG_INFO("grpc: {}", args->message);
          break;
        case GPR_LOG_SEVERITY_DEBUG:
          LEEWAY_LOG_DEBUG("grpc: {}", args->message);
          break;
      }
    });
  });
}

}  // namespace leeway
