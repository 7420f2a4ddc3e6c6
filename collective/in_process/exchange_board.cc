#include "collective/in_process/exchange_board.h"

#include <cstring>

namespace leeway {

std::shared_ptr<ExchangeBoard> ExchangeBoard::Create(std::shared_ptr<BoardFamily> family, std::string name,
                                                     std::vector<int> root_ranks, absl::Duration timeout) {
  std::shared_ptr<ExchangeBoard> board(
      new ExchangeBoard(std::move(family), std::move(name), std::move(root_ranks), timeout));
  MutexLock lock(&board->family_->mutex);
  board->family_->boards.push_back(board);
  return board;
}

ExchangeBoard::ExchangeBoard(std::shared_ptr<BoardFamily> family, std::string name, std::vector<int> root_ranks,
                             absl::Duration timeout)
    : family_(std::move(family)),
      name_(std::move(name)),
      root_ranks_(std::move(root_ranks)),
      timeout_(timeout),
      ranks_(root_ranks_.size()) {}

absl::Status ExchangeBoard::FailLocked(const absl::Status& error) {
  if (family_->failure.ok()) {
    family_->failure = error;
    for (const std::weak_ptr<ExchangeBoard>& member : family_->boards) {
      if (const std::shared_ptr<ExchangeBoard> board = member.lock()) board->changed_.NotifyAll();
    }
  }
  return family_->failure;
}

void ExchangeBoard::Fail(const absl::Status& error) {
  MutexLock lock(&family_->mutex);
  (void)FailLocked(error);
}

absl::Status ExchangeBoard::Failure() const {
  MutexLock lock(&family_->mutex);
  return family_->failure;
}

void ExchangeBoard::Leave(int self) {
  MutexLock lock(&family_->mutex);
  ranks_[static_cast<size_t>(self)].is_gone = true;
  changed_.NotifyAll();
}

std::vector<int> ExchangeBoard::Missing(int64_t step, bool only_gone) const {
  std::vector<int> missing;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].posted < step && (ranks_[r].is_gone || !only_gone)) missing.push_back(root_ranks_[r]);
  }
  return missing;
}

absl::Status ExchangeBoard::Disagreement(int self, const OperationTag& tag, absl::Span<const ConstBytes> outgoing,
                                         absl::Span<const MutableBytes> incoming) const {
  const size_t own = static_cast<size_t>(self);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Rank& other = ranks_[r];
    if (r == own || other.posted <= ranks_[own].posted) continue;
    if (!(other.tag == tag)) return MismatchError(name_, root_ranks_[r], other.tag, root_ranks_[own], tag);
    if (other.outgoing[own].size() != incoming[r].size()) {
      return SizeMismatchError(name_, tag, root_ranks_[r], static_cast<int64_t>(other.outgoing[own].size()),
                               root_ranks_[own], static_cast<int64_t>(incoming[r].size()));
    }
    if (outgoing[r].size() != other.incoming[own].size()) {
      return SizeMismatchError(name_, tag, root_ranks_[own], static_cast<int64_t>(outgoing[r].size()), root_ranks_[r],
                               static_cast<int64_t>(other.incoming[own].size()));
    }
  }
  return absl::OkStatus();
}

