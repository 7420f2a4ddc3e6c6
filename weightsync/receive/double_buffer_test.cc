#include "weightsync/receive/double_buffer.h"

#include <cstring>
#include <thread>

#include "gtest/gtest.h"
#include "weightsync/pages.h"

namespace leeway {
namespace {

TEST(DoubleBufferTest, GivesTwoBuffersAndNoMore) {
  const auto buffers = *DoubleBuffer::Create(1000);
  const auto first = buffers->TryAcquire();
  const auto second = buffers->TryAcquire();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, second);
  EXPECT_EQ(buffers->TryAcquire(), nullptr);
}

TEST(DoubleBufferTest, TheLastHandleGivesTheBufferBackWithItsPages) {
  const auto buffers = *DoubleBuffer::Create(1000);
  auto first = buffers->TryAcquire();
  const auto second = buffers->TryAcquire();
  std::byte* const data = first.get();
  std::shared_ptr<const std::byte> copy = first;
  first.reset();
  EXPECT_EQ(buffers->TryAcquire(), nullptr) << "a copy of the handle still holds it";
  copy.reset();
  EXPECT_EQ(buffers->TryAcquire().get(), data);
}

TEST(DoubleBufferTest, TellsWhenABufferComesFree) {
  auto buffers = *DoubleBuffer::Create(10);
  int released = 0;
  std::shared_ptr<std::byte> again;
  // TryAcquire may be called from the callback.
  buffers->SetOnRelease([&] {
    ++released;
    again = buffers->TryAcquire();
  });
  auto first = buffers->TryAcquire();
  const auto second = buffers->TryAcquire();
  EXPECT_EQ(released, 0);
  std::byte* const data = first.get();
  first.reset();
  EXPECT_EQ(released, 1);
  EXPECT_EQ(again.get(), data);
  buffers->SetOnRelease(nullptr);
  again.reset();
  EXPECT_EQ(released, 1);
}

TEST(DoubleBufferTest, HandlesOutliveTheOwner) {
  auto buffers = *DoubleBuffer::Create(1 << 20);
  const auto held = buffers->TryAcquire();
  buffers->SetOnRelease([] { FAIL() << "called after the owner died"; });
  buffers.reset();
  std::memset(held.get(), 7, 1 << 20);
  EXPECT_EQ(held.get()[(1 << 20) - 1], std::byte{7});
}

TEST(DoubleBufferTest, ManyThreadsTakeTurns) {
  const auto buffers = *DoubleBuffer::Create(64);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 2000; ++round) {
        const auto held = buffers->TryAcquire();
        if (held == nullptr) continue;
        std::memset(held.get(), i, 64);
        for (int at = 0; at < 64; ++at) ASSERT_EQ(held.get()[at], static_cast<std::byte>(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(PagesTest, AreZeroAlignedAndNeverNull) {
  const auto large = *AllocatePages(5 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.get()) % 4096, 0u);
  EXPECT_EQ(large.get()[(5 << 20) - 1], std::byte{0});
  EXPECT_NE(*AllocatePages(0), nullptr);
  EXPECT_EQ(AllocatePages(uint64_t{1} << 62).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace leeway
