#include "queue/store/disk/bundle_reader.h"

#include <map>
#include <string>
#include <utility>

#include "base/hash.h"
#include "gmock/gmock.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

// Bundles in memory, and how often each was read.
class Bundles {
 public:
  explicit Bundles(uint64_t memory_bytes)
      : readers_(std::make_shared<BundleReaders>(
            [this](uint64_t list) -> absl::StatusOr<std::string> {
              ++reads[list];
              if (std::exchange(fails_once, false)) return absl::InternalError("the disk failed");
              const auto found = bytes.find(list);
              if (found == bytes.end()) return absl::DataLossError("no such bundle");
              return found->second;
            },
            memory_bytes)) {}

  BundleReaders& readers() { return *readers_; }
  void Close() { readers_.reset(); }

  std::map<uint64_t, std::string> bytes;
  std::map<uint64_t, int> reads;
  bool fails_once = false;

 private:
  std::shared_ptr<BundleReaders> readers_;
};

PayloadPlace PlaceOf(uint64_t list, uint64_t offset, const std::string& bytes) {
  return {list, 0, 0, offset, bytes.size(), Hash64(bytes.data(), bytes.size())};
}

std::string Read(const std::shared_ptr<BundleReader>& reader, uint64_t list, uint64_t offset,
                 const std::string& bytes) {
  const absl::StatusOr<Payload> payload = reader->Read({7, 1}, PlaceOf(list, offset, bytes));
  return payload.ok() ? **payload : std::string(payload.status().message());
}

TEST(BundleReaderTest, NeighboursAreReadOnceAndTheNewestStayInMemory) {
  Bundles bundles(/*memory_bytes=*/10);
  bundles.bytes = {{1, "aabbb"}, {2, "cccc"}, {3, "dddddd"}};
  EXPECT_EQ(Read(bundles.readers().Open(1), 1, 0, "aa"), "aa");
  EXPECT_EQ(Read(bundles.readers().Open(1), 1, 2, "bbb"), "bbb");
  EXPECT_EQ(Read(bundles.readers().Open(2), 2, 0, "cccc"), "cccc");
  EXPECT_EQ(Read(bundles.readers().Open(1), 1, 2, "bbb"), "bbb");
  EXPECT_EQ(bundles.reads[1], 1);
  EXPECT_EQ(Read(bundles.readers().Open(3), 3, 0, "dddddd"), "dddddd");  // 1 has to go, 2 may stay
  EXPECT_EQ(Read(bundles.readers().Open(2), 2, 0, "cccc"), "cccc");
  EXPECT_EQ(bundles.reads[2], 1);
  EXPECT_EQ(Read(bundles.readers().Open(1), 1, 0, "aa"), "aa");
  EXPECT_EQ(bundles.reads[1], 2);
}

TEST(BundleReaderTest, WhoHasOpenedABundleThatGoesCanReadIt) {
  Bundles bundles(/*memory_bytes=*/4);
  bundles.bytes = {{1, "aabbb"}, {2, "cccc"}, {3, "dddddd"}};
  const auto held = bundles.readers().Open(1);
  bundles.readers().KeepForHolders(1);
  bundles.readers().KeepForHolders(2);  // nobody has it
  bundles.bytes.erase(1);
  bundles.bytes.erase(2);
  bundles.readers().Forget(1);
  EXPECT_EQ(bundles.reads[2], 0);
  EXPECT_EQ(Read(bundles.readers().Open(3), 3, 0, "dddddd"), "dddddd");
  EXPECT_EQ(Read(held, 1, 2, "bbb"), "bbb");
  bundles.Close();
  EXPECT_EQ(Read(held, 1, 2, "bbb"), "bbb");
  EXPECT_EQ(bundles.reads[1], 1);
}

TEST(BundleReaderTest, ABundleThatGoesWhileTheDiskFailsIsNotCalledLost) {
  Bundles bundles(/*memory_bytes=*/100);
  bundles.bytes = {{1, "aabbb"}, {2, "cccc"}};
  const auto held = bundles.readers().Open(1);
  bundles.fails_once = true;
  bundles.readers().KeepForHolders(1);
  bundles.bytes.erase(1);
  bundles.readers().Forget(1);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const absl::StatusOr<Payload> failed = held->Read({7, 1}, PlaceOf(1, 0, "aa"));
    EXPECT_EQ(failed.status().code(), absl::StatusCode::kInternal);
    EXPECT_EQ(failed.status().message(), "ticket 7 member 1: the disk failed");
  }
  EXPECT_EQ(bundles.reads[1], 1);
  // One that stays in the database is asked for again.
  bundles.fails_once = true;
  const auto staying = bundles.readers().Open(2);
  EXPECT_EQ(staying->Read({7, 1}, PlaceOf(2, 0, "cccc")).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Read(staying, 2, 0, "cccc"), "cccc");
}

TEST(BundleReaderTest, WhatCannotBeReadSaysWhatAndWhere) {
  Bundles bundles(/*memory_bytes=*/100);
  bundles.bytes = {{1, "aabbb"}};
  const auto reader = bundles.readers().Open(1);
  EXPECT_EQ(Read(reader, 1, 0, "ab"), "ticket 7 member 1: its 2 bytes at offset 0 of bundle 1 are damaged");
  EXPECT_EQ(Read(reader, 1, 3, "bbb"), "ticket 7 member 1: its 3 bytes at offset 3 of bundle 1 are cut off");
  EXPECT_EQ(Read(reader, 1, ~0ull, "bbb"),
            "ticket 7 member 1: its 3 bytes at offset 18446744073709551615 of bundle 1 are cut off");
  EXPECT_EQ(Read(reader, 1, 5, ""), "");
  const absl::StatusOr<Payload> missing = bundles.readers().Open(9)->Read({7, 1}, PlaceOf(9, 0, "x"));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(missing.status().message(), "ticket 7 member 1: no such bundle");
  const auto unread = bundles.readers().Open(2);
  bundles.Close();
  EXPECT_EQ(unread->Read({7, 1}, PlaceOf(2, 0, "x")).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace leeway
