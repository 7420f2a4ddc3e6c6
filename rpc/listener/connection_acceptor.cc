#include "rpc/listener/connection_acceptor.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/cpu_time.h"
#include "base/logging.h"
#include "rpc/listener/connection_table.h"
#include "rpc/listener/first_bytes.h"
#include "rpc/listener/peer.h"
#include "rpc/listener/plaintext_refusal.h"

namespace leeway {
namespace {

// Without descriptors nothing can be accepted, and the listener stays readable: a pause instead of spinning.
constexpr absl::Duration kExhaustedPause = absl::Milliseconds(200);
constexpr int kAcceptsARound = 256;
constexpr absl::Duration kLogInterval = absl::Seconds(1);
constexpr int kUnauthenticated = 16;  // of gRPC

size_t HalfOfTheOpenFiles() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return static_cast<size_t>(files.rlim_cur / 2);
}

// How many bytes make the socket readable for poll.
void SetLowWater(int fd, int bytes) { setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)); }

// A refused stranger can come back at once and for ever: the log does not.
class RefusalLog {
 public:
  void Write(const std::string& address, const std::string& who, const std::string& cause, const std::string& why) {
    Line& line = lines_[cause];
    const MonotonicTime now = RealClock()->Now();
    if (line.count > 0 && now - line.last < kLogInterval) {
      ++line.left_out;
      return;
    }
    LEEWAY_LOG_WARNING("{} refused a connection of {}: {}{}", address, who, why,
                       line.left_out == 0 ? "" : absl::StrCat(" (and ", line.left_out, " more before it)"));
    ++line.count;
    line.last = now;
    line.left_out = 0;
  }

 private:
  struct Line {
    uint64_t count = 0;
    uint64_t left_out = 0;
    MonotonicTime last;
  };
  // By cause: a handful.
  std::map<std::string, Line> lines_;
};

}  // namespace

class ConnectionAcceptor::Loop {
 public:
  Loop(ListeningSocket socket, const Options& options, HandOver hand_over, int stop_fd)
      : socket_(std::move(socket)),
        options_(options),
        hand_over_(std::move(hand_over)),
        stop_fd_(stop_fd),
        address_(socket_.address().ToString()),
        table_(std::min(options.limits.max_connections, HalfOfTheOpenFiles()), options.limits.max_connections_per_peer,
               [](const ConnectionTable::Entry& entry) { return InodeOf(entry.fd) == entry.inode; }) {}

  ~Loop() {
    for (const Waiting& waiting : waiting_) close(waiting.fd);
    close(stop_fd_);
  }

  void Run();
  void Stop() {
    const uint64_t one = 1;
    // An eventfd that is full is readable too.
    if (write(stop_fd_, &one, sizeof(one)) < 0) return;
  }

 private:
  // A connection that has not shown yet what it speaks, or that is being told that it is the wrong language.
  struct Waiting {
    int fd = -1;
    uint64_t inode = 0;
    std::string name;
    MonotonicTime deadline;
    std::unique_ptr<PlaintextRefusal> refusal;
    // What of the refusal is not sent yet.
    std::string unsent;
  };

  void AcceptAll();
  void Admit(int fd);
  // True: look again when there is more (`is_readable`: poll says that there is). False: it was handed over or closed.
  bool Look(Waiting* waiting, bool is_readable);
  bool Talk(Waiting* waiting);
  void HandOverFrom(const Waiting& waiting) {
    SetLowWater(waiting.fd, 1);
    hand_over_(waiting.fd);
  }
  void Close(const Waiting& waiting) {
    table_.Remove(waiting.fd, waiting.inode);
    close(waiting.fd);
  }
  void Refuse(const std::string& who, const std::string& cause, const std::string& why) {
    log_.Write(address_, who, cause, why);
  }
  int PollTimeout() const;

  const ListeningSocket socket_;
  const Options options_;
  const HandOver hand_over_;
  const int stop_fd_;
  const std::string address_;
  ConnectionTable table_;
  RefusalLog log_;
  std::vector<Waiting> waiting_;
  // Descriptors ran out: not accepting until then.
  MonotonicTime exhausted_until_;
};

int ConnectionAcceptor::Loop::PollTimeout() const {
  const MonotonicTime now = RealClock()->Now();
  absl::Duration left = absl::InfiniteDuration();
  for (const Waiting& waiting : waiting_) left = std::min(left, waiting.deadline - now);
  if (exhausted_until_ > now) left = std::min(left, exhausted_until_ - now);
  if (left == absl::InfiniteDuration()) return -1;
  return static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(left) + 1));
}

