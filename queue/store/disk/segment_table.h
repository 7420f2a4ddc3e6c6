#ifndef LEEWAY_QUEUE_STORE_DISK_SEGMENT_TABLE_H_
#define LEEWAY_QUEUE_STORE_DISK_SEGMENT_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "queue/store/queue_store.h"

namespace leeway {

// How much of each segment file is still wanted, and from that which files may go and which should be rewritten. A
// plain class: no files, no threads.
//
// Bound: after what it asks for has been done, the files hold at most twice their live bytes plus four segments.
class SegmentTable {
 public:
  explicit SegmentTable(uint64_t segment_bytes) : segment_bytes_(segment_bytes) {}

  // A file that is being written, or is kept ready.
  void OnCreated(uint64_t segment, uint64_t file_bytes);
  // A durable reference to a payload in it.
  void OnReferred(uint64_t segment, const PayloadKey& key, uint64_t size_bytes);
  // The reference is durably gone.
  void OnReleased(uint64_t segment, uint64_t size_bytes);
  // Nothing will be appended any more; what the file takes now.
  void OnSealed(uint64_t segment, uint64_t file_bytes);
  // It holds damaged bytes: rewriting would only give them a new place.
  void OnDamaged(uint64_t segment);
  void OnRemoved(uint64_t segment);

  // Sealed and without a live payload, ascending.
  std::vector<uint64_t> Removable() const;
  // The emptiest sealed and undamaged segment, when the files hold too much garbage.
  std::optional<uint64_t> WantsRewriting() const;
  // All that were ever referred to in it; who still lives there is the caller's to know.
  const std::vector<PayloadKey>& KeysOf(uint64_t segment) const;
  bool Contains(uint64_t segment) const { return segments_.contains(segment); }

  uint64_t live_bytes() const { return live_bytes_; }
  uint64_t file_bytes() const { return file_bytes_; }
  uint64_t segments() const { return segments_.size(); }
  // 0 = there is none.
  uint64_t last_segment() const { return segments_.empty() ? 0 : segments_.rbegin()->first; }

 private:
  struct Segment {
    uint64_t file_bytes = 0;
    uint64_t live_bytes = 0;
    uint64_t live_payloads = 0;
    bool is_sealed = false;
    bool is_damaged = false;
    std::vector<PayloadKey> keys;
  };

  const uint64_t segment_bytes_;
  std::map<uint64_t, Segment> segments_;
  // Sums over all.
  uint64_t live_bytes_ = 0;
  uint64_t file_bytes_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_DISK_SEGMENT_TABLE_H_
