#ifndef LEEWAY_WEIGHTSYNC_PUBLISH_PUBLISHER_STATE_H_
#define LEEWAY_WEIGHTSYNC_PUBLISH_PUBLISHER_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "leeway/v1/queue.pb.h"
#include "leeway/v1/weights.pb.h"
#include "weightsync/weight_publisher.h"

namespace leeway {

// Every decision of the publishing side, for all receivers. No threads, locks, sockets or clock: events and the time go
// in, messages to send come out of TakeOutgoing. Messages of one connection are in order; connections do not wait for
// each other. Not thread-safe.
//
// A publish:   idle ──StartPublish──► preparing ──all members verified or fenced──► prepared ──Commit | Abandon──► idle
//
// One receiver, in a publish (member) or alone (joiner: attached since, loads the newest committed version):
//
//   hello ─► waiting ─► announced ─ready─► transferring ─verified─► verified ─commit─► committed ─swapped─► swapped
//               ▲           │ refused, deadline  │ failed, deadline,      │ abandoned                          │
//               │           ▼                    ▼ wrong digest           ▼                                    │
//               │         fenced               fenced         waiting (unless it still holds the               │
//               └──────────────────── next publish ────────── committed version) ◄────────────────────────────┘
//
// A member whose connection breaks before the publish is prepared is fenced too. Fenced is final for an identity
// (producer id, epoch): it is closed, refused when it attaches again, and its successor starts with a full load, as
// every attach does. A connection that breaks outside a publish only leaves.
//
// Membership epoch: raised when a receiver joins or leaves and when a publish starts. A load is told the epoch of its
// announce, and an answer with another epoch is late and ignored.
class PublisherState {
 public:
  using ConnectionId = uint64_t;

  struct Options {
    uint64_t bucket_bytes = 1 << 20;
    // From connected to hello, and from announce to its answer.
    absl::Duration announce_timeout = absl::Seconds(10);
    // A joiner's load, from announce to verified.
    absl::Duration join_timeout = absl::Seconds(120);
    absl::Duration heartbeat_interval = absl::Seconds(1);
    absl::Duration heartbeat_timeout = absl::Seconds(15);
  };

  // The shared-memory object that holds the bytes of a publish, for members with that transport. Empty name: there is
  // none, they fetch.
  struct SharedMemoryOffer {
    std::string name;
    // Anybody may open it; otherwise only who has it mapped already can use it, and the others fetch.
    bool is_linked = false;
  };

  struct Outgoing {
    ConnectionId connection = 0;
    // Unset: only close.
    std::optional<v1::PublisherMessage> message;
    // End the stream after the message. No more events of this connection are needed.
    bool closes = false;
    // Of the receiver; empty before its hello. For logs.
    std::string name;
  };

  explicit PublisherState(const Options& options) : options_(options) {}

  // ---- connections --------------------------------------------------------------------------------------------------
  void OnOpened(MonotonicTime now, ConnectionId connection);
  void OnMessage(MonotonicTime now, ConnectionId connection, const v1::ReceiverMessage& message);
  void OnClosed(MonotonicTime now, ConnectionId connection, const std::string& reason);

  // ---- publishing ---------------------------------------------------------------------------------------------------
  // Whether this version may be published at all, before anything is hashed. INVALID_ARGUMENT: unset, or older than the
  // committed version. FAILED_PRECONDITION: another version is prepared and neither committed nor abandoned.
  absl::Status CheckVersion(const v1::WeightsVersion& weights) const;
  // True if this version is prepared or committed: publishing it again is only a question.
  bool IsRepeat(const v1::WeightsVersion& weights) const;
  // Announces to all attached receivers; those in the middle of a joiner's load change over. False: a repeat with the
  // same digest, and prepared() is the same answer as then. Errors: as CheckVersion; INVALID_ARGUMENT if the version
  // was published with other bytes.
  absl::StatusOr<bool> StartPublish(MonotonicTime now, v1::Manifest manifest, const SharedMemoryOffer& offer,
                                    MonotonicTime deadline);
  // True when no member of the started publish is still on its way.
  bool is_prepared() const { return phase_ != Phase::kPreparing; }
  // Of the last publish. REQUIRES: is_prepared().
  const PreparedPublish& prepared() const { return prepared_; }
  // Of the prepared version; anything else is ignored (false).
  bool Commit(MonotonicTime now, const v1::WeightsVersion& weights);
  bool Abandon(MonotonicTime now, const v1::WeightsVersion& weights, const std::string& reason);

  // ---- time ---------------------------------------------------------------------------------------------------------
  // Fences whoever is over its deadline.
  void OnTime(MonotonicTime now);
  // This process did not run for so long (stopped, starved): receivers were not silent, they were not heard. Their
  // silence starts later; the deadlines of a publish stay. Before OnTime.
  void ForgiveSilence(MonotonicTime now, absl::Duration pause);
  // When OnTime has something to do next.
  MonotonicTime next_deadline() const;

