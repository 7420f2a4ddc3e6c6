#include "benchmarks/queue/grpc_floor.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "benchmarks/queue/child_process.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "rpc/address.h"

namespace leeway {
namespace {

grpc::ByteBuffer Bytes(uint64_t size) {
  const grpc::Slice slice(std::string(size, 'x'));
  return grpc::ByteBuffer(&slice, 1);
}

class FloorReactor final : public grpc::ServerGenericBidiReactor {
 public:
  FloorReactor() { StartRead(&message_); }
  void OnReadDone(bool ok) override { ok ? StartWrite(&answer_) : Finish(grpc::Status::OK); }
  void OnWriteDone(bool) override { StartRead(&message_); }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer message_;
  const grpc::ByteBuffer answer_ = Bytes(96);
};

class FloorService final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new FloorReactor();
  }
};

// One stream: a message, its answer, the next message.
class FloorClient final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  FloorClient(const std::string& address, uint64_t message_bytes, uint64_t messages)
      : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        stub_(channel_),
        message_(Bytes(message_bytes)),
        left_(messages) {
    stub_.PrepareBidiStreamingCall(&context_, "/floor/Push", grpc::StubOptions(), this);
  }
  void Start() {
    StartWrite(&message_);
    StartRead(&answer_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    StartRead(&answer_);
    HalfDone();
  }
  void OnWriteDone(bool ok) override {
    if (ok) HalfDone();
  }
  void OnDone(const grpc::Status& status) override {
    MutexLock lock(&mutex_);
    status_ = status;
    is_done_ = true;
    changed_.NotifyAll();
  }
  void Await() {
    MutexLock lock(&mutex_);
    while (!is_done_) changed_.WaitFor(&mutex_, absl::Seconds(1));
    MustSucceed(status_.ok() ? absl::OkStatus() : absl::InternalError(status_.error_message()));
  }

 private:
  // A message was written, or answered; the answer may come first.
  void HalfDone() {
    if (halves_.fetch_xor(1) == 0) return;
    --left_ > 0 ? StartWrite(&message_) : StartWritesDone();
  }

  const std::shared_ptr<grpc::Channel> channel_;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub_;
  grpc::ClientContext context_;
  const grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;
  std::atomic<int> halves_{0};
  uint64_t left_;
  Mutex mutex_;
  CondVar changed_;
  grpc::Status status_ LEEWAY_GUARDED_BY(mutex_);
  bool is_done_ LEEWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace

double MeasureGrpcFloor(const LoadShape& shape, const std::string& folder) {
  TemporaryFolder own(folder);
  const std::string address = absl::StrCat("unix:", own.path(), "/socket");
  const ChildProcess server =
      Must(ChildProcess::Start({"/proc/self/exe", "floor", address}, absl::StrCat(own.path(), "/floor.log")));
  for (int i = 0; i < 2000 && !IsSocketServed(own.path() + "/socket"); ++i) usleep(5'000);
  const uint64_t producers = static_cast<uint64_t>(shape.producers);
  const uint64_t messages = shape.pushes / shape.depth / producers;
  std::vector<std::unique_ptr<FloorClient>> clients;
  for (uint64_t i = 0; i < producers; ++i) {
    clients.push_back(std::make_unique<FloorClient>(address, shape.depth * shape.payload_bytes, messages));
  }
  const MonotonicTime start = RealClock()->Now();
  for (auto& client : clients) client->Start();
  for (auto& client : clients) client->Await();
  return static_cast<double>(messages * shape.depth * producers) / absl::ToDoubleSeconds(RealClock()->Now() - start);
}

int ServeGrpcFloor(const std::string& address) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  FloorService service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  int signal = 0;
  sigwait(&stop, &signal);
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

}  // namespace leeway
