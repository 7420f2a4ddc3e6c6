#include "collective/in_process/in_process_group.h"

#include <numeric>
#include <utility>

#include "base/status_macros.h"
#include "collective/transport_communicator.h"

namespace leeway {
namespace {

class InProcessTransport final : public RankTransport {
 public:
  InProcessTransport(std::shared_ptr<ExchangeBoard> board, int rank) : board_(std::move(board)), rank_(rank) {}
  ~InProcessTransport() override { board_->Leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(board_->root_ranks().size()); }
  absl::Duration timeout() const override { return board_->timeout(); }
  absl::string_view name() const override { return board_->name(); }
  int root_rank() const override { return board_->root_ranks()[static_cast<size_t>(rank_)]; }

  absl::Status Exchange(const OperationTag& tag, const Deadline& deadline, absl::Span<const ConstBytes> outgoing,
                        absl::Span<const MutableBytes> incoming) override {
    return board_->Exchange(rank_, tag, deadline, outgoing, incoming);
  }
  absl::Status Send(const OperationTag& tag, const Deadline& deadline, ConstBytes message, int peer) override {
    return board_->Send(rank_, tag, deadline, message, peer);
  }
  absl::Status Receive(const OperationTag& tag, const Deadline& deadline, MutableBytes message, int peer) override {
    return board_->Receive(rank_, tag, deadline, message, peer);
  }
  absl::StatusOr<std::unique_ptr<RankTransport>> Split(const OperationTag& tag, const Deadline& deadline,
                                                       absl::Span<const int> members, std::string name) override {
    int rank = 0;
    while (members[static_cast<size_t>(rank)] != rank_) ++rank;
    return std::make_unique<InProcessTransport>(board_->Split(tag.number, members, std::move(name)), rank);
  }
  void Fail(const absl::Status& error) override { board_->Fail(error); }
  absl::Status Failure() const override { return board_->Failure(); }

 private:
  const std::shared_ptr<ExchangeBoard> board_;
  const int rank_;
};

std::vector<int> AllRanks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

InProcessGroup::InProcessGroup(int size, std::string name, absl::Duration timeout)
    : board_(ExchangeBoard::Create(std::make_shared<BoardFamily>(), std::move(name), AllRanks(size), timeout)),
      is_taken_(static_cast<size_t>(size)) {}

InProcessGroup::~InProcessGroup() {
  MutexLock lock(&mutex_);
  for (size_t rank = 0; rank < is_taken_.size(); ++rank) {
    if (!is_taken_[rank]) board_->Leave(static_cast<int>(rank));
  }
}

std::unique_ptr<Communicator> InProcessGroup::Take(int rank) {
  MutexLock lock(&mutex_);
  LEEWAY_CHECK(rank >= 0 && rank < static_cast<int>(is_taken_.size()) && !is_taken_[static_cast<size_t>(rank)])
      << "rank " << rank;
  is_taken_[static_cast<size_t>(rank)] = true;
  return std::make_unique<TransportCommunicator>(std::make_unique<InProcessTransport>(board_, rank));
}

}  // namespace leeway
