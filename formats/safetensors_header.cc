#include "formats/safetensors_header.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "formats/safetensors_header_reader.h"
#include "nlohmann/json.hpp"

namespace leeway::internal {
namespace {

struct DTypeSize {
  const char* name;
  int bits;
};
constexpr DTypeSize kDTypeSizes[] = {
    {"BOOL", 8},        {"U8", 8},          {"I8", 8},      {"I16", 16},    {"U16", 16},    {"F16", 16},
    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},        {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F4", 4},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

// That the entry's range is as long as its dtype and shape say.
absl::Status CheckSize(const SafetensorsEntry& entry) {
  const auto fault = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", absl::Utf8SafeCHexEscape(entry.name), "': ", what));
  };
  const int bits = SafetensorsDTypeBits(entry.dtype);
  if (bits == 0) {
    const std::string known = absl::StrJoin(
        kDTypeSizes, ", ", [](std::string* out, const DTypeSize& size) { absl::StrAppend(out, size.name); });
    return fault(absl::StrCat("unknown dtype '", absl::Utf8SafeCHexEscape(entry.dtype), "' (known: ", known, ")"));
  }
  const std::string shape = absl::StrCat("[", absl::StrJoin(entry.shape, ", "), "]");
  uint64_t total_bits = static_cast<uint64_t>(bits);
  for (const int64_t dimension : entry.shape) {
    if (__builtin_mul_overflow(total_bits, static_cast<uint64_t>(dimension), &total_bits)) {
      return fault(absl::StrCat("shape ", shape, " of ", entry.dtype, " is larger than 64 bits can count"));
    }
  }
  if (total_bits % 8 != 0) {
    return fault(absl::StrCat("shape ", shape, " of ", entry.dtype, " is not a whole number of bytes"));
  }
  if (entry.end < entry.begin || entry.end - entry.begin != total_bits / 8) {
    return fault(absl::StrCat("data_offsets [", entry.begin, ", ", entry.end, "] do not hold the ", total_bits / 8,
                              " bytes of shape ", shape, " of ", entry.dtype));
  }
  return absl::OkStatus();
}

// That the tensors tile [0, data_bytes).
absl::Status CheckTiling(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  uint64_t expected = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != expected) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", absl::Utf8SafeCHexEscape(entry.name),
                                                     "' begins at byte ", entry.begin,
                                                     " of the data, but the one before it ends at ", expected,
                                                     entry.begin < expected ? ": they overlap" : ": there is a hole"));
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tensors take ", expected, " bytes, but ", data_bytes, " follow the header: ",
                     expected > data_bytes ? "the file was cut off" : "there is something behind the last tensor"));
  }
  return absl::OkStatus();
}

}  // namespace

int SafetensorsDTypeBits(absl::string_view dtype) {
  for (const DTypeSize& size : kDTypeSizes) {
    if (dtype == size.name) return size.bits;
  }
  return 0;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view text, uint64_t data_bytes) {
  if (text.empty() || text.front() != '{') return absl::InvalidArgumentError("the header does not begin with '{'");
  const size_t last = text.find_last_not_of(' ');
  if (text[last] != '}') {
    return absl::InvalidArgumentError(absl::StrCat("the header ends with the byte '",
                                                   absl::CHexEscape(text.substr(last, 1)),
                                                   "', expected '}' and nothing but spaces behind it"));
  }
  SafetensorsHeaderReader reader;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) return absl::InvalidArgumentError(reader.fault());
  SafetensorsHeader header = std::move(reader.header());
  for (const SafetensorsEntry& entry : header.entries) LEEWAY_RETURN_IF_ERROR(CheckSize(entry));
  // Empty tensors lie before the one that begins where they do.
  std::sort(header.entries.begin(), header.entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  LEEWAY_RETURN_IF_ERROR(CheckTiling(header.entries, data_bytes));
  return header;
}

absl::StatusOr<std::string> FormatSafetensorsHeader(const SafetensorsHeader& header) {
  // Member by member: an ordered_json object would compare each new key with all before it.
  std::string text;
  try {
    if (!header.metadata.empty()) {
      absl::StrAppend(&text, R"(,"__metadata__":)", nlohmann::json(header.metadata).dump());
    }
    for (const SafetensorsEntry& entry : header.entries) {
      absl::StrAppend(&text, ",", nlohmann::json(entry.name).dump(), R"(:{"dtype":")", entry.dtype, R"(","shape":[)",
                      absl::StrJoin(entry.shape, ","), R"(],"data_offsets":[)", entry.begin, ",", entry.end, "]}");
    }
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError("a tensor name or a metadata text is not valid UTF-8");
  }
  text = absl::StrCat("{", absl::ClippedSubstr(text, 1), "}");
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace leeway::internal
