#ifndef LEEWAY_RPC_REQUEST_ERRORS_H_
#define LEEWAY_RPC_REQUEST_ERRORS_H_

#include <memory>

#include "google/protobuf/message.h"
#include "google/protobuf/unknown_field_set.h"
#include "grpcpp/support/server_interceptor.h"

namespace leeway {

// What a caller is told whose request protobuf cannot read: INVALID_ARGUMENT with this. gRPC's own words would be
// UNIMPLEMENTED without a text, or, in the middle of a stream, nothing at all: there it looks as if the peer had closed
// its side.
inline constexpr char kMalformedRequest[] =
    "the request can not be read: it is malformed, or nested more than 100 levels deep";

// For calls with one request (ServerBuilder::SetInterceptorCreators). Streams of requests use UnreadMark.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRequestErrorNamer();

// Tells a read that found no message from one whose message could not be parsed: parsing clears the target before
// anything else, and the mark with it. Types that are no protobuf messages are never parsed by gRPC.
template <class Message>
struct UnreadMark {
  static constexpr bool kIsProtobuf = std::is_base_of_v<google::protobuf::Message, Message>;
  // No message of proto/ has it: the highest field number that there is.
  static constexpr int kField = 536870911;

  static void Set(Message* target) {
    if constexpr (kIsProtobuf) {
      target->Clear();
      target->GetReflection()->MutableUnknownFields(target)->AddVarint(kField, 1);
    }
  }
  // After a failed read: false when there was a message.
  static bool IsSet(const Message& target) {
    if constexpr (kIsProtobuf) {
      const google::protobuf::UnknownFieldSet& fields = target.GetReflection()->GetUnknownFields(target);
      return fields.field_count() == 1 && fields.field(0).number() == kField;
    }
    return true;
  }
};

}  // namespace leeway

#endif  // LEEWAY_RPC_REQUEST_ERRORS_H_
