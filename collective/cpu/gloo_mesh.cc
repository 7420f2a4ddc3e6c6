#include "collective/cpu/gloo_mesh.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "collective/cpu/rank_address.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/tcp/device.h"

namespace leeway {
namespace {

// Waits end by message, broken connection or abort, never by Gloo's own limit, which closes everything unannounced.
constexpr std::chrono::milliseconds kUnlimited = std::chrono::hours(24 * 365);
// How long a failed rank waits for the store before it reports what it saw itself.
constexpr absl::Duration kStoreTimeout = absl::Seconds(5);
// Gloo waits for a connection five times as long as it is told.
constexpr int kGlooConnectFactor = 5;
constexpr uint64_t kFarewellSlot = 0;
// How much longer than a timeout a rank waits for others to say that they wait too.
constexpr int kWaitersPart = 4;
constexpr absl::Duration kWaitersTime = absl::Seconds(1);

std::string EncodeFailure(const absl::Status& status) {
  return absl::StrCat(static_cast<int>(status.code()), " ", status.message());
}

absl::Status DecodeFailure(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(' ', 1));
  int code = 0;
  if (!absl::SimpleAtoi(parts.first, &code) || code == 0) return absl::InternalError(text);
  return absl::Status(static_cast<absl::StatusCode>(code), parts.second);
}

// Gloo writes to sockets that a peer may have closed.
void IgnoreBrokenPipes() {
  struct sigaction current = {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

absl::Status CheckOptions(const GlooOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(absl::StrCat(options.name, ": rank ", options.rank, " of ", options.size));
  }
  if (options.size > 1 && options.store == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(options.name, ": no rendezvous store for ", options.size, " ranks"));
  }
  if (options.timeout <= absl::ZeroDuration() || options.rendezvous_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(options.name, ": timeouts must be positive"));
  }
  return absl::OkStatus();
}

}  // namespace

GlooMesh::GlooMesh(const GlooOptions& options) : options_(options) {}

absl::StatusOr<std::shared_ptr<GlooMesh>> GlooMesh::Connect(const GlooOptions& options) {
  LEEWAY_RETURN_IF_ERROR(CheckOptions(options));
  std::shared_ptr<GlooMesh> mesh(new GlooMesh(options));
  if (options.size > 1) {
    IgnoreBrokenPipes();
    absl::Status status;
    try {
      status = mesh->ConnectPairs();
    } catch (const std::exception& error) {
      status = absl::UnavailableError(absl::StrCat(options.name, ": rank ", options.rank, ": ", error.what()));
    }
    // The others will miss this rank in turn, and shall name who was missing first. Its connections close afterwards.
    if (absl::IsUnavailable(status)) status = mesh->Agree(status);
    LEEWAY_RETURN_IF_ERROR(status);
  }
  mesh->StartThreads();
  return mesh;
}

