#include "base/allocator.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#ifdef LEEWAY_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

namespace leeway {
namespace {

#ifdef LEEWAY_JEMALLOC

TEST(Allocator, IsJemallocWithOurSettings) {
  PrepareAllocator();
  EXPECT_THAT(AllocatorName(), ::testing::StartsWith("jemalloc 5"));
  ssize_t decay = 0;
  size_t size = sizeof(decay);
  ASSERT_EQ(mallctl("opt.dirty_decay_ms", &decay, &size, nullptr, 0), 0);
  EXPECT_EQ(decay, -1);
  const char* huge_pages = nullptr;
  size = sizeof(huge_pages);
  ASSERT_EQ(mallctl("opt.thp", &huge_pages, &size, nullptr, 0), 0);
  EXPECT_STREQ(huge_pages, "always");
}

TEST(Allocator, ServesOperatorNew) {
  uint64_t before = 0, after = 0;
  size_t size = sizeof(before);
  ASSERT_EQ(mallctl("thread.allocated", &before, &size, nullptr, 0), 0);
  const std::string block(1 << 20, 'x');
  ASSERT_EQ(mallctl("thread.allocated", &after, &size, nullptr, 0), 0);
  EXPECT_GE(after - before, block.size());
}

#else

TEST(Allocator, IsGlibcsWithoutJemalloc) {
  PrepareAllocator();
  EXPECT_EQ(AllocatorName(), "glibc");
}

#endif

}  // namespace
}  // namespace leeway
