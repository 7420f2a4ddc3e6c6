// Who gets through the door of a real server over TCP, and what the others are told.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "grpcpp/impl/client_unary_call.h"
#include "gtest/gtest.h"
#include "leeway/v1/queue.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "rpc/streams/client_stream.h"
#include "rpc/streams/server_stream.h"
#include "rpc/unary_call.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(20);

using Stream = ServerStream<v1::PushRequest, v1::PushResponse>;

// Status, Commit and Drain answer; Push stays open until it is cancelled. Remembers what reached it.
class CountingService : public v1::Queue::CallbackService {
 public:
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const v1::StatusRequest*,
                                   v1::StatusResponse*) override {
    return Answer(context);
  }
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context, const v1::CommitRequest*,
                                   v1::CommitResponse*) override {
    return Answer(context);
  }
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest*,
                                  v1::DrainResponse*) override {
    return Answer(context);
  }
  grpc::ServerBidiReactor<v1::PushRequest, v1::PushResponse>* Push(grpc::CallbackServerContext*) override {
    class Silent : public StreamHandler<v1::PushRequest> {
      void OnMessage(v1::PushRequest*) override {}
      void OnEnd(const absl::Status&) override {}
    };
    return Stream::Start(&executor_, {}, [](std::shared_ptr<Stream>) { return std::make_unique<Silent>(); });
  }

  int calls = 0;
  bool saw_token = false;

 private:
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context) {
    ++calls;
    saw_token = saw_token || context->client_metadata().count("authorization") > 0;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  InlineExecutor executor_;
};

// Notes the end of a stream.
class EndHandler : public StreamHandler<v1::PushResponse> {
 public:
  struct End {
    Mutex mutex;
    CondVar changed;
    std::optional<absl::Status> status LEEWAY_GUARDED_BY(mutex);

    // nullopt: the stream is still open.
    std::optional<absl::Status> Wait(absl::Duration timeout) {
      const Deadline deadline = Deadline::After(timeout);
      MutexLock lock(&mutex);
      while (!status.has_value() && !deadline.HasPassed()) changed.WaitUntil(&mutex, deadline);
      return status;
    }
  };
  explicit EndHandler(End* end) : end_(end) {}
  void OnMessage(v1::PushResponse*) override {}
  void OnEnd(const absl::Status& status) override {
    MutexLock lock(&end_->mutex);
    end_->status = status;
    end_->changed.NotifyAll();
  }

 private:
  End* const end_;
};

class SecureLoopbackTest : public ::testing::Test {
 protected:
  static const MadeCertificates& Certificates() {
    static const auto* const made = new MadeCertificates(MakeCertificates({"localhost", "127.0.0.1"}, 1).value());
    return *made;
  }
  static TlsTexts ServerTls() { return {Certificates().server, Certificates().server_key, Certificates().authority}; }
  static TlsTexts ClientTls() { return {Certificates().client, Certificates().client_key, Certificates().authority}; }

