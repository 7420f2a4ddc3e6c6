#ifndef LEEWAY_COLLECTIVE_CPU_GLOO_MESH_H_
#define LEEWAY_COLLECTIVE_CPU_GLOO_MESH_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "collective/cpu/rendezvous_store.h"
#include "collective/operation_tag.h"
#include "collective/rank_transport.h"
#include "gloo/transport/context.h"
#include "gloo/transport/device.h"
#include "gloo/transport/unbound_buffer.h"

namespace leeway {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  // Of the communicator, in messages.
  std::string name;
  // Of one operation. Its error comes up to a quarter of it later, 1 s at most: who hangs, and who only waits for it?
  absl::Duration timeout;
  // Until all ranks are connected: programs start at different times.
  absl::Duration rendezvous_timeout;
  // Must outlive all communicators.
  RendezvousStore* store = nullptr;
  // In front of all keys; never used before.
  std::string generation;
  // Network interface ("eth0"); empty: the loopback address, for ranks on one machine.
  std::string interface;
};

// The connections of this process to all other ranks over Gloo's TCP transport, and the one failure that ends them all.
//
// Gloo knows neither abort nor an agreed error: a closed connection fails only at the ranks that wait on it, and a wait
// that times out closes all connections at once. So every wait here is unlimited for Gloo and has its deadline outside.
// Three threads: Gloo's own moves bytes; the monitor keeps deadlines and, at the first failure, writes its reason into
// the store (the first writer's reason is everybody's), then closes all connections and wakes all waiters; the watcher
// waits for a farewell of the next rank, whose connection breaks when that rank dies or fails, so that a failure goes
// round the ring even where nobody communicates.
class GlooMesh {
 public:
  struct Outgoing {
    int peer;
    uint64_t slot;  // what joins the two ends of a message; never used before between these ranks in this direction
    ConstBytes bytes;
  };
  struct Incoming {
    int peer;
    uint64_t slot;
    MutableBytes bytes;  // room: the message may be shorter
  };
  // Whom it is for, in messages.
  struct Operation {
    absl::string_view group;
    const OperationTag* tag;
    Deadline deadline;
    absl::Duration timeout;
  };

  // Blocks until all ranks are connected. DEADLINE_EXCEEDED names the ranks that did not come; ALREADY_EXISTS: another
  // process is or was this rank of this generation; INVALID_ARGUMENT; UNAVAILABLE: a rank cannot be reached.
  static absl::StatusOr<std::shared_ptr<GlooMesh>> Connect(const GlooOptions& options);
  // Waits until all ranks are at this point or one has failed, at most for `timeout`: what was sent may still be on its
  // way.
  ~GlooMesh();
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  int rank() const { return options_.rank; }
  const GlooOptions& options() const { return options_; }

  // The first `count` incoming messages announce what the rest holds. They are awaited first and then checked; an error
  // of the check is the failure of all. `has_arrived` tells of their memory whether a message is there, so that a
  // timeout names all who are missing.
  struct Frames {
    size_t count = 0;
    bool (*has_arrived)(ConstBytes) = nullptr;
    std::function<absl::Status()> check;
  };
  // Moves all messages; blocks. The memory is the caller's again when it returns.
  absl::Status Transfer(const Operation& operation, absl::Span<const Outgoing> outgoing,
                        absl::Span<const Incoming> incoming, const Frames& frames) LEEWAY_EXCLUDES(mutex_);

  void Fail(const absl::Status& error) LEEWAY_EXCLUDES(mutex_);
  // The failure that all ranks agree on; waits for the store's answer where there is one.
  absl::Status Failure() const LEEWAY_EXCLUDES(mutex_);

 private:
  using Buffer = gloo::transport::UnboundBuffer;
  // A Transfer on its way.
  struct Active {
    const Operation* operation;
    std::vector<std::unique_ptr<Buffer>> sends, receives;
    std::vector<int> peers;
    bool has_timed_out = false;
  };

  explicit GlooMesh(const GlooOptions& options);
  absl::Status ConnectPairs();
  void StartThreads();
  void MonitorLoop() LEEWAY_EXCLUDES(mutex_);
  void WatcherLoop() LEEWAY_EXCLUDES(mutex_);
  void SayFarewell() LEEWAY_EXCLUDES(mutex_);
  // Of the ranks that were missed for a whole timeout, those who do not themselves miss somebody: asks the others over
  // the store, and waits a part of the timeout for those whose wait began later.
  std::vector<int> WithoutWaiting(const std::vector<int>& missing);
  // Publishes the cause unless another rank was first; the failure of all ranks. Blocks on the store.
  absl::Status Agree(const absl::Status& cause);
  // Publishes the cause, closes everything. Monitor only.
  void EndAll(const absl::Status& cause) LEEWAY_EXCLUDES(mutex_);
  static void AbortWaits(const Active& active);
  // Posts and waits. CANCELLED when woken by AbortWaits; the check's error. Throws what Gloo throws. `peer` is the one
  // that it is about.
  static absl::Status Move(Active* active, absl::Span<const Outgoing> outgoing, absl::Span<const Incoming> incoming,
                           const Frames& frames, int* peer);
  // A peer's connection broke: what waits for it gives the message.
  absl::Status LostPeer(int peer) const LEEWAY_REQUIRES(mutex_);
  std::string FailureKey() const { return options_.generation + "/failure"; }

  const GlooOptions options_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
  // By rank; the own one null. One byte each way, sent when a rank ends well.
  std::vector<std::unique_ptr<Buffer>> farewells_in_, farewells_out_;
  std::vector<char> farewell_bytes_;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::list<Active> active_ LEEWAY_GUARDED_BY(mutex_);
  // What this rank saw first; the monitor makes it, or an earlier one of another rank, the failure.
  absl::Status cause_ LEEWAY_GUARDED_BY(mutex_);
  absl::Status failure_ LEEWAY_GUARDED_BY(mutex_);
  bool all_have_left_ LEEWAY_GUARDED_BY(mutex_) = false;
  bool is_ending_ LEEWAY_GUARDED_BY(mutex_) = false;
  std::thread monitor_;
  std::thread watcher_;
};

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_CPU_GLOO_MESH_H_