absl::Status ExchangeBoard::Exchange(int self, const OperationTag& tag, const Deadline& deadline,
                                     absl::Span<const ConstBytes> outgoing, absl::Span<const MutableBytes> incoming) {
  std::vector<ConstBytes> sources(root_ranks_.size());
  int64_t step = 0;
  {
    MutexLock lock(&family_->mutex);
    if (!family_->failure.ok()) return family_->failure;
    if (const absl::Status status = Disagreement(self, tag, outgoing, incoming); !status.ok()) {
      return FailLocked(status);
    }
    Rank& own = ranks_[static_cast<size_t>(self)];
    own.tag = tag;
    own.outgoing = outgoing;
    own.incoming = incoming;
    step = ++own.posted;
    changed_.NotifyAll();
    while (!Missing(step, /*only_gone=*/false).empty()) {
      if (!family_->failure.ok()) return family_->failure;
      if (const std::vector<int> gone = Missing(step, /*only_gone=*/true); !gone.empty()) {
        return FailLocked(LostRanksError(name_, tag, gone, ""));
      }
      if (deadline.HasPassed()) {
        return FailLocked(MissingRanksError(name_, tag, Missing(step, /*only_gone=*/false), timeout_));
      }
      changed_.WaitUntil(&family_->mutex, deadline);
    }
    for (size_t r = 0; r < ranks_.size(); ++r) sources[r] = ranks_[r].outgoing[static_cast<size_t>(self)];
  }
  for (size_t r = 0; r < sources.size(); ++r) {
    if (!incoming[r].empty()) std::memcpy(incoming[r].data(), sources[r].data(), incoming[r].size());
  }
  MutexLock lock(&family_->mutex);
  ranks_[static_cast<size_t>(self)].copied = step;
  changed_.NotifyAll();
  // Nothing but copying is left to the others, so this wait needs no deadline.
  for (const Rank& rank : ranks_) {
    while (rank.copied < step) changed_.WaitUntil(&family_->mutex, Deadline::Infinite());
  }
  return absl::OkStatus();
}

absl::Status ExchangeBoard::Send(int self, const OperationTag& tag, const Deadline& deadline, ConstBytes message,
                                 int peer) {
  const std::pair<int, int> way(self, peer);
  MutexLock lock(&family_->mutex);
  if (!family_->failure.ok()) return family_->failure;
  messages_[way] = Message{tag, message};
  changed_.NotifyAll();
  while (messages_.contains(way)) {
    const int root_rank = root_ranks_[static_cast<size_t>(peer)];
    if (!family_->failure.ok()) return family_->failure;
    if (ranks_[static_cast<size_t>(peer)].is_gone) return FailLocked(LostRanksError(name_, tag, {root_rank}, ""));
    if (deadline.HasPassed()) return FailLocked(MissingRanksError(name_, tag, {root_rank}, timeout_));
    changed_.WaitUntil(&family_->mutex, deadline);
  }
  return absl::OkStatus();
}

absl::Status ExchangeBoard::Receive(int self, const OperationTag& tag, const Deadline& deadline, MutableBytes message,
                                    int peer) {
  const std::pair<int, int> way(peer, self);
  const int root_rank = root_ranks_[static_cast<size_t>(peer)];
  MutexLock lock(&family_->mutex);
  while (!messages_.contains(way)) {
    if (!family_->failure.ok()) return family_->failure;
    if (ranks_[static_cast<size_t>(peer)].is_gone) return FailLocked(LostRanksError(name_, tag, {root_rank}, ""));
    if (deadline.HasPassed()) return FailLocked(MissingRanksError(name_, tag, {root_rank}, timeout_));
    changed_.WaitUntil(&family_->mutex, deadline);
  }
  // Checked with the lock held, which the copy below keeps: the sender is still there.
  if (!family_->failure.ok()) return family_->failure;
  const Message& sent = messages_.at(way);
  OperationTag expected = tag;
  expected.kind = sent.tag.kind;
  if (!(expected == sent.tag)) {
    return FailLocked(MismatchError(name_, root_rank, sent.tag, root_ranks_[static_cast<size_t>(self)], tag));
  }
  if (!message.empty()) std::memcpy(message.data(), sent.bytes.data(), message.size());
  messages_.erase(way);
  changed_.NotifyAll();
  return absl::OkStatus();
}

std::shared_ptr<ExchangeBoard> ExchangeBoard::Split(uint64_t operation, absl::Span<const int> members,
                                                    std::string name) {
  std::vector<int> root_ranks;
  for (int member : members) root_ranks.push_back(root_ranks_[static_cast<size_t>(member)]);
  MutexLock lock(&family_->mutex);
  const std::pair<uint64_t, int> key(operation, members[0]);
  Part& part = parts_[key];
  if (part.board == nullptr) {
    part.board.reset(new ExchangeBoard(family_, std::move(name), std::move(root_ranks), timeout_));
    family_->boards.push_back(part.board);
  }
  std::shared_ptr<ExchangeBoard> board = part.board;
  if (++part.asked == members.size()) parts_.erase(key);
  return board;
}

}  // namespace leeway
