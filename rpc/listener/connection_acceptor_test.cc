// The door alone, with plain sockets and no gRPC behind it.

#include "rpc/listener/connection_acceptor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rpc/listener/peer.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

constexpr int kPatienceMs = 20'000;
const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const std::string kHello("\x16\x03\x01\x00\x50\x01", 6);

class AcceptorTest : public ::testing::Test {
 protected:
  AcceptorTest() {
    char name[] = "/tmp/leeway_door_XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~AcceptorTest() override {
    acceptor_.reset();
    for (const int fd : handed_over_) close(fd);
    for (const int fd : clients_) close(fd);
    std::filesystem::remove_all(folder_);
  }

  void Start(const std::string& address, ConnectionAcceptor::Options options = {.own_uid = geteuid()}) {
    ListeningSocket socket = ListeningSocket::Open(ParseRpcAddress(address).value()).value();
    address_ = socket.address();
    acceptor_ = ConnectionAcceptor::Start(std::move(socket), options, [this](int fd) {
                  MutexLock lock(&mutex_);
                  handed_over_.push_back(fd);
                  changed_.NotifyAll();
                }).value();
  }
  int Connect() {
    const bool is_unix = address_.is_unix();
    const int fd = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    clients_.push_back(fd);
    sockaddr_un file{};
    file.sun_family = AF_UNIX;
    address_.unix_path.copy(file.sun_path, sizeof(file.sun_path) - 1);
    sockaddr_in tcp{};
    tcp.sin_family = AF_INET;
    tcp.sin_port = htons(static_cast<uint16_t>(address_.port));
    tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(is_unix ? connect(fd, reinterpret_cast<sockaddr*>(&file), sizeof(file))
                      : connect(fd, reinterpret_cast<sockaddr*>(&tcp), sizeof(tcp)),
              0);
    return fd;
  }
  int Say(const std::string& bytes) {
    const int fd = Connect();
    EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    return fd;
  }
  // What the server says before it hangs up; "(waits)" when it does not.
  std::string ReadToTheEnd(int fd) {
    std::string all;
    while (true) {
      pollfd polled{fd, POLLIN, 0};
      if (poll(&polled, 1, kPatienceMs) == 0) return all + "(waits)";
      char bytes[4096];
      const ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
      if (got <= 0) return all;
      all.append(bytes, static_cast<size_t>(got));
    }
  }
  size_t HandedOver(size_t wanted) {
    const Deadline deadline = Deadline::After(absl::Milliseconds(kPatienceMs));
    MutexLock lock(&mutex_);
    while (handed_over_.size() < wanted && !deadline.HasPassed()) changed_.WaitUntil(&mutex_, deadline);
    return handed_over_.size();
  }

  std::string folder_;
  RpcAddress address_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
  std::vector<int> clients_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<int> handed_over_ LEEWAY_GUARDED_BY(mutex_);
};

