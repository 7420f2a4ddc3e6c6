#ifndef LEEWAY_RPC_LISTENER_CONNECTION_TABLE_H_
#define LEEWAY_RPC_LISTENER_CONNECTION_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace leeway {

// How many connections are open, in all and by peer, and whether one more may come. gRPC closes connections and tells
// nobody, so the table asks which of its own are still there, but only when a limit seems reached. Not thread-safe.
class ConnectionTable {
 public:
  // A connection by its descriptor and the inode of its socket: a descriptor that was closed and given out again has
  // another one.
  struct Entry {
    int fd = -1;
    uint64_t inode = 0;
    std::string peer;
  };
  using IsOpen = std::function<bool(const Entry& entry)>;

  ConnectionTable(size_t max_connections, size_t max_per_peer, IsOpen is_open)
      : max_connections_(max_connections), max_per_peer_(max_per_peer), is_open_(std::move(is_open)) {}

  // Counts the connection; or does not, and says which limit is reached.
  bool Add(Entry entry, std::string* refusal);
  // A connection that was closed by whoever added it.
  void Remove(int fd, uint64_t inode);

  size_t size() const { return entries_.size(); }

 private:
  size_t CountOf(const std::string& peer) const;
  void Sweep();

  const size_t max_connections_;
  const size_t max_per_peer_;
  const IsOpen is_open_;
  std::vector<Entry> entries_;
  std::map<std::string, size_t> by_peer_;
};

// The socket's inode, 0 if `fd` is none. The check that ConnectionTable needs: InodeOf(entry.fd) == entry.inode.
uint64_t InodeOf(int fd);

}  // namespace leeway

#endif  // LEEWAY_RPC_LISTENER_CONNECTION_TABLE_H_
