// Streams, calls and servers over a real socket. The service is the queue's definition with answers of its own.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "leeway/v1/queue.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/retrying_caller.h"
#include "rpc/server.h"
#include "rpc/streams/client_stream.h"
#include "rpc/streams/server_stream.h"
#include "rpc/unary_call.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

// Runs tasks on one thread of its own.
class ThreadExecutor : public Executor {
 public:
  ThreadExecutor() : thread_([this] { Work(); }) {}
  ~ThreadExecutor() override {
    Schedule(nullptr);
    thread_.join();
  }
  void Schedule(std::function<void()> task) override {
    MutexLock lock(&mutex_);
    tasks_.push_back(std::move(task));
    changed_.NotifyAll();
  }

 private:
  void Work() {
    while (true) {
      std::function<void()> task;
      {
        MutexLock lock(&mutex_);
        while (tasks_.empty()) changed_.WaitFor(&mutex_, kPatience);
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      if (task == nullptr) return;
      task();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ LEEWAY_GUARDED_BY(mutex_);
  std::thread thread_;
};

// Something that a test waits for.
class Signal {
 public:
  void Set() {
    MutexLock lock(&mutex_);
    set_ = true;
    changed_.NotifyAll();
  }
  bool Wait(absl::Duration timeout = kPatience) {
    const Deadline deadline = Deadline::After(timeout);
    MutexLock lock(&mutex_);
    while (!set_ && !deadline.HasPassed()) changed_.WaitUntil(&mutex_, deadline);
    return set_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ LEEWAY_GUARDED_BY(mutex_) = false;
};

using Stream = ServerStream<v1::PushRequest, v1::PushResponse>;

// Push: echoes every chunk's sequence; sequence 98 ends the stream, 99 ends it with an error. LeaseBatch: `step`
// messages. Status: answers.
class EchoService : public v1::Queue::CallbackService {
 public:
  explicit EchoService(Executor* executor) : executor_(executor) {}

  grpc::ServerBidiReactor<v1::PushRequest, v1::PushResponse>* Push(grpc::CallbackServerContext*) override {
    return Stream::Start(executor_, {.max_queued_writes = 8}, [this](std::shared_ptr<Stream> stream) {
      return std::make_unique<Echo>(this, std::move(stream));
    });
  }
  grpc::ServerWriteReactor<v1::LeaseBatchResponse>* LeaseBatch(grpc::CallbackServerContext*,
                                                               const v1::LeaseBatchRequest* request) override {
    auto stream =
        ServerWriteStream<v1::LeaseBatchResponse>::Start([this](const absl::Status&) { write_stream_ended.Set(); });
    if (request->step() == 0) return stream.get();  // never answered: ended by cancellation
    stream->WriteAll([left = request->step(), next = uint64_t{1}](v1::LeaseBatchResponse* response) mutable {
      if (next > left) return false;
      response->set_lag_limit(next++);
      return true;
    });
    return stream.get();
  }
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const v1::StatusRequest*,
                                   v1::StatusResponse* response) override {
    response->set_next_ticket(7);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest*,
                                  v1::DrainResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(absl::FailedPreconditionError("not now")));
    return reactor;
  }

  Signal half_closed;
  Signal ended;
  Signal write_stream_ended;
  absl::Status end;

 private:
  class Echo : public StreamHandler<v1::PushRequest> {
   public:
    Echo(EchoService* service, std::shared_ptr<Stream> stream) : service_(service), stream_(std::move(stream)) {}
    void OnMessage(v1::PushRequest* request) override {
      v1::PushResponse response;
      for (const v1::PushChunk& chunk : request->chunks()) {
        if (chunk.sequence() == 98) {
          stream_->Finish(absl::OkStatus());
          return;
        }
        if (chunk.sequence() == 99) stream_->Finish(absl::AbortedError("fenced"));
        response.add_answers()->set_sequence(chunk.sequence());
      }
      stream_->Write(std::move(response));
    }
    void OnHalfClose() override {
      service_->half_closed.Set();
      stream_->Finish(absl::OkStatus());
    }
    void OnEnd(const absl::Status& status) override {
      service_->end = status;
      service_->ended.Set();
    }

   private:
    EchoService* const service_;
    const std::shared_ptr<Stream> stream_;
  };

  Executor* const executor_;
};

using PushStream = ClientStream<v1::PushRequest, v1::PushResponse>;

// Keeps what a client's stream gave.
struct Received {
  Mutex mutex;
  std::vector<uint64_t> sequences LEEWAY_GUARDED_BY(mutex);
  absl::Status end LEEWAY_GUARDED_BY(mutex);
  Signal writable;
  Signal ended;
};

class Collect : public StreamHandler<v1::PushResponse> {
 public:
  explicit Collect(Received* received) : received_(received) {}
  void OnMessage(v1::PushResponse* response) override {
    MutexLock lock(&received_->mutex);
    for (const v1::PushAnswer& answer : response->answers()) received_->sequences.push_back(answer.sequence());
  }
  void OnWritable() override { received_->writable.Set(); }
  void OnEnd(const absl::Status& status) override {
    {
      MutexLock lock(&received_->mutex);
      received_->end = status;
    }
    received_->ended.Set();
  }

 private:
  Received* const received_;
};

v1::PushRequest Message(uint64_t sequence) {
  v1::PushRequest request;
  request.add_chunks()->set_sequence(sequence);
  return request;
}

// Once with everything on gRPC's threads, once with handlers on another.
class LoopbackTest : public ::testing::TestWithParam<bool> {
 protected:
  LoopbackTest() : service_(executor()) {
    char folder[] = "/tmp/leeway-rpc-XXXXXX";
    folder_ = mkdtemp(folder);
    address_ = absl::StrCat("unix:", folder_, "/socket");
  }
  ~LoopbackTest() override {
    server_.reset();
    unlink(absl::StrCat(folder_, "/socket").c_str());
    rmdir(folder_.c_str());
  }
  Executor* executor() { return GetParam() ? static_cast<Executor*>(&pool_) : &inline_; }

  void StartServer() {
    absl::StatusOr<std::unique_ptr<RpcServer>> server = RpcServer::Start(address_, {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::Queue::NewStub(OpenChannel(server_->address()).value());
  }
  std::shared_ptr<PushStream> Open(Received* received, size_t max_queued_writes = 64) {
    return PushStream::Start(
        [this](grpc::ClientContext* context, auto* reactor) { stub_->async()->Push(context, reactor); }, "Push",
        executor(), {.max_queued_writes = max_queued_writes},
        [received](std::shared_ptr<PushStream>) { return std::make_unique<Collect>(received); });
  }

  ThreadExecutor pool_;
  InlineExecutor inline_;
  std::string folder_;
  std::string address_;
  EchoService service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::Queue::Stub> stub_;
  OpenCalls calls_;
};

INSTANTIATE_TEST_SUITE_P(Executors, LoopbackTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "thread" : "inline"; });

TEST_P(LoopbackTest, AnswersComeInOrderAndTheStreamEndsCleanly) {
  StartServer();
  Received received;
  std::shared_ptr<PushStream> stream = Open(&received, 1000);
  std::vector<uint64_t> expected;
  for (uint64_t i = 100; i < 600; ++i) {
    ASSERT_TRUE(stream->Write(Message(i)));
    expected.push_back(i);
  }
  stream->Write(Message(98));
  ASSERT_TRUE(received.ended.Wait());
  EXPECT_FALSE(stream->Write(Message(1)));
  MutexLock lock(&received.mutex);
  EXPECT_TRUE(received.end.ok()) << received.end;
  EXPECT_EQ(received.sequences, expected);
  EXPECT_TRUE(service_.ended.Wait());
}

TEST_P(LoopbackTest, AFullWriteQueueRefusesAndSaysWhenThereIsRoom) {
  StartServer();
  Received received;
  std::shared_ptr<PushStream> stream = Open(&received, /*max_queued_writes=*/2);
  v1::PushRequest large = Message(1);
  large.mutable_chunks(0)->set_data(std::string(1 << 20, 'x'));
  v1::PushRequest next = large;
  uint64_t written = 0;
  while (stream->Write(std::move(next))) {
    ++written;
    next = large;
  }
  EXPECT_EQ(next.chunks_size(), 1);  // left as it was
  ASSERT_TRUE(received.writable.Wait());
  EXPECT_TRUE(stream->Write(std::move(next)));
  while (!stream->Write(Message(98))) std::this_thread::yield();
  ASSERT_TRUE(received.ended.Wait());
  MutexLock lock(&received.mutex);
  EXPECT_EQ(received.sequences.size(), written + 1);
}

TEST_P(LoopbackTest, AHalfClosedStreamIsTheHandlersToEnd) {
  StartServer();
  grpc::ClientContext context;
  const auto stream = stub_->Push(&context);
  ASSERT_TRUE(stream->Write(Message(1)));
  ASSERT_TRUE(stream->WritesDone());
  v1::PushResponse response;
  EXPECT_TRUE(stream->Read(&response));
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(service_.half_closed.Wait());
}

TEST_P(LoopbackTest, AServersErrorReachesTheClient) {
  StartServer();
  Received received;
  std::shared_ptr<PushStream> stream = Open(&received);
  stream->Write(Message(1));
  stream->Write(Message(99));
  ASSERT_TRUE(received.ended.Wait());
  MutexLock lock(&received.mutex);
  EXPECT_TRUE(absl::IsAborted(received.end)) << received.end;
  EXPECT_THAT(std::string(received.end.message()), HasSubstr("fenced"));
  // What was queued before the end is still written; nothing is after it.
  EXPECT_THAT(received.sequences, ElementsAre(1));
  EXPECT_FALSE(stream->Write(Message(2)));
}

TEST_P(LoopbackTest, ACancelledStreamEndsOnBothSides) {
  StartServer();
  Received received;
  std::shared_ptr<PushStream> stream = Open(&received);
  stream->Write(Message(1));
  stream->Cancel();
  ASSERT_TRUE(received.ended.Wait());
  {
    MutexLock lock(&received.mutex);
    EXPECT_TRUE(absl::IsCancelled(received.end)) << received.end;
  }
  // The call may have been cancelled before it reached the server; a shutdown below must be quick in any case.
  const MonotonicTime start = RealClock()->Now();
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_LT(RealClock()->Now() - start, absl::Seconds(5));
}

TEST_P(LoopbackTest, ShutdownEndsOpenStreamsInTime) {
  StartServer();
  Received first, second;
  std::shared_ptr<PushStream> streams[] = {Open(&first), Open(&second)};
  for (auto& stream : streams) stream->Write(Message(1));
  grpc::ClientContext context;
  v1::LeaseBatchRequest unanswered;
  std::unique_ptr<grpc::ClientReader<v1::LeaseBatchResponse>> reader = stub_->LeaseBatch(&context, unanswered);
  const MonotonicTime start = RealClock()->Now();
  server_->Shutdown(absl::Milliseconds(50));
  EXPECT_LT(RealClock()->Now() - start, absl::Seconds(5));
  for (Received* received : {&first, &second}) {
    ASSERT_TRUE(received->ended.Wait());
    MutexLock lock(&received->mutex);
    EXPECT_TRUE(absl::IsUnavailable(received->end)) << received->end;
  }
  v1::LeaseBatchResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(absl::IsUnavailable(FromGrpcStatus(reader->Finish(), "LeaseBatch")));
}

TEST_P(LoopbackTest, AStreamToNobodyIsUnavailable) {
  stub_ = v1::Queue::NewStub(OpenChannel(address_).value());
  Received received;
  std::shared_ptr<PushStream> stream = Open(&received);
  stream->Write(Message(1));
  ASSERT_TRUE(received.ended.Wait());
  MutexLock lock(&received.mutex);
  EXPECT_TRUE(absl::IsUnavailable(received.end)) << received.end;
}

TEST_P(LoopbackTest, AServerStreamGivesEveryMessage) {
  StartServer();
  v1::LeaseBatchRequest request;
  request.set_step(200);
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::LeaseBatchResponse>> reader = stub_->LeaseBatch(&context, request);
  v1::LeaseBatchResponse response;
  uint64_t count = 0;
  while (reader->Read(&response)) EXPECT_EQ(response.lag_limit(), ++count);
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(count, 200u);
}

TEST_P(LoopbackTest, AServerStreamWhoseReaderLeavesEnds) {
  StartServer();
  v1::LeaseBatchRequest request;
  request.set_step(uint64_t{1} << 60);
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::LeaseBatchResponse>> reader = stub_->LeaseBatch(&context, request);
  v1::LeaseBatchResponse response;
  ASSERT_TRUE(reader->Read(&response));
  context.TryCancel();
  EXPECT_TRUE(service_.write_stream_ended.Wait());
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_P(LoopbackTest, UnaryCalls) {
  StartServer();
  v1::StatusResponse status;
  ASSERT_TRUE(
      CallUnary(stub_.get(), &v1::Queue::Stub::Status, v1::StatusRequest(), &status, kPatience, &calls_, "Status")
          .ok());
  EXPECT_EQ(status.next_ticket(), 7u);
  v1::DrainResponse drained;
  const absl::Status refused =
      CallUnary(stub_.get(), &v1::Queue::Stub::Drain, v1::DrainRequest(), &drained, kPatience, &calls_, "Drain");
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_EQ(refused.message(), "Drain: not now");
  calls_.CancelAll();
  EXPECT_TRUE(absl::IsCancelled(
      CallUnary(stub_.get(), &v1::Queue::Stub::Status, v1::StatusRequest(), &status, kPatience, &calls_, "Status")));
}

TEST_P(LoopbackTest, ACallIsTriedAgainUntilTheServerIsThere) {
  RetryingCaller<v1::Queue> caller(OpenChannel(address_).value(), kPatience, /*seed=*/1);
  v1::StatusResponse response;
  absl::Status status;
  std::thread call(
      [&] { status = caller.Call(&v1::Queue::Stub::Status, v1::StatusRequest(), &response, kPatience, "Status"); });
  StartServer();
  call.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(response.next_ticket(), 7u);
}

TEST_P(LoopbackTest, TryingAgainEndsInTimeAndOnCancel) {
  RetryingCaller<v1::Queue> brief(OpenChannel(address_).value(), absl::Milliseconds(100), /*seed=*/1);
  v1::StatusResponse response;
  EXPECT_TRUE(
      absl::IsUnavailable(brief.Call(&v1::Queue::Stub::Status, v1::StatusRequest(), &response, kPatience, "Status")));

  RetryingCaller<v1::Queue> patient(OpenChannel(address_).value(), 10 * kPatience, /*seed=*/1);
  const MonotonicTime start = RealClock()->Now();
  absl::Status status;
  std::thread call([&] {
    status = patient.Call(&v1::Queue::Stub::Status, v1::StatusRequest(), &response, 10 * kPatience, "Status");
  });
  patient.calls()->CancelAll();
  call.join();
  EXPECT_FALSE(status.ok());
  EXPECT_LT(RealClock()->Now() - start, kPatience);
}

TEST_P(LoopbackTest, ATakenAddressIsRefused) {
  StartServer();
  EchoService second(executor());
  const absl::StatusOr<std::unique_ptr<RpcServer>> taken = RpcServer::Start(address_, {&second});
  EXPECT_TRUE(absl::IsAlreadyExists(taken.status())) << taken.status();

  const ConnectionOptions with_tokens = {.security = {.tokens = RoleTokens::Generate()}};
  absl::StatusOr<std::unique_ptr<RpcServer>> tcp = RpcServer::Start("127.0.0.1:0", {&second}, with_tokens);
  ASSERT_TRUE(tcp.ok()) << tcp.status();
  EXPECT_THAT((*tcp)->address(), ::testing::Not(HasSubstr(":0")));
  EchoService third(executor());
  const absl::StatusOr<std::unique_ptr<RpcServer>> port = RpcServer::Start((*tcp)->address(), {&third}, with_tokens);
  EXPECT_TRUE(absl::IsAlreadyExists(port.status())) << port.status();
  EXPECT_THAT(std::string(port.status().message()), HasSubstr("port is in use"));
}

TEST_P(LoopbackTest, AServerThatIsTooBusyToTakeConnectionsIsThere) {
  const std::string path = absl::StrCat(folder_, "/socket");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  const int first = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(connect(first, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);  // fills the backlog
  EXPECT_TRUE(absl::IsAlreadyExists(RpcServer::Start(address_, {&service_}).status()));
  close(first);
  close(listener);
}

TEST_P(LoopbackTest, ADeadServersSocketFileIsReplaced) {
  StartServer();
  // What a killed server leaves: a socket file behind which nobody listens.
  const std::string path = absl::StrCat(folder_, "/socket");
  const std::string kept = absl::StrCat(folder_, "/kept");
  ASSERT_EQ(link(path.c_str(), kept.c_str()), 0);
  server_.reset();
  ASSERT_EQ(rename(kept.c_str(), path.c_str()), 0);
  StartServer();
  v1::StatusResponse status;
  EXPECT_TRUE(
      CallUnary(stub_.get(), &v1::Queue::Stub::Status, v1::StatusRequest(), &status, kPatience, &calls_, "Status")
          .ok());
}

TEST_P(LoopbackTest, AMissingFolderIsSaid) {
  EchoService service(executor());
  const absl::StatusOr<std::unique_ptr<RpcServer>> server = RpcServer::Start("unix:/nonexistent/socket", {&service});
  EXPECT_TRUE(absl::IsUnavailable(server.status())) << server.status();
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("No such file"));
}

}  // namespace
}  // namespace leeway
