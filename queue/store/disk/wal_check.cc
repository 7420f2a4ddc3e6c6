#include "queue/store/disk/wal_check.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "queue/store/disk/io_status.h"

namespace leeway {
namespace {

constexpr size_t kBlockBytes = 32 * 1024;
// CRC (4), length (2), type (1).
constexpr size_t kHeaderBytes = 7;
enum Type : uint8_t { kZero = 0, kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

uint32_t Crc32c(absl::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made;
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0);
      made[i] = value;
    }
    return made;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = table[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

struct Fragment {
  uint8_t type = kZero;
  // With the header.
  size_t size_bytes = 0;
};

// The fragment at the start of `block` (the rest of a block); size 0 = there is no valid one.
Fragment Parse(absl::string_view block) {
  if (block.size() < kHeaderBytes) return {};
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(block[i])); };
  const size_t length = byte(4) | byte(5) << 8;
  const uint8_t type = byte(6);
  if (type < kFull || type > kLast || kHeaderBytes + length > block.size()) return {};
  const uint32_t masked = (byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24) - 0xa282ead8u;
  const uint32_t stored = masked >> 17 | masked << 15;
  if (Crc32c(block.substr(6, 1 + length)) != stored) return {};
  return {type, kHeaderBytes + length};
}

}  // namespace

WalState CheckWal(absl::string_view bytes) {
  bool damaged = false;
  for (size_t begin = 0; begin < bytes.size(); begin += kBlockBytes) {
    absl::string_view block = bytes.substr(begin, kBlockBytes);
    while (block.size() >= kHeaderBytes) {
      const Fragment fragment = Parse(block);
      if (fragment.size_bytes == 0) {
        // From here on every offset may be where an intact fragment begins: lengths are not to be trusted.
        damaged = true;
        block.remove_prefix(1);
        continue;
      }
      if (damaged && (fragment.type == kFull || fragment.type == kFirst)) return WalState::kDamaged;
      block.remove_prefix(fragment.size_bytes);
    }
  }
  return damaged ? WalState::kTornTail : WalState::kIntact;
}

absl::StatusOr<WalState> CheckWals(rocksdb::FileSystem* file_system, const std::string& directory) {
  const rocksdb::IOOptions io;
  std::vector<std::string> names;
  LEEWAY_RETURN_IF_ERROR(
      FromRocksDb(file_system->GetChildren(directory, io, &names, nullptr), absl::StrCat("list ", directory)));
  std::sort(names.begin(), names.end());
  WalState state = WalState::kIntact;
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, ".log")) continue;
    const std::string path = absl::StrCat(directory, "/", name);
    uint64_t size_bytes = 0;
    LEEWAY_RETURN_IF_ERROR(
        FromRocksDb(file_system->GetFileSize(path, io, &size_bytes, nullptr), absl::StrCat("size of ", path)));
    if (size_bytes == 0) continue;
    if (state != WalState::kIntact) return WalState::kDamaged;
    std::unique_ptr<rocksdb::FSRandomAccessFile> file;
    LEEWAY_RETURN_IF_ERROR(FromRocksDb(file_system->NewRandomAccessFile(path, rocksdb::FileOptions(), &file, nullptr),
                                       absl::StrCat("open ", path)));
    std::string bytes(size_bytes, '\0');
    rocksdb::Slice read;
    LEEWAY_RETURN_IF_ERROR(
        FromRocksDb(file->Read(0, size_bytes, io, &read, bytes.data(), nullptr), absl::StrCat("read ", path)));
    state = CheckWal(absl::string_view(read.data(), read.size()));
  }
  return state;
}

}  // namespace leeway