absl::Status GlooMesh::ConnectPairs() {
  const Deadline deadline = Deadline::After(options_.rendezvous_timeout);
  gloo::transport::tcp::attr attributes;
  LEEWAY_ASSIGN_OR_RETURN(attributes.hostname, InterfaceAddress(options_.interface));
  device_ = gloo::transport::tcp::CreateDevice(attributes);
  context_ = device_->createContext(options_.rank, options_.size);
  context_->setTimeout(std::max(absl::ToChronoMilliseconds(options_.rendezvous_timeout) / kGlooConnectFactor,
                                std::chrono::milliseconds(1)));
  RankAddresses own{options_.size, absl::StrCat(getpid(), "/", absl::ToUnixNanos(absl::Now())), {}};
  for (int peer = 0; peer < options_.size; ++peer) {
    own.addresses.emplace_back();
    if (peer == options_.rank) continue;
    const std::vector<char> address = context_->createPair(peer)->address().bytes();
    own.addresses.back().assign(address.begin(), address.end());
  }

  const auto key = [this](int rank) { return absl::StrCat(options_.generation, "/rank/", rank); };
  LEEWAY_ASSIGN_OR_RETURN(const std::string held, options_.store->SetOnce(key(options_.rank), own.Encode(), deadline));
  if (held != own.Encode()) {
    return absl::AlreadyExistsError(absl::StrCat(options_.name, ": another process is or was rank ", options_.rank,
                                                 " of generation ", options_.generation));
  }
  std::vector<std::string> addresses(static_cast<size_t>(options_.size));
  std::vector<int> missing;
  for (int peer = 0; peer < options_.size; ++peer) {
    absl::StatusOr<std::string> text = options_.store->Get(key(peer), deadline);
    if (text.status().code() == absl::StatusCode::kDeadlineExceeded) {
      missing.push_back(peer);
      continue;
    }
    LEEWAY_RETURN_IF_ERROR(text.status());
    LEEWAY_ASSIGN_OR_RETURN(const RankAddresses addresses_of_peer, RankAddresses::Decode(*text));
    if (addresses_of_peer.size != options_.size ||
        addresses_of_peer.addresses.size() != static_cast<size_t>(options_.size)) {
      return absl::InvalidArgumentError(absl::StrCat(options_.name, ": rank ", peer, " is one of ",
                                                     addresses_of_peer.size, " ranks, rank ", options_.rank, " one of ",
                                                     options_.size));
    }
    addresses[static_cast<size_t>(peer)] = addresses_of_peer.addresses[static_cast<size_t>(options_.rank)];
  }
  if (!missing.empty()) {
    return absl::DeadlineExceededError(absl::StrCat(options_.name, ": rendezvous ", options_.generation, ": ",
                                                    DescribeRanks(missing), " did not come within ",
                                                    absl::FormatDuration(options_.rendezvous_timeout)));
  }
  farewell_bytes_.resize(2 * addresses.size());
  farewells_in_.resize(addresses.size());
  farewells_out_.resize(addresses.size());
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer == options_.rank) continue;
    const size_t p = static_cast<size_t>(peer);
    farewells_in_[p] = context_->createUnboundBuffer(&farewell_bytes_[2 * p], 1);
    farewells_out_[p] = context_->createUnboundBuffer(&farewell_bytes_[2 * p + 1], 1);
    try {
      context_->getPair(peer)->connect(std::vector<char>(addresses[p].begin(), addresses[p].end()));
      farewells_in_[p]->recv(peer, kFarewellSlot);
    } catch (const std::exception& error) {
      return absl::UnavailableError(absl::StrCat(options_.name, ": rendezvous ", options_.generation, ": rank ", peer,
                                                 " is gone (", error.what(), ")"));
    }
  }
  return absl::OkStatus();
}

void GlooMesh::StartThreads() {
  monitor_ = std::thread([this] { MonitorLoop(); });
  if (options_.size > 1) watcher_ = std::thread([this] { WatcherLoop(); });
}

GlooMesh::~GlooMesh() {
  if (watcher_.joinable()) SayFarewell();
  {
    MutexLock lock(&mutex_);
    is_ending_ = true;
    for (const std::unique_ptr<Buffer>& farewell : farewells_in_) {
      if (farewell != nullptr) farewell->abortWaitRecv();
    }
    changed_.NotifyAll();
  }
  if (monitor_.joinable()) monitor_.join();
  if (watcher_.joinable()) watcher_.join();
}

void GlooMesh::SayFarewell() {
  try {
    for (int peer = 0; peer < options_.size; ++peer) {
      if (peer != options_.rank) farewells_out_[static_cast<size_t>(peer)]->send(peer, kFarewellSlot);
    }
  } catch (const std::exception&) {
    return;  // A connection is broken: nobody waits for farewells any more.
  }
  {
    const Deadline deadline = Deadline::After(options_.timeout);
    MutexLock lock(&mutex_);
    while (!all_have_left_ && cause_.ok()) {
      if (deadline.HasPassed()) {
        LEEWAY_LOG_WARNING("{}: rank {} ends while other ranks have been at work for {}", options_.name, options_.rank,
                           absl::FormatDuration(options_.timeout));
        return;
      }
      changed_.WaitUntil(&mutex_, deadline);
    }
    if (!cause_.ok()) return;
  }
  try {
    for (const std::unique_ptr<Buffer>& farewell : farewells_out_) {
      if (farewell != nullptr) farewell->waitSend(absl::ToChronoMilliseconds(kStoreTimeout));
    }
  } catch (const std::exception&) {
    // That peer has closed already, which it does only after it has all it waits for.
  }
}

