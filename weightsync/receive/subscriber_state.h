#ifndef LEEWAY_WEIGHTSYNC_RECEIVE_SUBSCRIBER_STATE_H_
#define LEEWAY_WEIGHTSYNC_RECEIVE_SUBSCRIBER_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "leeway/v1/queue.pb.h"
#include "leeway/v1/weights.pb.h"
#include "weightsync/receive/double_buffer.h"
#include "weightsync/weight_subscriber.h"

namespace leeway {

// Every decision of a receiver. No threads, locks, sockets or clock: messages, ends of loads and the time go in;
// answers come out of TakeOutgoing, and bytes to be loaded out of TakeLoad. Not thread-safe.
//
//   detached ─welcome─► idle ─announce─► announced ─transfer─► waiting for a buffer ─► loading ─proved─► verified
//   ─committed─► newer ─TakeNewer─► idle
//
// * announce: refused if names, shapes or dtypes differ, or if the version goes back within its lineage. Cancels a load
// and replaces a verified,
//   uncommitted shadow.
// * transfer: into the shadow. While both buffers are in use the load waits for the engine to release the older one; a
// committed version that
//   the engine has not taken gives way (versions may be skipped). A relabel takes the bytes already held and loads
//   nothing.
// * committed: only if this identity is in the list; otherwise the shadow is discarded. Or NoteCommitted: the queue's
// word, with the same
//   version and digest, counts as much.
// * abandoned, refused, failed, or the connection lost before the load was verified: the shadow is discarded. A
// verified shadow outlives the
//   connection, since the queue may have committed it.
// * fenced: everything but the version in use is discarded; no more messages until SetIdentity.
//
// Only bytes whose digest was proved (OnLoadFinished OK) are ever handed out. Messages that do not belong to the load
// at hand (version or membership epoch) are late or repeated, and ignored.
class SubscriberState {
 public:
  // Bytes to be fetched, verified and reported by OnLoadFinished.
  struct Load {
    uint64_t id = 0;
    v1::Manifest manifest;
    v1::PublisherMessage::Transfer transfer;
    std::shared_ptr<std::byte> buffer;
    MonotonicTime deadline;
  };

  // `expected`: names, shapes, dtypes. `buffers` must outlive this and hold expected.total_bytes() each.
  SubscriberState(const v1::Manifest& expected, DoubleBuffer* buffers);

  // ---- connection ---------------------------------------------------------------------------------------------------
  // From now on this is me. A load or an uncommitted shadow of another identity is discarded.
  void SetIdentity(const v1::WorkerIdentity& identity);
  // A new control stream is open; earlier unsent answers are void.
  void OnConnected();
  void OnMessage(MonotonicTime now, const v1::PublisherMessage& message);
  void OnDisconnected();

  // ---- loading ------------------------------------------------------------------------------------------------------
  // The load to be started now, once.
  bool has_load() const;
  std::optional<Load> TakeLoad();
  bool IsWanted(uint64_t load_id) const;
  // OK: the buffer holds the announced bytes, proved by digest. Late results are ignored.
  void OnLoadFinished(uint64_t load_id, const absl::Status& status);
  // A buffer may have come free.
  void OnBufferReleased();
  // Gives up a load that is over its deadline.
  void OnTime(MonotonicTime now);
  MonotonicTime next_deadline() const;

  // ---- the engine's side, see WeightSubscriber ----
  bool has_newer() const { return newer_.has_value(); }
  std::optional<CommittedWeights> TakeNewer();
  void NoteCommitted(const v1::WeightsVersion& weights, const std::string& digest);
  void ReportSwapped(const v1::WeightsVersion& weights, absl::Duration took);

  // ---- output and questions ----
  std::vector<v1::ReceiverMessage> TakeOutgoing();
  bool is_fenced() const { return is_fenced_; }
  const std::string& fence_reason() const { return fence_reason_; }
  // As Welcome said; zero before.
  absl::Duration heartbeat_interval() const { return heartbeat_interval_; }

 private:
  enum class Stage { kAnnounced, kWaitingForBuffer, kLoading };
  struct CurrentLoad {
    Load load;
    Stage stage = Stage::kAnnounced;
    uint64_t epoch = 0;
    // Given out by TakeLoad.
    bool is_taken = false;
  };
  struct Verified {
    CommittedWeights weights;
    uint64_t epoch = 0;
  };

  void OnAnnounce(MonotonicTime now, uint64_t epoch, const v1::PublisherMessage::Announce& announce);
  // Why this manifest cannot be loaded; empty if it can.
  std::string ReasonToRefuse(const v1::Manifest& manifest) const;
  void OnTransfer(MonotonicTime now, uint64_t epoch, const v1::PublisherMessage::Transfer& transfer);
  void OnCommitted(uint64_t epoch, const v1::PublisherMessage::Committed& committed);
  void OnAbandoned(uint64_t epoch, const v1::WeightsVersion& weights);
  void OnFenced(const std::string& reason);
  void TryStartLoad();
  void KeepVerified(const CurrentLoad& load, std::shared_ptr<const std::byte> bytes);
  void FailLoad(const std::string& reason);
  // The verified shadow is committed.
  void Promote();
  void Send(uint64_t epoch, v1::ReceiverMessage message);

  const v1::Manifest expected_;
  DoubleBuffer* const buffers_;
  v1::WorkerIdentity identity_;
  bool is_connected_ = false;
  bool is_fenced_ = false;
  std::string fence_reason_;
  absl::Duration heartbeat_interval_ = absl::ZeroDuration();
  uint64_t last_epoch_ = 0;
  uint64_t next_load_id_ = 1;
  std::vector<v1::ReceiverMessage> outgoing_;

  // At most one of load_ and verified_ is there: a new announce ends both.
  std::optional<CurrentLoad> load_;
  std::optional<Verified> verified_;
  // Committed, not yet taken.
  std::optional<CommittedWeights> newer_;
  // Last taken by the engine.
  std::optional<CommittedWeights> active_;
};

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_RECEIVE_SUBSCRIBER_STATE_H_
