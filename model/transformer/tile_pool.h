#ifndef LEEWAY_MODEL_TRANSFORMER_TILE_POOL_H_
#define LEEWAY_MODEL_TRANSFORMER_TILE_POOL_H_

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"

namespace leeway {
namespace internal {

// Memory for the blocks of key/value caches, cut from slabs on huge pages. Caches come and go with every request; fresh
// pages would cost more than the arithmetic on them, and small pages make a decode step miss the address cache at every
// sequence.
//
// Any thread; never blocks for long. Memory is kept for the next request until the process ends: the peak of all
// caches.
class TilePool {
 public:
  // The pool of the process; lives for ever.
  static TilePool* Shared();

  TilePool() = default;
  ~TilePool();
  TilePool(const TilePool&) = delete;
  TilePool& operator=(const TilePool&) = delete;

  // `bytes` of memory, 64-byte aligned, holding whatever an earlier block of that size held.
  void* Take(size_t bytes) LEEWAY_EXCLUDES(mutex_);
  // Gives a block of that size back.
  void Return(void* block, size_t bytes) LEEWAY_EXCLUDES(mutex_);

  // Of all slabs.
  size_t size_bytes() const LEEWAY_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  // Free blocks by size.
  std::map<size_t, std::vector<void*>> free_ LEEWAY_GUARDED_BY(mutex_);
  std::vector<void*> slabs_ LEEWAY_GUARDED_BY(mutex_);
  size_t size_bytes_ LEEWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace internal
}  // namespace leeway

#endif  // LEEWAY_MODEL_TRANSFORMER_TILE_POOL_H_