  // ---- output and questions -----------------------------------------------------------------------------------------
  std::vector<Outgoing> TakeOutgoing();
  int member_count() const { return static_cast<int>(receivers_.size()); }
  uint64_t membership_epoch() const { return membership_epoch_; }
  // Unset before the first commit.
  const std::optional<v1::Manifest>& committed() const { return committed_; }
  // What an identity may fetch at this moment: the version it is transferring. NOT_FOUND if it is not.
  absl::Status CheckFetch(const v1::WorkerIdentity& identity, const v1::WeightsVersion& weights) const;
  // Whether any attached receiver has the transport shared_memory, and whether all of those have proved a load through
  // the object of this name, so that they have it mapped.
  bool has_shared_memory_receivers() const;
  bool AllHaveMapped(const std::string& shared_memory_name) const;

 private:
  enum class Phase { kIdle, kPreparing, kPrepared };
  enum class Stage { kWaiting, kAnnounced, kTransferring, kVerified, kCommitted, kSwapped };

  struct Held {
    v1::WeightsVersion weights;
    std::string digest;
  };
  struct Receiver {
    v1::WorkerIdentity identity;
    std::string name;
    std::string transport;
    std::optional<v1::Manifest> expected;
    MonotonicTime last_heard;
    Stage stage = Stage::kWaiting;
    // Member of the publish in progress (or prepared); otherwise its load is a joiner's, of the committed version.
    bool is_member = false;
    // Of the announce of its load; and until when the stage must be over.
    uint64_t load_epoch = 0;
    MonotonicTime deadline = MonotonicTime::InfiniteFuture();
    bool is_relabel = false;
    // Loads through this object; empty: through Fetch.
    std::string loads_through;
    // Last told to swap in; and what it certainly holds, as far as known (a relabel needs that).
    std::optional<Held> offered;
    std::optional<Held> newest;
    // The last shared-memory objects that it loaded through, newest last.
    std::vector<std::string> mapped;
  };
  using Receivers = std::map<ConnectionId, Receiver>;

  static bool HasMapped(const Receiver& receiver, const std::string& shared_memory_name);
  const v1::Manifest& LoadOf(const Receiver& receiver) const;
  bool IsAnswer(const Receiver& receiver, const v1::ReceiverMessage& message, const v1::WeightsVersion& weights) const;
  void OnHello(MonotonicTime now, ConnectionId connection, const v1::ReceiverMessage::Hello& hello);
  // Why this hello cannot be accepted; empty if it can.
  std::string ReasonToRefuse(const v1::ReceiverMessage::Hello& hello) const;
  void OnReady(MonotonicTime now, Receivers::iterator receiver);
  void OnVerified(MonotonicTime now, Receivers::iterator receiver, const std::string& digest);
  void OnSwapped(Receiver* receiver, const v1::WeightsVersion& weights);

  void Announce(MonotonicTime now, ConnectionId connection, Receiver* receiver, MonotonicTime limit);
  void SendCommitted(ConnectionId connection, Receiver* receiver, const std::vector<v1::WorkerIdentity>& members);
  // Starts the loads of those who wait for the committed version.
  void ServeJoiners(MonotonicTime now);
  void Fence(MonotonicTime now, Receivers::iterator receiver, const std::string& reason);
  // Answers an unwanted connection and closes it.
  void Refuse(ConnectionId connection, const std::string& name, const std::string& reason);
  void SettleIfDone(MonotonicTime now);
  void Send(ConnectionId connection, uint64_t epoch, v1::PublisherMessage message);

  const Options options_;
  std::vector<Outgoing> outgoing_;
  uint64_t membership_epoch_ = 1;

  // Connected, no hello yet -> until when.
  std::map<ConnectionId, MonotonicTime> strangers_;
  Receivers receivers_;
  // Producer id -> highest fenced epoch, and why.
  std::map<uint64_t, std::pair<uint64_t, std::string>> fenced_epochs_;
  // Fenced since the last publish started: told with the next answer.
  std::vector<PreparedPublish::Fenced> fenced_between_;

  Phase phase_ = Phase::kIdle;
  // The publish in progress, prepared, or last ended.
  std::optional<v1::Manifest> publishing_;
  SharedMemoryOffer offer_;
  MonotonicTime started_;
  MonotonicTime publish_deadline_;
  PreparedPublish prepared_;
  std::optional<v1::Manifest> committed_;
  // What prepared() said of it.
  PreparedPublish committed_answer_;
};

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_PUBLISH_PUBLISHER_STATE_H_
