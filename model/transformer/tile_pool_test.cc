#include "model/transformer/tile_pool.h"

#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace leeway::internal {
namespace {

TEST(TilePoolTest, BlocksAreAlignedAndDisjoint) {
  TilePool pool;
  constexpr size_t kBytes = 10'000;
  std::vector<char*> blocks;
  for (int i = 0; i < 1000; ++i) {
    char* block = static_cast<char*>(pool.Take(kBytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
    std::memset(block, i % 251, kBytes);
    blocks.push_back(block);
  }
  for (int i = 0; i < 1000; ++i) {
    for (const size_t offset : {size_t{0}, kBytes / 2, kBytes - 1}) {
      EXPECT_EQ(static_cast<unsigned char>(blocks[i][offset]), i % 251);
    }
  }
  EXPECT_GE(pool.size_bytes(), 1000 * kBytes);
  EXPECT_LE(pool.size_bytes(), 1000 * kBytes + 1000 * 64 + (size_t{4} << 20));
}

TEST(TilePoolTest, ReturnedBlocksAreTakenAgain) {
  TilePool pool;
  const size_t large = size_t{3} << 20;
  void* first = pool.Take(large);
  const size_t size = pool.size_bytes();
  for (int i = 0; i < 100; ++i) {
    pool.Return(first, large);
    first = pool.Take(large);
  }
  EXPECT_EQ(pool.size_bytes(), size);
  pool.Return(first, large);
}

TEST(TilePoolTest, ThreadsShareIt) {
  TilePool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int round = 0; round < 200; ++round) {
        const size_t bytes = 512 * static_cast<size_t>(1 + round % 3);
        char* block = static_cast<char*>(pool.Take(bytes));
        std::memset(block, t, bytes);
        for (size_t i = 0; i < bytes; i += 100) ASSERT_EQ(block[i], t);
        pool.Return(block, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace leeway::internal
