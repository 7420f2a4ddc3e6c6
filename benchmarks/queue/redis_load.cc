#include "benchmarks/queue/redis_load.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "benchmarks/queue/child_process.h"
#include "benchmarks/queue/figures.h"
#include "benchmarks/queue/real_trajectory.h"

namespace leeway {
namespace {

std::string Command(const std::vector<absl::string_view>& words) {
  std::string command = absl::StrCat("*", words.size(), "\r\n");
  for (absl::string_view word : words) absl::StrAppend(&command, "$", word.size(), "\r\n", word, "\r\n");
  return command;
}

void Fail(absl::string_view what) {
  MustSucceed(
      absl::InternalError(absl::StrCat("redis: ", what, errno != 0 ? absl::StrCat(" (", strerror(errno), ")") : "")));
}

class Connection {
 public:
  explicit Connection(const std::string& path) {
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    path.copy(name.sun_path, sizeof(name.sun_path) - 1);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
  }
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool connected() const { return connected_; }
  int fd() const { return fd_; }

  void WriteAll(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = write(fd_, bytes.data(), bytes.size());
      if (written <= 0) Fail("write");
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }
  // More bytes at the end of `buffer_`; blocks.
  void ReadSome() {
    if (begin_ == buffer_.size()) {
      begin_ = 0;
      buffer_.clear();
    }
    const size_t old = buffer_.size();
    buffer_.resize(old + (1 << 18));
    const ssize_t got = read(fd_, buffer_.data() + old, 1 << 18);
    if (got <= 0) Fail("the server has closed the connection");
    buffer_.resize(old + static_cast<size_t>(got));
  }
  // One reply; strings at any depth go to `strings`, in order. Blocks.
  void ReadReply(std::vector<std::string>* strings) {
    const std::string line = ReadLine();
    int64_t number = 0;
    switch (line[0]) {
      case '*':
        if (!absl::SimpleAtoi(line.substr(1), &number)) Fail(line);
        for (int64_t i = 0; i < number; ++i) ReadReply(strings);
        return;
      case '$':
        if (!absl::SimpleAtoi(line.substr(1), &number)) Fail(line);
        if (number < 0) return;
        while (buffer_.size() - begin_ < static_cast<size_t>(number) + 2) ReadSome();
        strings->emplace_back(buffer_, begin_, static_cast<size_t>(number));
        begin_ += static_cast<size_t>(number) + 2;
        return;
      case '-':
        errno = 0;
        Fail(line);
        return;
      default:
        return;
    }
  }

 private:
  std::string ReadLine() {
    while (true) {
      const size_t end = buffer_.find("\r\n", begin_);
      if (end != std::string::npos) {
        std::string line = buffer_.substr(begin_, end - begin_);
        begin_ = end + 2;
        return line;
      }
      ReadSome();
    }
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string buffer_;
  size_t begin_ = 0;
};

class Server {
 public:
  Server(RedisSync sync, const std::string& folder) : socket_(folder + "/redis.socket") {
    std::vector<std::string> command = {"redis-server",
                                        "--port",
                                        "0",
                                        "--unixsocket",
                                        socket_,
                                        "--save",
                                        "",
                                        "--dir",
                                        folder,
                                        "--daemonize",
                                        "no",
                                        "--appendonly",
                                        sync == RedisSync::kAlways ? "yes" : "no"};
    if (sync == RedisSync::kAlways) command.insert(command.end(), {"--appendfsync", "always"});
    absl::StatusOr<ChildProcess> started = ChildProcess::Start(command, folder + "/redis.log");
    if (absl::IsNotFound(started.status())) {
      MustSucceed(absl::NotFoundError("no redis-server; install it with: apt-get install redis-server"));
    }
    process_ = std::make_unique<ChildProcess>(Must(std::move(started)));
    for (int i = 0; i < 1000; ++i) {
      if (Connection(socket_).connected()) return;
      usleep(10'000);
    }
    Fail("the server does not answer; see redis.log");
  }
  std::string const& socket() const { return socket_; }
  pid_t pid() const { return process_->pid(); }

 private:
  std::string socket_;
  std::unique_ptr<ChildProcess> process_;
};

// The producers: `depth` XADDs at a time on each connection, the next ones when all are answered.
class Producers {
 public:
  Producers(const std::string& socket, const LoadShape& shape) : shape_(shape) {
    for (int i = 0; i < shape.producers; ++i) {
      const std::string payload = RealTrajectory(shape.payload_bytes, 1 + static_cast<uint64_t>(i)).SerializeAsString();
      const std::string one = Command({"XADD", "s", "*", "t", payload});
      Lane lane;
      lane.connection = std::make_unique<Connection>(socket);
      fcntl(lane.connection->fd(), F_SETFL, O_NONBLOCK);
      for (uint64_t n = 0; n < shape.depth; ++n) lane.commands += one;
      lane.command_size = one.size();
      lanes_.push_back(std::move(lane));
    }
  }

  // Keeps at most `backlog` entries beyond `*consumed`.
  void Run(const std::atomic<uint64_t>* consumed, uint64_t backlog) {
    uint64_t sent = 0, answered = 0;
    std::vector<pollfd> polled(lanes_.size());
    while (answered < shape_.pushes) {
      bool is_held = false;
      for (size_t i = 0; i < lanes_.size(); ++i) {
        Lane& lane = lanes_[i];
        if (lane.open == 0 && sent < shape_.pushes) {
          const uint64_t next = std::min(shape_.depth, shape_.pushes - sent);
          is_held = sent + next > consumed->load(std::memory_order_relaxed) + backlog;
          if (!is_held) {
            lane.open = next;
            lane.unwritten = absl::string_view(lane.commands).substr(0, next * lane.command_size);
            lane.since = RealClock()->Now();
            sent += next;
          }
        }
        Write(&lane);
        polled[i] = {lane.connection->fd(), static_cast<int16_t>(POLLIN | (lane.unwritten.empty() ? 0 : POLLOUT)), 0};
      }
      poll(polled.data(), polled.size(), is_held ? 0 : 1000);
      for (size_t i = 0; i < lanes_.size(); ++i) {
        if ((polled[i].revents & POLLIN) != 0) answered += Read(&lanes_[i]);
      }
    }
  }
  std::vector<double> TakeLatencies() { return std::exchange(latencies_, {}); }