  void Start(const TlsTexts& tls, const ServerLimits& limits = {}, ConnectionOptions options = {}) {
    options.security = {.tls = tls, .tokens = tokens_};
    absl::StatusOr<std::unique_ptr<RpcServer>> server = RpcServer::Start("127.0.0.1:0", {&service_}, options, limits);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::unique_ptr<v1::Queue::Stub> StubOf(const ConnectionSecurity& security) {
    ConnectionOptions options;
    options.security = security;
    return v1::Queue::NewStub(OpenChannel(server_->address(), options).value());
  }
  template <class Request, class Response>
  absl::Status Call(v1::Queue::Stub* stub,
                    grpc::Status (v1::Queue::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const char* name, const Request& request = Request()) {
    Response response;
    return CallUnary(stub, method, request, &response, kPatience, &calls_, name);
  }
  absl::Status Status(const ConnectionSecurity& security) {
    return Call(StubOf(security).get(), &v1::Queue::Stub::Status, "Status");
  }

  const RoleTokens tokens_ = RoleTokens::Generate();
  CountingService service_;
  std::unique_ptr<RpcServer> server_;
  OpenCalls calls_;
};

TEST_F(SecureLoopbackTest, TokensDecideWhatACallerMayDo) {
  Start({});
  const auto trainer = StubOf({.tokens = tokens_, .role = Role::kTrain});
  EXPECT_TRUE(Call(trainer.get(), &v1::Queue::Stub::Commit, "Commit").ok());
  EXPECT_TRUE(Call(trainer.get(), &v1::Queue::Stub::Status, "Status").ok());
  EXPECT_FALSE(service_.saw_token);
  EXPECT_EQ(service_.calls, 2);
  const absl::Status refused = Call(trainer.get(), &v1::Queue::Stub::Drain, "Drain");
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("/leeway.v1.Queue/Drain: needs a token of role admin"));
  EXPECT_EQ(service_.calls, 2);
}

TEST_F(SecureLoopbackTest, StrangersAreRefused) {
  Start({});
  const absl::Status without = Status({});
  EXPECT_EQ(without.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(without.message()), HasSubstr("carries no token"));
  const RoleTokens others = RoleTokens::Generate();
  const absl::Status wrong = Status({.tokens = others});
  EXPECT_EQ(wrong.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(wrong.message()), Not(HasSubstr(others.token(Role::kPush))));
  // A token is not asked for twice: two of them are none.
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + tokens_.token(Role::kTrain));
  v1::StatusResponse response;
  EXPECT_EQ(StubOf({.tokens = tokens_})->Status(&context, {}, &response).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(service_.calls, 0);
}

TEST_F(SecureLoopbackTest, TlsOfOneAuthorityAndATokenGetThrough) {
  Start(ServerTls());
  EXPECT_TRUE(Status({.tls = ClientTls(), .tokens = tokens_}).ok());
  EXPECT_TRUE(Status({.tls = ServerTls(), .tokens = tokens_, .role = Role::kAdmin}).ok());
  EXPECT_EQ(Status({.tls = ClientTls()}).code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(SecureLoopbackTest, APlaintextCallerOfATlsPortIsTold) {
  Start(ServerTls());
  const absl::Status refused = Status({.tokens = tokens_});
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("this port speaks TLS"), HasSubstr("set security.certificate")));
}

TEST_F(SecureLoopbackTest, ATlsCallerOfAPlaintextPortIsTold) {
  Start({});
  const absl::Status refused = Status({.tls = ClientTls(), .tokens = tokens_});
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.message()), HasSubstr("security.")) << refused;
}

TEST_F(SecureLoopbackTest, AnUnknownAuthorityIsSaidOnBothSides) {
  const MadeCertificates other = MakeCertificates({"localhost", "127.0.0.1"}, 1).value();
  Start(ServerTls());
  // The caller does not know the server's authority.
  const absl::Status server_unknown =
      Status({.tls = {other.client, other.client_key, other.authority}, .tokens = tokens_});
  EXPECT_EQ(server_unknown.code(), absl::StatusCode::kUnauthenticated) << server_unknown;
  EXPECT_THAT(std::string(server_unknown.message()), HasSubstr("security.authority"));
  // The server does not know the caller's.
  const absl::Status caller_unknown =
      Status({.tls = {other.client, other.client_key, Certificates().authority}, .tokens = tokens_});
  EXPECT_FALSE(caller_unknown.ok());
  EXPECT_THAT(std::string(caller_unknown.message()), HasSubstr("security.certificate")) << caller_unknown;
  EXPECT_EQ(service_.calls, 0);
}

TEST_F(SecureLoopbackTest, AServerMustProveItsName) {
  const MadeCertificates elsewhere = MakeCertificates({"elsewhere.example.org"}, 1).value();
  Start({elsewhere.server, elsewhere.server_key, elsewhere.authority});
  const absl::Status refused =
      Status({.tls = {elsewhere.client, elsewhere.client_key, elsewhere.authority}, .tokens = tokens_});
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated) << refused;
}

