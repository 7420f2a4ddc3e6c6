#include "base/executor.h"

#include <atomic>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(ParallelForTest, CoversEveryIndexOnceForAllSizesAndThreadCounts) {
  for (int threads : {1, 2, 3, 4}) {
    ParallelFor parallel(threads);
    for (int64_t count : {0, 1, 2, 3, 5, 64, 1000}) {
      std::vector<std::atomic<int>> hits(count);
      parallel.Run(count, /*minimum_per_thread=*/1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++hits[i];
      });
      for (const auto& hit : hits) EXPECT_EQ(hit, 1);
    }
  }
}

TEST(ParallelForTest, SmallJobsStayOnTheCaller) {
  ParallelFor parallel(4);
  int calls = 0;
  parallel.Run(7, /*minimum_per_thread=*/8, [&](int64_t begin, int64_t end) {
    ++calls;
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 7);
  });
  EXPECT_EQ(calls, 1);
}

TEST(ParallelForTest, ManyJobsInARow) {
  ParallelFor parallel(2);
  std::vector<int64_t> values(256);
  for (int round = 0; round < 20'000; ++round) {
    parallel.Run(256, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] += i;
    });
  }
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), 20'000 * (255 * 256 / 2));
}

}  // namespace
}  // namespace leeway
