#include "rpc/listener/connection_table.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace leeway {

bool ConnectionTable::Add(Entry entry, std::string* refusal) {
  if (entries_.size() >= max_connections_ || CountOf(entry.peer) >= max_per_peer_) Sweep();
  if (entries_.size() >= max_connections_) {
    *refusal = absl::StrCat(entries_.size(), " connections are open, the limit is ", max_connections_);
    return false;
  }
  if (const size_t count = CountOf(entry.peer); count >= max_per_peer_) {
    *refusal = absl::StrCat(count, " connections of ", entry.peer, " are open, the limit is ", max_per_peer_);
    return false;
  }
  ++by_peer_[entry.peer];
  entries_.push_back(std::move(entry));
  return true;
}

void ConnectionTable::Remove(int fd, uint64_t inode) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.fd == fd && entry.inode == inode; });
  if (found == entries_.end()) return;
  if (--by_peer_[found->peer] == 0) by_peer_.erase(found->peer);
  entries_.erase(found);
}

size_t ConnectionTable::CountOf(const std::string& peer) const {
  const auto found = by_peer_.find(peer);
  return found == by_peer_.end() ? 0 : found->second;
}

void ConnectionTable::Sweep() {
  std::erase_if(entries_, [&](const Entry& entry) { return !is_open_(entry); });
  by_peer_.clear();
  for (const Entry& entry : entries_) ++by_peer_[entry.peer];
}

uint64_t InodeOf(int fd) {
  struct stat info = {};
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

}  // namespace leeway
