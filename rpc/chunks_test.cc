#include "rpc/chunks.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "leeway/v1/queue.pb.h"
#include "rpc/fake_chunks.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Cut(const std::string& payload, uint64_t max_chunk_bytes) {
  std::vector<std::string> pieces;
  uint64_t offset = 0;
  v1::PushChunk chunk;
  while (!chunk.last()) {
    const uint64_t size = CutChunk(payload, max_chunk_bytes, &offset, &chunk);
    EXPECT_EQ(size, chunk.data().size());
    EXPECT_EQ(chunk.total_bytes(), payload.size());
    pieces.push_back(chunk.data());
  }
  return pieces;
}

TEST(Chunks, CutsAtTheLimit) {
  EXPECT_THAT(Cut("", 3), ElementsAre(""));
  EXPECT_THAT(Cut("abc", 3), ElementsAre("abc"));
  EXPECT_THAT(Cut("abcd", 3), ElementsAre("abc", "d"));
  EXPECT_THAT(Cut("abcdef", 3), ElementsAre("abc", "def"));
}

TEST(Chunks, WhatIsAnnouncedIsNotAllocated) {
  constexpr uint64_t kHuge = uint64_t{1} << 50;
  ChunkAssembler assembler(/*max_payload_bytes=*/kHuge, /*max_chunk_bytes=*/7);
  EXPECT_EQ(*assembler.Add(1, kHuge, "abc", false), false);
}

TEST(Chunks, WhatIsCutComesTogetherAgain) {
  ChunkAssembler assembler(/*max_payload_bytes=*/1000, /*max_chunk_bytes=*/7);
  uint64_t key = 0;
  for (size_t size : {0, 1, 6, 7, 8, 14, 15, 1000}) {
    std::string payload;
    for (size_t i = 0; i < size; ++i) payload.push_back(static_cast<char>('a' + (i * 7 + size) % 26));
    ++key;
    std::vector<std::string> pieces = Cut(payload, 7);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const bool last = i + 1 == pieces.size();
      const absl::StatusOr<bool> complete = assembler.Add(key, size, pieces[i], last);
      ASSERT_TRUE(complete.ok()) << complete.status();
      EXPECT_EQ(*complete, last);
      EXPECT_EQ(assembler.in_progress(), !last);
    }
    EXPECT_EQ(assembler.Take(&pieces.back()), payload);
  }
}

TEST(Chunks, AWholePieceIsNotCopied) {
  ChunkAssembler assembler(100, 100);
  std::string piece(50, 'x');
  const char* const bytes = piece.data();
  ASSERT_TRUE(assembler.Add(1, 50, piece, true).value());
  EXPECT_EQ(assembler.Take(&piece).data(), bytes);
}

TEST(Chunks, RefusesWhatItWasNotPromised) {
  const struct {
    const char* name;
    // Pieces in order; only the last one is wrong.
    struct Piece {
      uint64_t key;
      uint64_t total;
      std::string data;
      bool last;
    };
    std::vector<Piece> pieces;
    std::string complaint;
  } cases[] = {
      {"chunk too large", {{1, 20, std::string(11, 'x'), false}}, "a chunk has 11 bytes, the limit is 10"},
      {"payload too large", {{1, 101, "x", false}}, "has 101 bytes, the limit is 100"},
      {"another payload between", {{1, 4, "ab", false}, {2, 4, "ab", false}}, "before the last one of payload 1"},
      {"total changes", {{1, 4, "ab", false}, {1, 5, "ab", false}}, "changed from 4 to 5"},
      {"too many bytes", {{1, 4, "abc", false}, {1, 4, "de", true}}, "5 bytes of 4 announced at the last"},
      {"too few bytes", {{1, 4, "ab", false}, {1, 4, "c", true}}, "3 bytes of 4 announced at the last"},
      {"too many before the last", {{1, 4, "abcde", false}}, "5 bytes of 4 announced so far"},
      {"an endless drip of nothing", {{1, 4, "", false}}, "0 bytes of 4 announced so far"},
  };
  for (const auto& c : cases) {
    ChunkAssembler assembler(100, 10);
    for (size_t i = 0; i < c.pieces.size(); ++i) {
      const auto& piece = c.pieces[i];
      const absl::StatusOr<bool> complete = assembler.Add(piece.key, piece.total, piece.data, piece.last);
      if (i + 1 < c.pieces.size()) {
        ASSERT_TRUE(complete.ok()) << c.name;
        continue;
      }
      ASSERT_FALSE(complete.ok()) << c.name;
      EXPECT_TRUE(absl::IsInvalidArgument(complete.status()));
      EXPECT_THAT(std::string(complete.status().message()), HasSubstr(c.complaint)) << c.name;
    }
  }
}

}  // namespace
}  // namespace leeway