 private:
  struct Lane {
    std::unique_ptr<Connection> connection;
    std::string commands;
    size_t command_size = 0;
    absl::string_view unwritten;
    uint64_t open = 0;
    // Line ends seen of the answers: two each.
    uint64_t lines = 0;
    MonotonicTime since;
  };

  void Write(Lane* lane) {
    while (!lane->unwritten.empty()) {
      const ssize_t written = write(lane->connection->fd(), lane->unwritten.data(), lane->unwritten.size());
      if (written < 0 && errno == EAGAIN) return;
      if (written <= 0) Fail("write");
      lane->unwritten.remove_prefix(static_cast<size_t>(written));
    }
  }
  uint64_t Read(Lane* lane) {
    char buffer[1 << 14];
    const ssize_t got = read(lane->connection->fd(), buffer, sizeof(buffer));
    if (got <= 0) Fail("read");
    if (buffer[0] == '-') Fail(absl::string_view(buffer, static_cast<size_t>(got)));
    lane->lines += static_cast<uint64_t>(std::count(buffer, buffer + got, '\n'));
    uint64_t answered = 0;
    const double seconds = absl::ToDoubleSeconds(RealClock()->Now() - lane->since);
    while (lane->lines >= 2) {
      lane->lines -= 2;
      --lane->open;
      ++answered;
      latencies_.push_back(seconds);
    }
    return answered;
  }

  const LoadShape shape_;
  std::vector<Lane> lanes_;
  std::vector<double> latencies_;
};

// Reads everything in batches, acknowledges and deletes it.
void Consume(const std::string& socket, const LoadShape& shape, std::atomic<uint64_t>* consumed) {
  Connection connection(socket);
  const std::string read = Command(
      {"XREADGROUP", "GROUP", "g", "c", "COUNT", absl::StrCat(shape.batch()), "BLOCK", "1000", "STREAMS", "s", ">"});
  std::vector<std::string> strings, ignored;
  connection.WriteAll(read);
  uint64_t got = 0;
  while (got < shape.pushes) {
    strings.clear();
    connection.ReadReply(&strings);
    if (strings.empty()) {
      connection.WriteAll(read);
      continue;
    }
    // The stream's name, then for each entry its id, "t" and the payload.
    std::vector<absl::string_view> acknowledge = {"XACK", "s", "g"}, erase = {"XDEL", "s"};
    for (size_t i = 1; i + 2 < strings.size(); i += 3) {
      acknowledge.push_back(strings[i]);
      erase.push_back(strings[i]);
    }
    got += erase.size() - 2;
    connection.WriteAll(absl::StrCat(Command(acknowledge), Command(erase), got < shape.pushes ? read : ""));
    connection.ReadReply(&ignored);
    connection.ReadReply(&ignored);
    consumed->store(got, std::memory_order_relaxed);
  }
}

void MakeGroup(const std::string& socket) {
  Connection connection(socket);
  std::vector<std::string> ignored;
  connection.WriteAll(Command({"XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"}));
  connection.ReadReply(&ignored);
}

}  // namespace

LoadResult MeasureRedis(const LoadShape& shape, RedisSync sync, const std::string& folder) {
  LoadResult result;
  const double pushes = static_cast<double>(shape.pushes);
  const auto seconds_since = [](MonotonicTime start) { return absl::ToDoubleSeconds(RealClock()->Now() - start); };
  std::atomic<uint64_t> consumed{0};
  {
    TemporaryFolder own(folder);
    Server server(sync, own.path());
    MakeGroup(server.socket());
    Producers producers(server.socket(), shape);
    // The first round makes its memory warm, as that of MeasureQueue is.
    for (int round = 0; round < 2; ++round) {
      consumed = 0;
      producers.TakeLatencies();
      MonotonicTime start = RealClock()->Now();
      producers.Run(&consumed, shape.pushes);
      result.put = pushes / seconds_since(start);
      start = RealClock()->Now();
      Consume(server.socket(), shape, &consumed);
      result.get = pushes / seconds_since(start);
    }
    std::vector<double> latencies = producers.TakeLatencies();
    result.latency_p50 = Quantile(&latencies, 0.5);
    result.latency_p99 = Quantile(&latencies, 0.99);
  }
  TemporaryFolder own(folder);
  Server server(sync, own.path());
  MakeGroup(server.socket());
  Producers producers(server.socket(), shape);
  consumed = 0;
  const double server_cpu = ProcessCpuSeconds(server.pid());
  const double own_cpu = ProcessCpuSeconds(0);
  const MonotonicTime start = RealClock()->Now();
  std::thread thread([&] { producers.Run(&consumed, shape.steps_ahead * shape.batch()); });
  Consume(server.socket(), shape, &consumed);
  result.flow = pushes / seconds_since(start);
  thread.join();
  result.queue_cpu = (ProcessCpuSeconds(server.pid()) - server_cpu) / pushes;
  result.clients_cpu = (ProcessCpuSeconds(0) - own_cpu) / pushes;
  return result;
}

}  // namespace leeway
