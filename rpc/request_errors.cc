#include "rpc/request_errors.h"

namespace leeway {
namespace {

class RequestErrorNamer : public grpc::experimental::Interceptor {
 public:
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      // What gRPC answers in place of a handler that it did not call, and no handler of ours does.
      if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty())
        methods->ModifySendStatus(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, kMalformedRequest));
    }
    methods->Proceed();
  }
};

class Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    // The others carry bulk, and would go through here message by message.
    const bool has_one_request = info->type() == grpc::experimental::ServerRpcInfo::Type::UNARY ||
                                 info->type() == grpc::experimental::ServerRpcInfo::Type::SERVER_STREAMING;
    return has_one_request ? new RequestErrorNamer : nullptr;
  }
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRequestErrorNamer() {
  return std::make_unique<Factory>();
}

}  // namespace leeway
