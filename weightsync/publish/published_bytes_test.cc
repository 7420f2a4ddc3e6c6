#include "weightsync/publish/published_bytes.h"

#include <signal.h>
#include <sys/resource.h>

#include <set>

#include "gtest/gtest.h"

namespace leeway {
namespace {

const auto kAllMapped = [](const SharedMemorySegment&) { return true; };
const auto kNoneMapped = [](const SharedMemorySegment&) { return false; };

TEST(PublishedBytesTest, TwoMemoriesServeAllVersions) {
  for (const bool shared : {true, false}) {
    PublishedBytesPool pool("test");
    std::set<const std::byte*> seen;
    std::shared_ptr<PublishedBytes> committed;
    for (int version = 0; version < 10; ++version) {
      auto staged = pool.Stage(5000, shared, kAllMapped);
      ASSERT_TRUE(staged.ok()) << staged.status();
      EXPECT_EQ((*staged)->bytes().size(), 5000u);
      EXPECT_EQ((*staged)->segment() != nullptr, shared);
      seen.insert((*staged)->bytes().data());
      committed = *std::move(staged);
    }
    EXPECT_EQ(seen.size(), 2u);
  }
}

TEST(PublishedBytesTest, WhatIsStillReadIsNotWritten) {
  PublishedBytesPool pool("test");
  const auto read = *pool.Stage(100, true, kAllMapped);
  const auto committed = *pool.Stage(100, true, kAllMapped);
  const auto staged = *pool.Stage(100, true, kAllMapped);
  EXPECT_NE(staged->bytes().data(), read->bytes().data());
  EXPECT_NE(staged->bytes().data(), committed->bytes().data());
}

TEST(PublishedBytesTest, ANewReceiverGetsANewNameAndTheOldMemoryGoes) {
  PublishedBytesPool pool("test");
  std::string name;
  {
    const auto first = *pool.Stage(100, true, kAllMapped);
    name = first->segment()->name();
    first->segment()->Unlink();
  }
  const auto second = *pool.Stage(100, true, kNoneMapped);
  EXPECT_NE(second->segment()->name(), name);
  EXPECT_TRUE(second->segment()->is_linked());
}

TEST(PublishedBytesTest, AnotherSizeOrKindIsAnotherMemory) {
  PublishedBytesPool pool("test");
  { EXPECT_EQ((*pool.Stage(100, false, kAllMapped))->segment(), nullptr); }
  { EXPECT_NE((*pool.Stage(100, true, kAllMapped))->segment(), nullptr); }
  // Shared memory serves those who fetch, too.
  { EXPECT_NE((*pool.Stage(100, false, kAllMapped))->segment(), nullptr); }
  EXPECT_EQ((*pool.Stage(200, false, kAllMapped))->bytes().size(), 200u);
  EXPECT_EQ((*pool.Stage(0, true, kAllMapped))->bytes().size(), 0u);
}

TEST(PublishedBytesTest, FallsBackToPrivateMemoryWhenSharedMemoryIsShort) {
  PublishedBytesPool pool("test");
  // Shared memory is files: a limit on their size makes it short.
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  rlimit limit = old_limit;
  limit.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto staged = pool.Stage(5000, true, kAllMapped);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  signal(SIGXFSZ, old_handler);
  ASSERT_TRUE(staged.ok()) << staged.status();
  EXPECT_EQ((*staged)->segment(), nullptr);
  EXPECT_EQ((*staged)->bytes().size(), 5000u);
}

}  // namespace
}  // namespace leeway
