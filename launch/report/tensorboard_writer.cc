#include "launch/report/tensorboard_writer.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/status_macros.h"
#include "fmt/format.h"

namespace leeway {
namespace {

// Wire types of protobuf.
constexpr int kVarint = 0;
constexpr int kFixed64 = 1;
constexpr int kLengthDelimited = 2;
constexpr int kFixed32 = 5;

void AppendLittleEndian(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void AppendTag(int field, int wire_type, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field << 3 | wire_type), out);
}

void AppendBytes(int field, const std::string& bytes, std::string* out) {
  AppendTag(field, kLengthDelimited, out);
  AppendVarint(bytes.size(), out);
  *out += bytes;
}

// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
std::string EventHead(double wall_seconds, int64_t step) {
  std::string event;
  AppendTag(1, kFixed64, &event);
  AppendLittleEndian(std::bit_cast<uint64_t>(wall_seconds), 8, &event);
  AppendTag(2, kVarint, &event);
  AppendVarint(static_cast<uint64_t>(step), &event);
  return event;
}

// Summary.Value { string tag = 1; float simple_value = 2; }
std::string SummaryValue(const std::string& tag, double value) {
  std::string encoded;
  AppendBytes(1, tag, &encoded);
  AppendTag(2, kFixed32, &encoded);
  AppendLittleEndian(std::bit_cast<uint32_t>(static_cast<float>(value)), 4, &encoded);
  return encoded;
}

}  // namespace

namespace internal {

uint32_t Crc32c(const std::string& bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made;
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
      made[i] = crc;
    }
    return made;
  }();
  uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

uint32_t MaskedCrc32c(const std::string& bytes) {
  const uint32_t crc = Crc32c(bytes);
  return std::rotr(crc, 15) + 0xa282ead8u;
}

std::string TfRecord(const std::string& payload) {
  std::string record;
  AppendLittleEndian(payload.size(), 8, &record);
  AppendLittleEndian(MaskedCrc32c(record), 4, &record);
  record += payload;
  AppendLittleEndian(MaskedCrc32c(payload), 4, &record);
  return record;
}

}  // namespace internal

TensorboardWriter::TensorboardWriter(FileSystem* files, std::string directory, int64_t wall_seconds)
    : files_(files),
      directory_(std::move(directory)),
      path_(fmt::format("{}/events.out.tfevents.{}.leeway", directory_, wall_seconds)),
      start_seconds_(static_cast<double>(wall_seconds)) {}

absl::Status TensorboardWriter::Write(int64_t step, double wall_seconds,
                                      const std::vector<std::pair<std::string, double>>& scalars) {
  if (!is_started_) {
    LEEWAY_RETURN_IF_ERROR(files_->CreateDirectory(directory_));
    std::string event = EventHead(start_seconds_, 0);
    AppendBytes(3, "brain.Event:2", &event);
    LEEWAY_RETURN_IF_ERROR(Append(event));
    is_started_ = true;
  }
  std::string summary;
  for (const auto& [tag, value] : scalars) AppendBytes(1, SummaryValue(tag, value), &summary);
  std::string event = EventHead(wall_seconds, step);
  AppendBytes(5, summary, &event);
  return Append(event);
}

absl::Status TensorboardWriter::Append(const std::string& event) {
  return files_->AppendToFile(path_, internal::TfRecord(event));
}

}  // namespace leeway
