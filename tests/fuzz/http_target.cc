// The queue's service with raw bytes: what any process that can reach the socket may send.

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/file_system.h"
#include "base/status_macros.h"
#include "queue/fake_trajectory.h"
#include "queue/queue_grpc_client.h"
#include "queue/queue_server.h"
#include "tests/fuzz/fuzz_target.h"

namespace leeway {
namespace {

// A queue that lives as long as the fuzzer, and a client of good manners that must never notice.
class Victim {
 public:
  Victim() {
    char folder[] = "/tmp/leeway_fuzz_XXXXXX";
    LEEWAY_CHECK(mkdtemp(folder) != nullptr);
    path_ = std::string(folder) + "/queue.sock";
    QueueOptions options;
    options.address = "unix:" + path_;
    options.core.staleness.groups_per_step = 2;
    options.core.staleness.steps = 10;
    options.core.group_size = 2;
    options.core.max_groups = 6;
    options.core.max_trajectory_bytes = 4096;
    options.core.max_bytes = 1 << 20;
    options.core.task = "sort5";
    options.core.train_seed = options.core.evaluation_seed = [](uint64_t index) { return index; };
    options.vocabulary_size = kFakeVocabulary;
    server_ = QueueServer::Start(std::move(options)).value();
    client_ = GrpcQueueTrainerClient::Create({.target = "unix:" + path_, .name = "trainer-0"}).value();
    unlink_ = folder;
  }
  ~Victim() {
    client_.reset();
    server_->Shutdown(absl::Seconds(1));
    static_cast<void>(RealFileSystem()->RemoveAll(unlink_));
  }

  void Send(absl::string_view bytes) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    LEEWAY_CHECK(fd >= 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path_.c_str(), path_.size());
    LEEWAY_CHECK(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    while (!bytes.empty()) {
      const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;  // the server has hung up
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    // What the server has to say, until it is silent.
    char answer[4096];
    pollfd readable = {fd, POLLIN, 0};
    while (poll(&readable, 1, 3) == 1 && recv(fd, answer, sizeof(answer), 0) > 0) {
    }
    close(fd);
    if (++connections_ % 32 == 0) {
      const absl::StatusOr<v1::StatusResponse> status = client_->GetStatus(absl::Seconds(10));
      LEEWAY_CHECK(status.ok() && status->conservation_holds()) << status.status();
    }
  }

 private:
  std::string path_;
  std::string unlink_;
  std::unique_ptr<QueueServer> server_;
  std::unique_ptr<GrpcQueueTrainerClient> client_;
  int connections_ = 0;
};

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const char* const kMethods[] = {"Register",    "AcquireTickets", "Push",   "Heartbeat", "AllocateLineage",
                                "Restore",     "LeaseBatch",     "Commit", "Settle",    "LedgerSnapshot",
                                "RetireGroup", "FenceWorker",    "Status"};

std::string Frame(char type, char flags, uint32_t stream, const std::string& payload) {
  std::string frame;
  for (int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift & 0xff);
  frame += type;
  frame += flags;
  for (int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift & 0xff);
  return frame + payload;
}

std::string Header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) + value;
}

// A whole call of `method` with this message, however broken.
std::string Call(const std::string& method, absl::string_view message) {
  const std::string headers = Header(":method", "POST") + Header(":scheme", "http") +
                              Header(":path", "/leeway.v1.Queue/" + method) + Header(":authority", "queue") +
                              Header("content-type", "application/grpc") + Header("te", "trailers");
  std::string data(1, '\0');
  for (int shift : {24, 16, 8, 0}) data += static_cast<char>(message.size() >> shift & 0xff);
  data.append(message.data(), message.size());
  return kPreface + Frame(4, 0, 0, "") + Frame(1, 4, 1, headers) + Frame(0, 1, 1, data);
}

// First byte: 0 to 12 = a good call of that method, the rest is its message; 13 = after the preface; other = from the
// first byte of the connection on.
void RunHttp(absl::string_view input) {
  static Victim victim;
  if (input.empty()) return;
  const size_t kind = static_cast<uint8_t>(input[0]);
  input.remove_prefix(1);
  if (kind < std::size(kMethods)) {
    // Frames of a default connection hold 16 KiB.
    victim.Send(Call(kMethods[kind], input.substr(0, 16000)));
  } else if (kind == std::size(kMethods)) {
    victim.Send(std::string(kPreface) + std::string(input));
  } else {
    victim.Send(input);
  }
}

std::vector<std::string> HttpSeeds() {
  v1::RegisterRequest registration;
  registration.set_name("rollout-0");
  v1::PushRequest push;
  push.mutable_identity()->set_producer_id(1);
  push.mutable_identity()->set_epoch(1);
  v1::PushChunk* chunk = push.add_chunks();
  chunk->set_sequence(1);
  chunk->set_data(FakeTrajectory(1, 1, 0, {}).SerializeAsString());
  chunk->set_total_bytes(chunk->data().size());
  chunk->set_last(true);
  const std::string ping = Frame(6, 0, 0, "12345678");
  return {std::string(1, '\0') + registration.SerializeAsString(),
          "\2" + push.SerializeAsString(),
          "\4",
          "\6" + std::string("\x08\x01\x10\x01", 4),
          "\14",
          "\15" + Frame(4, 0, 0, std::string("\0\3\0\0\0\x64", 6)) + ping + Frame(8, 0, 0, std::string("\0\1\0\0", 4)),
          "\15" + Frame(4, 0, 0, "") + Frame(3, 0, 1, std::string(4, '\0')) + Frame(7, 0, 0, std::string(8, '\0')),
          "\xff" + Call("Status", ""),
          "\xffGET / HTTP/1.1\r\nHost: queue\r\n\r\n"};
}

}  // namespace

std::vector<FuzzTarget> HttpFuzzTargets() { return {{"http2", RunHttp, HttpSeeds}}; }

}  // namespace leeway
