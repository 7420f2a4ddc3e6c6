#ifndef LEEWAY_COLLECTIVE_RANK_TRANSPORT_H_
#define LEEWAY_COLLECTIVE_RANK_TRANSPORT_H_

// What differs between ranks as threads and ranks as processes: how one step of an operation moves bytes, and how a
// failure reaches everybody. The operations themselves are written once over it (transport_communicator.h).

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "collective/operation_tag.h"

namespace leeway {

using ConstBytes = absl::Span<const std::byte>;
using MutableBytes = absl::Span<std::byte>;

// One rank's end. Exchange, Send, Receive and Split: one caller at a time, each blocks until `deadline`; the rest from
// any thread. Every error is final and is the one that Failure() returns from then on, here and at the peers.
class RankTransport {
 public:
  virtual ~RankTransport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What a deadline is made of.
  virtual absl::Duration timeout() const = 0;
  virtual absl::string_view name() const = 0;
  // This rank in the communicator that all Splits began with: the number in messages.
  virtual int root_rank() const = 0;

  // Sends outgoing[r] to every rank r and fills incoming[r] from it; both have size() entries, the own ones empty. All
  // ranks call it with equal tags and sizes that fit, else INTERNAL. Returns when the caller may reuse all
  // memory, also after an error.
  virtual absl::Status Exchange(const OperationTag& tag, const Deadline& deadline,
                                absl::Span<const ConstBytes> outgoing, absl::Span<const MutableBytes> incoming) = 0;

  // The tags of a pair differ in their kind only, else INTERNAL.
  virtual absl::Status Send(const OperationTag& tag, const Deadline& deadline, ConstBytes message, int peer) = 0;
  virtual absl::Status Receive(const OperationTag& tag, const Deadline& deadline, MutableBytes message, int peer) = 0;

  // An end of the communicator of `members` (ranks here, ascending, this rank among them). Called by all ranks at once,
  // after an Exchange with `tag` through which they have agreed on members and name.
  virtual absl::StatusOr<std::unique_ptr<RankTransport>> Split(const OperationTag& tag, const Deadline& deadline,
                                                               absl::Span<const int> members, std::string name) = 0;

  // Makes `error` the failure unless there is one. Does not block.
  virtual void Fail(const absl::Status& error) = 0;
  // OK while there is none.
  virtual absl::Status Failure() const = 0;
};

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_RANK_TRANSPORT_H_