TEST_F(AcceptorTest, ASocketFileIsForThisUserFromItsFirstMoment) {
  Start("unix:" + folder_ + "/s");
  struct stat info = {};
  ASSERT_EQ(stat((folder_ + "/s").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  Connect();
  EXPECT_EQ(HandedOver(1), 1u);
  acceptor_.reset();
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/s"));
}

TEST_F(AcceptorTest, AnotherUsersProcessIsShownOut) {
  // To a server of the next user this process is a stranger, unless it is root's, who may always.
  Start("unix:" + folder_ + "/s", {.own_uid = geteuid() + 1});
  const int fd = Connect();
  if (geteuid() == 0) {
    EXPECT_EQ(HandedOver(1), 1u);
  } else {
    EXPECT_EQ(ReadToTheEnd(fd), "");
  }
  EXPECT_TRUE(IsWelcome({.is_unix = true, .uid = 7}, 7));
  EXPECT_TRUE(IsWelcome({.is_unix = true, .uid = 0}, 7));
  EXPECT_FALSE(IsWelcome({.is_unix = true, .uid = 8}, 7));
  EXPECT_FALSE(IsWelcome({.is_unix = true, .uid = 7}, 0));
  EXPECT_TRUE(IsWelcome({.is_unix = false, .uid = 8}, 7));
}

TEST_F(AcceptorTest, PlaintextAndTlsGoToTheirPorts) {
  Start("127.0.0.1:0");
  Say(kPreface);
  EXPECT_EQ(HandedOver(1), 1u);
  EXPECT_EQ(ReadToTheEnd(Say(kHello + kPreface)), "");
  Start("127.0.0.1:0", {.expects_tls = true});
  Say(kHello + kPreface);
  EXPECT_EQ(HandedOver(2), 2u);
  // Nothing was taken out of the socket.
  char bytes[6];
  MutexLock lock(&mutex_);
  EXPECT_EQ(recv(handed_over_[1], bytes, sizeof(bytes), 0), 6);
  EXPECT_EQ(std::string(bytes, 6), kHello);
}

TEST_F(AcceptorTest, APlaintextCallerOfATlsPortIsTold) {
  Start("127.0.0.1:0", {.expects_tls = true});
  // Headers of a call, and then silence: shut down for writing, so that the answer is all there is.
  const int fd = Say(kPreface + std::string("\0\0\0\4\0\0\0\0\0\0\0\1\1\5\0\0\0\1x", 19));
  shutdown(fd, SHUT_WR);
  EXPECT_THAT(ReadToTheEnd(fd), HasSubstr("this port speaks TLS and the call came in plaintext"));
}

TEST_F(AcceptorTest, GarbageAndSilenceAreHungUpOn) {
  Start("127.0.0.1:0", {.limits = {.handshake_timeout = absl::Milliseconds(50)}});
  EXPECT_EQ(ReadToTheEnd(Say("GET / HTTP/1.1\r\nHost: x\r\n\r\n")), "");
  EXPECT_EQ(ReadToTheEnd(Say(std::string(1000, '\xff'))), "");
  EXPECT_EQ(ReadToTheEnd(Say("PRI *")), "");
  EXPECT_EQ(ReadToTheEnd(Connect()), "");
  const int half = Say("PRI *");
  shutdown(half, SHUT_WR);
  EXPECT_EQ(ReadToTheEnd(half), "");
  // Somebody else is served all the while.
  Say(kPreface);
  EXPECT_EQ(HandedOver(1), 1u);
}

TEST_F(AcceptorTest, APrefaceMayComeInPieces) {
  Start("127.0.0.1:0");
  const int fd = Say(kPreface.substr(0, 5));
  for (const char byte : kPreface.substr(5)) ASSERT_EQ(send(fd, &byte, 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(HandedOver(1), 1u);
}

TEST_F(AcceptorTest, OnePeerGetsSoManyConnectionsAndNoMore) {
  Start("127.0.0.1:0", {.limits = {.max_connections = 8, .max_connections_per_peer = 3}});
  for (int i = 0; i < 3; ++i) Say(kPreface);
  EXPECT_EQ(HandedOver(3), 3u);
  EXPECT_EQ(ReadToTheEnd(Say(kPreface)), "");
  {
    // One of them ends at the server.
    MutexLock lock(&mutex_);
    close(handed_over_.back());
    handed_over_.pop_back();
  }
  Say(kPreface);
  EXPECT_EQ(HandedOver(3), 3u);
}

TEST(ListeningSocketTest, NothingOfOthersIsReplacedOrTrusted) {
  char name[] = "/tmp/leeway_door_XXXXXX";
  const std::string folder = mkdtemp(name);
  const auto open = [&](const std::string& path) {
    return ListeningSocket::Open(ParseRpcAddress("unix:" + path).value()).status();
  };
  std::ofstream(folder + "/file") << "mine";
  EXPECT_THAT(std::string(open(folder + "/file").message()), HasSubstr("exists and is no socket"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/file"));
  std::filesystem::create_directory(folder + "/shared");
  ASSERT_EQ(chmod((folder + "/shared").c_str(), 0777), 0);
  EXPECT_THAT(std::string(open(folder + "/shared/s").message()), HasSubstr("mkdir -m 700"));
  ASSERT_EQ(chmod((folder + "/shared").c_str(), 01777), 0);
  EXPECT_TRUE(open(folder + "/shared/s").ok());
  EXPECT_TRUE(absl::IsUnavailable(open(folder + "/absent/s")));
  std::filesystem::remove_all(folder);
}

TEST(ListeningSocketTest, UnknownHostsAreSaid) {
  const absl::Status refused = ListeningSocket::Open(ParseRpcAddress("no-such-host.invalid:1").value()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("no-such-host.invalid"));
  // An address of another machine (of the range kept for documentation).
  EXPECT_TRUE(absl::IsUnavailable(ListeningSocket::Open(ParseRpcAddress("192.0.2.1:1").value()).status()));
}

}  // namespace
}  // namespace leeway
