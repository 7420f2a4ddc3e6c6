#include "model/transformer/tile_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace leeway::internal {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Blocks that a slab holds at least.
constexpr size_t kBlocksPerSlab = 4;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

TilePool* TilePool::Shared() {
  static TilePool* const pool = new TilePool;
  return pool;
}

TilePool::~TilePool() {
  const MutexLock lock(&mutex_);
  for (void* slab : slabs_) std::free(slab);
}

void* TilePool::Take(size_t bytes) {
  const size_t size = RoundUp(bytes, 64);
  const MutexLock lock(&mutex_);
  std::vector<void*>& blocks = free_[size];
  if (blocks.empty()) {
    const size_t slab_bytes = RoundUp(size * kBlocksPerSlab, kHugePage);
    char* slab = static_cast<char*>(std::aligned_alloc(kHugePage, slab_bytes));
    if (slab == nullptr) throw std::bad_alloc();
    // Advice only: without huge pages the memory works all the same.
    (void)madvise(slab, slab_bytes, MADV_HUGEPAGE);
    slabs_.push_back(slab);
    size_bytes_ += slab_bytes;
    for (size_t offset = 0; offset + size <= slab_bytes; offset += size) blocks.push_back(slab + offset);
    // The lowest address first.
    std::reverse(blocks.begin(), blocks.end());
  }
  void* block = blocks.back();
  blocks.pop_back();
  return block;
}

void TilePool::Return(void* block, size_t bytes) {
  const MutexLock lock(&mutex_);
  free_[RoundUp(bytes, 64)].push_back(block);
}

size_t TilePool::size_bytes() const {
  const MutexLock lock(&mutex_);
  return size_bytes_;
}

}  // namespace leeway::internal