TEST_F(SecureLoopbackTest, WhereAServerMayListenIsCheckedAtItsStart) {
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    const absl::Status refused = RpcServer::Start(address, {&service_}, {.security = {.tokens = tokens_}}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("TLS is not configured"));
    const auto open = RpcServer::Start(address, {&service_}, {.security = {.tls = ServerTls(), .tokens = tokens_}});
    EXPECT_TRUE(open.ok() || !absl::IsInvalidArgument(open.status())) << open.status();
  }
  EXPECT_TRUE(absl::IsInvalidArgument(RpcServer::Start("127.0.0.1:0", {&service_}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(OpenChannel("10.0.0.1:1", {.security = {.tokens = tokens_}}).status()));
}

TEST_F(SecureLoopbackTest, AClientDialsAWildcardOnItsOwnMachine) {
  ConnectionOptions options;
  options.security = {.tls = ServerTls(), .tokens = tokens_};
  server_ = RpcServer::Start("0.0.0.0:0", {&service_}, options).value();
  EXPECT_TRUE(Status(options.security).ok());
}

// ---- limits ---------------------------------------------------------------------------------------------------------

TEST_F(SecureLoopbackTest, MessagesAndMetadataBeyondTheLimitsAreRefused) {
  Start({}, {.max_metadata_bytes = 4096}, {.max_message_bytes = 1 << 20});
  ConnectionOptions larger = {.max_message_bytes = 16 << 20, .security = {.tokens = tokens_, .role = Role::kTrain}};
  const auto stub = v1::Queue::NewStub(OpenChannel(server_->address(), larger).value());
  v1::CommitRequest request;
  request.set_digest(std::string(2 << 20, 'x'));
  const absl::Status too_large = Call(stub.get(), &v1::Queue::Stub::Commit, "Commit", request);
  EXPECT_EQ(too_large.code(), absl::StatusCode::kResourceExhausted) << too_large;
  grpc::ClientContext context;
  context.set_deadline(CallDeadline(kPatience));
  context.AddMetadata("x-bomb", std::string(8192, 'x'));
  v1::StatusResponse response;
  EXPECT_EQ(stub->Status(&context, {}, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  // It may have cost the caller its connection, but no other's; it gets another one.
  absl::Status after = absl::UnavailableError("");
  const Deadline deadline = Deadline::After(kPatience);
  while (absl::IsUnavailable(after) && !deadline.HasPassed())
    after = Call(stub.get(), &v1::Queue::Stub::Status, "Status");
  EXPECT_TRUE(after.ok()) << after;
}

// Groups in groups (wire type 3), which no message has: unknown fields, which protobuf follows to their ends.
v1::CommitRequest NestingBomb() {
  v1::CommitRequest request;
  google::protobuf::UnknownFieldSet* fields = request.GetReflection()->MutableUnknownFields(&request);
  for (int depth = 0; depth < 150; ++depth) fields = fields->AddGroup(1000);
  return request;
}

TEST_F(SecureLoopbackTest, ANestingBombIsRefusedAsWhatItIs) {
  Start({});
  const auto stub = StubOf({.tokens = tokens_, .role = Role::kTrain});
  const absl::Status refused = Call(stub.get(), &v1::Queue::Stub::Commit, "Commit", NestingBomb());
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("nested more than 100 levels deep"));
  EXPECT_EQ(service_.calls, 0);
  EXPECT_TRUE(Call(stub.get(), &v1::Queue::Stub::Commit, "Commit").ok());
}

TEST_F(SecureLoopbackTest, ANestingBombInAStreamIsNotTakenForItsEnd) {
  Start({});
  const auto stub = StubOf({.tokens = tokens_});
  InlineExecutor executor;
  EndHandler::End end;
  auto stream = ClientStream<v1::PushRequest, v1::PushResponse>::Start(
      [&](grpc::ClientContext* context, auto* reactor) { stub->async()->Push(context, reactor); }, "Push", &executor,
      {}, [&](auto) { return std::make_unique<EndHandler>(&end); });
  v1::PushRequest good, bomb;
  const v1::CommitRequest same = NestingBomb();
  bomb.GetReflection()->MutableUnknownFields(&bomb)->MergeFrom(same.GetReflection()->GetUnknownFields(same));
  EXPECT_TRUE(stream->Write(std::move(good)));
  EXPECT_TRUE(stream->Write(std::move(bomb)));
  const std::optional<absl::Status> status = end.Wait(kPatience);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->code(), absl::StatusCode::kInvalidArgument) << *status;
  EXPECT_THAT(std::string(status->message()), HasSubstr("nested more than 100 levels deep"));
}

TEST_F(SecureLoopbackTest, AConnectionCarriesSoManyCallsAtATime) {
  Start({}, {.max_streams = 1});
  const auto stub = StubOf({.tokens = tokens_});
  InlineExecutor executor;
  EndHandler::End end;
  auto stream = ClientStream<v1::PushRequest, v1::PushResponse>::Start(
      [&](grpc::ClientContext* context, auto* reactor) { stub->async()->Push(context, reactor); }, "Push", &executor,
      {}, [&](auto) { return std::make_unique<EndHandler>(&end); });
  // The stream is the one call that may be open: another waits, until it is.
  v1::StatusResponse response;
  absl::Status waited = absl::OkStatus();
  while (waited.ok()) {  // the stream may start after the first ones
    waited = CallUnary(stub.get(), &v1::Queue::Stub::Status, {}, &response, absl::Milliseconds(300), &calls_, "Status");
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(waited)) << waited;
  stream->Cancel();
  EXPECT_TRUE(end.Wait(kPatience).has_value());
  EXPECT_TRUE(Call(stub.get(), &v1::Queue::Stub::Status, "Status").ok());
}

TEST_F(SecureLoopbackTest, OnePeersConnectionsAreLimited) {
  Start({}, {.connections = {.max_connections_per_peer = 2}});
  std::vector<std::unique_ptr<v1::Queue::Stub>> stubs;
  for (int i = 0; i < 2; ++i) {
    stubs.push_back(StubOf({.tokens = tokens_}));
    EXPECT_TRUE(Call(stubs.back().get(), &v1::Queue::Stub::Status, "Status").ok());
  }
  EXPECT_TRUE(absl::IsUnavailable(Status({.tokens = tokens_})));
  EXPECT_TRUE(Call(stubs[0].get(), &v1::Queue::Stub::Status, "Status").ok());
  stubs.clear();
  absl::Status status = absl::UnavailableError("");
  const Deadline deadline = Deadline::After(kPatience);
  while (absl::IsUnavailable(status) && !deadline.HasPassed()) status = Status({.tokens = tokens_});
  EXPECT_TRUE(status.ok()) << status;
}

// ---- keepalive ------------------------------------------------------------------------------------------------------

TEST_F(SecureLoopbackTest, KeepalivesOfEqualOptionsAgree) {
  const ConnectionOptions options = {.keepalive_time = absl::Milliseconds(100)};
  Start({}, {}, options);
  ConnectionOptions own = options;
  own.security = {.tokens = tokens_};
  const auto stub = v1::Queue::NewStub(OpenChannel(server_->address(), own).value());
  InlineExecutor executor;
  EndHandler::End end;
  auto stream = ClientStream<v1::PushRequest, v1::PushResponse>::Start(
      [&](grpc::ClientContext* context, auto* reactor) { stub->async()->Push(context, reactor); }, "Push", &executor,
      {}, [&](auto) { return std::make_unique<EndHandler>(&end); });
  // A dozen pings on an idle stream: three strikes would have ended it.
  EXPECT_EQ(end.Wait(absl::Milliseconds(1300)), std::nullopt);
  stream->Cancel();
  EXPECT_TRUE(end.Wait(kPatience).has_value());
}

TEST_F(SecureLoopbackTest, AClientThatPingsMoreOftenIsThrownOut) {
  Start({}, {}, {.keepalive_time = absl::Seconds(20)});
  const ConnectionOptions hasty = {.keepalive_time = absl::Milliseconds(50), .security = {.tokens = tokens_}};
  const auto stub = v1::Queue::NewStub(OpenChannel(server_->address(), hasty).value());
  InlineExecutor executor;
  EndHandler::End end;
  auto stream = ClientStream<v1::PushRequest, v1::PushResponse>::Start(
      [&](grpc::ClientContext* context, auto* reactor) { stub->async()->Push(context, reactor); }, "Push", &executor,
      {}, [&](auto) { return std::make_unique<EndHandler>(&end); });
  const std::optional<absl::Status> status = end.Wait(kPatience);
  ASSERT_TRUE(status.has_value());
  EXPECT_THAT(std::string(status->message()), HasSubstr("Too many pings")) << *status;
}

// ---- health ---------------------------------------------------------------------------------------------------------

TEST_F(SecureLoopbackTest, HealthIsWhatTheServiceSays) {
  Start({});
  ConnectionOptions options;
  options.security = {.tokens = tokens_};
  const auto channel = OpenChannel(server_->address(), options).value();
  // HealthCheckRequest {1: service} and HealthCheckResponse {1: status, 1 = SERVING, 2 = NOT_SERVING}, by hand:
  // StatusRequest stands for any message, its unknown fields are the content.
  const auto check = [&](const std::string& service) -> std::string {
    v1::StatusRequest request, response;
    std::string bytes =
        service.empty() ? "" : absl::StrCat("\n", std::string(1, static_cast<char>(service.size())), service);
    request.GetReflection()->MutableUnknownFields(&request)->ParseFromString(bytes);
    grpc::ClientContext context;
    context.set_deadline(CallDeadline(kPatience));
    const grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check", grpc::internal::RpcMethod::NORMAL_RPC);
    const grpc::Status status =
        grpc::internal::BlockingUnaryCallImpl<google::protobuf::MessageLite, google::protobuf::MessageLite>(
            channel.get(), method, &context, request, &response)
            .status();
    return status.ok() ? response.SerializeAsString() : absl::StrCat("code ", status.error_code());
  };
  EXPECT_EQ(check(""), "\x08\x01");
  EXPECT_EQ(check("leeway.v1.Queue"), "code 5");
  server_->SetServing("leeway.v1.Queue", true);
  EXPECT_EQ(check("leeway.v1.Queue"), "\x08\x01");
  server_->SetServing("leeway.v1.Queue", false);
  EXPECT_EQ(check("leeway.v1.Queue"), "\x08\x02");
}

}  // namespace
}  // namespace leeway