void ConnectionAcceptor::Loop::Run() {
  SetThreadClass("rpc");
  std::vector<pollfd> polled;
  while (true) {
    polled.clear();
    polled.push_back({stop_fd_, POLLIN, 0});
    const bool accepts = exhausted_until_ <= RealClock()->Now();
    polled.push_back({accepts ? socket_.fd() : -1, POLLIN, 0});
    for (const Waiting& waiting : waiting_) {
      polled.push_back({waiting.fd, static_cast<int16_t>(POLLIN | (waiting.unsent.empty() ? 0 : POLLOUT)), 0});
    }
    if (poll(polled.data(), polled.size(), PollTimeout()) < 0 && errno != EINTR) {
      LEEWAY_LOG_ERROR("{} accepts no more connections: poll: {}", address_, std::strerror(errno));
      return;
    }
    if (polled[0].revents != 0) return;
    const MonotonicTime now = RealClock()->Now();
    size_t kept = 0;
    for (size_t i = 0; i < waiting_.size(); ++i) {
      Waiting& waiting = waiting_[i];
      bool stays = true;
      if (polled[2 + i].revents != 0) stays = Look(&waiting, /*is_readable=*/true);
      if (stays && waiting.deadline <= now) {
        if (waiting.refusal == nullptr) Refuse(waiting.name, "silent", "it said nothing that names a protocol in time");
        Close(waiting);
        stays = false;
      }
      if (stays && kept++ != i) waiting_[kept - 1] = std::move(waiting);
    }
    waiting_.resize(kept);
    if (polled[1].revents != 0) AcceptAll();
  }
}

void ConnectionAcceptor::Loop::AcceptAll() {
  // A round at a time: those that wait have their turn in between.
  for (int round = 0; round < kAcceptsARound; ++round) {
    const int fd = accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      Admit(fd);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      Refuse("somebody", "exhausted", std::strerror(errno));
      exhausted_until_ = RealClock()->Now() + kExhaustedPause;
    }
    return;
  }
}

void ConnectionAcceptor::Loop::Admit(int fd) {
  const Peer peer = PeerOf(fd);
  if (peer.key.empty()) {  // gone already
    close(fd);
    return;
  }
  if (!IsWelcome(peer, options_.own_uid)) {
    Refuse(peer.name, "user", absl::StrCat("only user ", options_.own_uid, " and root may use this socket"));
    close(fd);
    return;
  }
  const uint64_t inode = InodeOf(fd);
  std::string refusal;
  if (!table_.Add({fd, inode, peer.key}, &refusal)) {
    Refuse(peer.name, "limit", refusal);
    close(fd);
    return;
  }
  if (peer.is_unix) {
    hand_over_(fd);
    return;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  SetLowWater(fd, kPrefaceBytes);
  Waiting waiting{fd, inode, peer.name, RealClock()->Now() + options_.limits.handshake_timeout, nullptr, ""};
  // What a client has to say is usually there already.
  if (Look(&waiting, /*is_readable=*/false)) waiting_.push_back(std::move(waiting));
}

bool ConnectionAcceptor::Loop::Look(Waiting* waiting, bool is_readable) {
  if (waiting->refusal != nullptr) return Talk(waiting);
  char bytes[kPrefaceBytes];
  const ssize_t got = recv(waiting->fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) {
    Close(*waiting);
    return false;
  }
  switch (Recognise({bytes, static_cast<size_t>(got)})) {
    case Speech::kUnknown:
      // poll speaks up when all of a preface is there, or at the end of the stream.
      if (!is_readable) return true;
      Refuse(waiting->name, "garbage", "it sent the beginning of a protocol and no more");
      break;
    case Speech::kTls:
      if (options_.expects_tls) {
        HandOverFrom(*waiting);
        return false;
      }
      Refuse(waiting->name, "tls", "it speaks TLS and this port does not; security.* must be the same at both ends");
      break;
    case Speech::kHttp2:
      if (!options_.expects_tls) {
        HandOverFrom(*waiting);
        return false;
      }
      Refuse(waiting->name, "plaintext", "it speaks plaintext and this port wants TLS");
      waiting->refusal = std::make_unique<PlaintextRefusal>(
          kUnauthenticated,
          "this port speaks TLS and the call came in plaintext; set security.certificate, security.key and "
          "security.authority at the caller");
      waiting->unsent = waiting->refusal->Greeting();
      SetLowWater(waiting->fd, 1);
      return Talk(waiting);
    case Speech::kOther:
      Refuse(waiting->name, "garbage", "it speaks neither TLS nor HTTP/2");
      break;
  }
  Close(*waiting);
  return false;
}

bool ConnectionAcceptor::Loop::Talk(Waiting* waiting) {
  char bytes[4096];
  // A little at a time: others wait too.
  const ssize_t got = recv(waiting->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
  bool over = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  if (got > 0) waiting->unsent += waiting->refusal->OnBytes({bytes, static_cast<size_t>(got)});
  if (!over && !waiting->unsent.empty()) {
    const ssize_t sent = send(waiting->fd, waiting->unsent.data(), waiting->unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) waiting->unsent.erase(0, static_cast<size_t>(sent));
    over = sent < 0 && errno != EAGAIN && errno != EINTR;
  }
  if (over || (waiting->refusal->is_over() && waiting->unsent.empty())) {
    Close(*waiting);
    return false;
  }
  return true;
}

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Start(ListeningSocket socket,
                                                                              const Options& options,
                                                                              HandOver hand_over) {
  const int stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_fd < 0) return absl::UnavailableError(absl::StrCat("eventfd: ", std::strerror(errno)));
  return std::unique_ptr<ConnectionAcceptor>(
      new ConnectionAcceptor(std::make_unique<Loop>(std::move(socket), options, std::move(hand_over), stop_fd)));
}

ConnectionAcceptor::ConnectionAcceptor(std::unique_ptr<Loop> loop)
    : loop_(std::move(loop)), thread_([raw = loop_.get()] { raw->Run(); }) {}

ConnectionAcceptor::~ConnectionAcceptor() {
  loop_->Stop();
  thread_.join();
}

}  // namespace leeway