void GlooMesh::WatcherLoop() {
  for (int step = 1; step < options_.size; ++step) {
    const int peer = (options_.rank + step) % options_.size;
    try {
      if (!farewells_in_[static_cast<size_t>(peer)]->waitRecv(kUnlimited)) return;
    } catch (const std::exception&) {
      MutexLock lock(&mutex_);
      if (cause_.ok()) cause_ = LostPeer(peer);
      changed_.NotifyAll();
      return;
    }
  }
  MutexLock lock(&mutex_);
  all_have_left_ = true;
  changed_.NotifyAll();
}

absl::Status GlooMesh::LostPeer(int peer) const {
  for (const Active& active : active_) {
    if (std::find(active.peers.begin(), active.peers.end(), peer) != active.peers.end()) {
      return LostRanksError(active.operation->group, *active.operation->tag, {peer}, "");
    }
  }
  return absl::UnavailableError(absl::StrCat(options_.name, ": rank ", peer, " is gone"));
}

void GlooMesh::MonitorLoop() {
  for (;;) {
    absl::Status cause;
    {
      MutexLock lock(&mutex_);
      while (cause_.ok() || !failure_.ok()) {
        if (is_ending_) return;
        Deadline nearest = Deadline::Infinite();
        for (Active& active : active_) {
          if (active.has_timed_out) continue;
          if (active.operation->deadline.HasPassed()) {
            active.has_timed_out = true;
            AbortWaits(active);
          } else if (active.operation->deadline.expiry() < nearest.expiry()) {
            nearest = active.operation->deadline;
          }
        }
        changed_.WaitUntil(&mutex_, nearest);
      }
      cause = cause_;
    }
    EndAll(cause);
  }
}

std::vector<int> GlooMesh::WithoutWaiting(const std::vector<int>& missing) {
  const Deadline deadline = Deadline::After(std::min(options_.timeout / kWaitersPart, kWaitersTime));
  const auto key = [this](int rank) { return absl::StrCat(options_.generation, "/misses/", rank); };
  if (!options_.store->SetOnce(key(options_.rank), absl::StrJoin(missing, " "), deadline).ok()) return missing;
  std::set<int> missed(missing.begin(), missing.end());
  std::set<int> waiting = {options_.rank};
  for (int rank = 0; rank < options_.size; ++rank) {
    if (rank == options_.rank) continue;
    const absl::StatusOr<std::string> text = options_.store->Get(key(rank), deadline);
    if (!text.ok()) continue;
    waiting.insert(rank);
    for (const absl::string_view word : absl::StrSplit(*text, ' ')) {
      int other = 0;
      if (absl::SimpleAtoi(word, &other)) missed.insert(other);
    }
  }
  std::vector<int> result;
  std::set_difference(missed.begin(), missed.end(), waiting.begin(), waiting.end(), std::back_inserter(result));
  // They wait for one another: they call different operations.
  return result.empty() ? missing : result;
}

absl::Status GlooMesh::Agree(const absl::Status& cause) {
  const absl::StatusOr<std::string> held =
      options_.store->SetOnce(FailureKey(), EncodeFailure(cause), Deadline::After(kStoreTimeout));
  return held.ok() ? DecodeFailure(*held) : cause;
}

void GlooMesh::EndAll(const absl::Status& cause) {
  absl::Status agreed = cause;
  if (options_.size > 1) {
    // Before any connection closes: who sees that one finds the reason.
    agreed = Agree(cause);
    for (int peer = 0; peer < options_.size; ++peer) {
      if (peer != options_.rank) context_->getPair(peer)->close();
    }
  }
  // From here on nobody touches a caller's memory.
  MutexLock lock(&mutex_);
  failure_ = agreed;
  for (const Active& active : active_) AbortWaits(active);
  for (const std::unique_ptr<Buffer>& farewell : farewells_in_) {
    if (farewell != nullptr) farewell->abortWaitRecv();
  }
  changed_.NotifyAll();
}

void GlooMesh::AbortWaits(const Active& active) {
  for (const std::unique_ptr<Buffer>& buffer : active.receives) buffer->abortWaitRecv();
  for (const std::unique_ptr<Buffer>& buffer : active.sends) buffer->abortWaitSend();
}

