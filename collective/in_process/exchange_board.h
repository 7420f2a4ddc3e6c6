#ifndef LEEWAY_COLLECTIVE_IN_PROCESS_EXCHANGE_BOARD_H_
#define LEEWAY_COLLECTIVE_IN_PROCESS_EXCHANGE_BOARD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "collective/operation_tag.h"
#include "collective/rank_transport.h"

namespace leeway {

class ExchangeBoard;

// Boards that come from one another by Split: one lock, one failure.
struct BoardFamily {
  Mutex mutex;
  absl::Status failure LEEWAY_GUARDED_BY(mutex);
  std::vector<std::weak_ptr<ExchangeBoard>> boards LEEWAY_GUARDED_BY(mutex);
};

// Where the threads that are the ranks of one communicator lay out what they send. A step has two halves: each rank
// posts its memory and waits until all have posted; then it copies what is meant for it out of the others' memory and
// waits until all have copied. A step whose first half was completed is always finished, also after a failure, so that
// no rank frees memory that another one reads. Thread-safe; one call of a rank at a time.
class ExchangeBoard : public std::enable_shared_from_this<ExchangeBoard> {
 public:
  // `root_ranks`: the numbers by which messages name the ranks.
  static std::shared_ptr<ExchangeBoard> Create(std::shared_ptr<BoardFamily> family, std::string name,
                                               std::vector<int> root_ranks, absl::Duration timeout);

  const std::string& name() const { return name_; }
  const std::vector<int>& root_ranks() const { return root_ranks_; }
  absl::Duration timeout() const { return timeout_; }

  // As in RankTransport, for rank `self`.
  absl::Status Exchange(int self, const OperationTag& tag, const Deadline& deadline,
                        absl::Span<const ConstBytes> outgoing, absl::Span<const MutableBytes> incoming);
  absl::Status Send(int self, const OperationTag& tag, const Deadline& deadline, ConstBytes message, int peer);
  absl::Status Receive(int self, const OperationTag& tag, const Deadline& deadline, MutableBytes message, int peer);
  // The board of `members`, the same for all of them. Each asks once.
  std::shared_ptr<ExchangeBoard> Split(uint64_t operation, absl::Span<const int> members, std::string name);

  void Fail(const absl::Status& error);
  absl::Status Failure() const;
  // The rank makes no more calls: who waits for it learns so at once.
  void Leave(int self);

 private:
  struct Rank {
    int64_t posted = 0;  // steps
    int64_t copied = 0;  // steps
    OperationTag tag;    // of the last step posted; so are the spans
    absl::Span<const ConstBytes> outgoing;
    absl::Span<const MutableBytes> incoming;
    bool is_gone = false;
  };
  struct Message {
    OperationTag tag;
    ConstBytes bytes;
  };
  struct Part {
    std::shared_ptr<ExchangeBoard> board;
    size_t asked = 0;
  };

  ExchangeBoard(std::shared_ptr<BoardFamily> family, std::string name, std::vector<int> root_ranks,
                absl::Duration timeout);

  // What the step that `self` is about to post has against those already posted.
  absl::Status Disagreement(int self, const OperationTag& tag, absl::Span<const ConstBytes> outgoing,
                            absl::Span<const MutableBytes> incoming) const LEEWAY_REQUIRES(family_->mutex);
  // Ranks that have not posted `step`, by root rank; the second: only those that never will.
  std::vector<int> Missing(int64_t step, bool only_gone) const LEEWAY_REQUIRES(family_->mutex);
  absl::Status FailLocked(const absl::Status& error) LEEWAY_REQUIRES(family_->mutex);

  const std::shared_ptr<BoardFamily> family_;
  const std::string name_;
  const std::vector<int> root_ranks_;
  const absl::Duration timeout_;

  CondVar changed_;
  std::vector<Rank> ranks_ LEEWAY_GUARDED_BY(family_->mutex);
  // Sent and not yet received, by (sender, receiver).
  std::map<std::pair<int, int>, Message> messages_ LEEWAY_GUARDED_BY(family_->mutex);
  // Boards that not all members have asked for, by (split operation, first member).
  std::map<std::pair<uint64_t, int>, Part> parts_ LEEWAY_GUARDED_BY(family_->mutex);
};

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_IN_PROCESS_EXCHANGE_BOARD_H_
