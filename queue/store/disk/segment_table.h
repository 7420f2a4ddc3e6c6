#ifndef LEEWAY_QUEUE_STORE_DISK_SEGMENT_TABLE_H_
#define LEEWAY_QUEUE_STORE_DISK_SEGMENT_TABLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "queue/store/queue_store.h"

namespace leeway {

// What is still wanted of each segment: a segment file, or (in a table of their own) a bundle, and of the lists of
// payloads that lie in them. From that, what may go and what should be rewritten. A plain class: no files, no threads.
//
// Bound: after what it asks for has been done, the segments hold at most twice their live bytes plus the slack.
class SegmentTable {
 public:
  explicit SegmentTable(uint64_t slack_bytes) : slack_bytes_(slack_bytes) {}

  // A segment that is being written, or is kept ready.
  void OnCreated(uint64_t segment, uint64_t file_bytes);
  // A durable list of payloads in it; all of them live.
  void OnListed(uint64_t segment, uint64_t list, std::vector<PayloadKey> keys, uint64_t live_bytes);
  // A payload of a list has durably ended; the list goes with its last.
  void OnEnded(uint64_t list, uint32_t index, uint64_t size_bytes);
  // Nothing will be appended any more; what the segment takes now.
  void OnSealed(uint64_t segment, uint64_t file_bytes);
  // It holds damaged bytes: rewriting would only give them a new place.
  void OnDamaged(uint64_t segment);
  void OnRemoved(uint64_t segment);

  // Sealed and without a live payload, ascending.
  std::vector<uint64_t> Removable() const;
  // The emptiest sealed and undamaged segments when there is too much garbage, emptiest first: one at least, else up to
  // `limit_bytes` of live bytes.
  std::vector<uint64_t> WantRewriting(uint64_t limit_bytes) const;
  // Living payloads.
  std::vector<PayloadKey> KeysOf(uint64_t segment) const;
  // Which payloads of the list have ended when those of `indices` (which live) have too, a bit each; empty = all.
  std::string EndedWith(uint64_t list, absl::Span<const uint32_t> indices) const;
  bool Contains(uint64_t segment) const { return segments_.contains(segment); }

  uint64_t live_bytes() const { return live_bytes_; }
  uint64_t file_bytes() const { return file_bytes_; }
  uint64_t segments() const { return segments_.size(); }

 private:
  struct Segment {
    uint64_t file_bytes = 0;
    uint64_t live_bytes = 0;
    uint64_t live_payloads = 0;
    bool is_sealed = false;
    bool is_damaged = false;
    // Some may be gone.
    std::vector<uint64_t> lists;
  };
  struct List {
    uint64_t segment = 0;
    std::vector<PayloadKey> keys;
    std::string ended;
    uint64_t live_payloads = 0;
  };

  const uint64_t slack_bytes_;
  std::map<uint64_t, Segment> segments_;
  absl::flat_hash_map<uint64_t, List> lists_;
  // Sums over all.
  uint64_t live_bytes_ = 0;
  uint64_t file_bytes_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_DISK_SEGMENT_TABLE_H_