void GlooMesh::Fail(const absl::Status& error) {
  MutexLock lock(&mutex_);
  if (cause_.ok()) cause_ = error;
  changed_.NotifyAll();
}

absl::Status GlooMesh::Failure() const {
  MutexLock lock(&mutex_);
  // The monitor is at work on it; the store gets kStoreTimeout.
  while (!cause_.ok() && failure_.ok()) changed_.WaitUntil(&mutex_, Deadline::Infinite());
  return failure_;
}

absl::Status GlooMesh::Move(Active* active, absl::Span<const Outgoing> outgoing, absl::Span<const Incoming> incoming,
                            const Frames& frames, int* peer) {
  for (size_t i = 0; i < incoming.size(); ++i) {
    *peer = incoming[i].peer;
    active->receives[i]->recv(*peer, incoming[i].slot);
  }
  for (size_t i = 0; i < outgoing.size(); ++i) {
    *peer = outgoing[i].peer;
    active->sends[i]->send(*peer, outgoing[i].slot);
  }
  for (size_t i = 0; i < incoming.size(); ++i) {
    if (i == frames.count && i > 0) LEEWAY_RETURN_IF_ERROR(frames.check());
    *peer = incoming[i].peer;
    if (!active->receives[i]->waitRecv(kUnlimited)) return absl::CancelledError();
  }
  if (frames.count == incoming.size() && frames.count > 0) LEEWAY_RETURN_IF_ERROR(frames.check());
  for (size_t i = 0; i < outgoing.size(); ++i) {
    *peer = outgoing[i].peer;
    if (!active->sends[i]->waitSend(kUnlimited)) return absl::CancelledError();
  }
  return absl::OkStatus();
}

absl::Status GlooMesh::Transfer(const Operation& operation, absl::Span<const Outgoing> outgoing,
                                absl::Span<const Incoming> incoming, const Frames& frames) {
  if (outgoing.empty() && incoming.empty()) return Failure();
  std::list<Active> own(1);
  Active* const active = &own.front();
  active->operation = &operation;
  for (const Incoming& message : incoming) {
    active->receives.push_back(context_->createUnboundBuffer(message.bytes.data(), message.bytes.size()));
    active->peers.push_back(message.peer);
  }
  for (const Outgoing& message : outgoing) {
    // Gloo does not write to what it sends.
    active->sends.push_back(
        context_->createUnboundBuffer(const_cast<std::byte*>(message.bytes.data()), message.bytes.size()));
    active->peers.push_back(message.peer);
  }
  const std::list<Active>::iterator place = own.begin();
  bool is_listed = false;
  {
    MutexLock lock(&mutex_);
    if (cause_.ok()) {
      active_.splice(active_.end(), own);
      is_listed = true;
      changed_.NotifyAll();
    }
  }
  if (!is_listed) return Failure();

  int peer = -1;
  absl::Status status;
  bool is_broken = false;
  try {
    status = Move(active, outgoing, incoming, frames, &peer);
  } catch (const std::exception&) {
    is_broken = true;
  }
  if (is_broken || !status.ok()) {
    std::vector<int> missing;
    for (size_t i = 0; i < frames.count; ++i) {
      if (!frames.has_arrived(incoming[i].bytes)) missing.push_back(incoming[i].peer);
    }
    if (missing.empty()) missing.push_back(peer);
    bool is_first = false;
    {
      MutexLock lock(&mutex_);
      is_first = cause_.ok() && active->has_timed_out;
    }
    if (is_first) missing = WithoutWaiting(missing);
    {
      MutexLock lock(&mutex_);
      if (cause_.ok()) {
        if (is_broken) {
          cause_ = LostRanksError(operation.group, *operation.tag, {peer}, "");
        } else if (!absl::IsCancelled(status)) {
          cause_ = status;
        } else if (active->has_timed_out) {
          cause_ = MissingRanksError(operation.group, *operation.tag, missing, operation.timeout);
        }
      }
      changed_.NotifyAll();
    }
    status = Failure();
  }
  // After a failure only now: until it is resolved Gloo may be writing into the caller's memory.
  MutexLock lock(&mutex_);
  active_.erase(place);
  return status;
}

}  // namespace leeway
