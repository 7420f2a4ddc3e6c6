#include "formats/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
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

// Follows the parser's events through the only shape a header may have:
//   { "__metadata__": {string: string}, NAME: {"dtype": string, "shape": [n...], "data_offsets": [b, e]}, ... }
// Every event either fits the place it comes at or stops the parser with a message. Keeps no depth but `place_`, so
// nesting can not hurt.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override {
    return Unexpected(absl::StrCat("the negative number ", value));
  }
  bool number_float(number_float_t, const string_t& text) override { return Unexpected("the number " + Shown(text)); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Refuse(absl::StrCat("tensor '", Shown(entry_.name), "': dimension ", value, " is too large"));
      }
      entry_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offsets_seen_ == 2) {
        return Refuse(absl::StrCat("tensor '", Shown(entry_.name), "': data_offsets has more than two numbers"));
      }
      (offsets_seen_ == 0 ? entry_.begin : entry_.end) = value;
      ++offsets_seen_;
      return true;
    }
    return Unexpected(absl::StrCat("the number ", value));
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadataValue) {
      if (!header_.metadata.emplace(metadata_key_, value).second) {
        return Refuse(absl::StrCat("__metadata__ has the key '", Shown(metadata_key_), "' twice"));
      }
      place_ = Place::kMetadata;
      return true;
    }
    if (place_ == Place::kDType) {
      entry_.dtype = value;
      place_ = Place::kEntry;
      return true;
    }
    return Unexpected("the string '" + Shown(value) + "'");
  }

  bool start_object(size_t) override {
    switch (place_) {
      case Place::kFile:
        place_ = Place::kTop;
        return true;
      case Place::kMetadataStart:
        place_ = Place::kMetadata;
        return true;
      case Place::kEntryStart:
        place_ = Place::kEntry;
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool key(string_t& key) override {
    switch (place_) {
      case Place::kTop:
        if (!names_.insert(key).second) return Refuse(absl::StrCat("the key '", Shown(key), "' is given twice"));
        if (key == "__metadata__") {
          place_ = Place::kMetadataStart;
          return true;
        }
        entry_ = {.name = key};
        fields_.clear();
        offsets_seen_ = 0;
        place_ = Place::kEntryStart;
        return true;
      case Place::kMetadata:
        metadata_key_ = key;
        place_ = Place::kMetadataValue;
        return true;
      default:
        return FieldKey(key);
    }
  }

  bool end_object() override {
    switch (place_) {
      case Place::kEntry:
        for (const char* field : {"dtype", "shape", "data_offsets"}) {
          if (fields_.count(field) == 0)
            return Refuse(absl::StrCat("tensor '", Shown(entry_.name), "' has no ", field));
        }
        header_.entries.push_back(std::move(entry_));
        place_ = Place::kTop;
        return true;
      case Place::kMetadata:
        place_ = Place::kTop;
        return true;
      default:  // kTop: the parser lets no other object end
        place_ = Place::kFile;
        return true;
    }
  }

  bool start_array(size_t) override {
    if (place_ == Place::kShapeStart) {
      place_ = Place::kShape;
      return true;
    }
    if (place_ == Place::kOffsetsStart) {
      place_ = Place::kOffsets;
      return true;
    }
    return Unexpected("an array");
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_seen_ != 2) {
      return Refuse(absl::StrCat("tensor '", Shown(entry_.name), "': data_offsets has ", offsets_seen_,
                                 " numbers, expected two"));
    }
    place_ = Place::kEntry;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    return Refuse(absl::StrCat("the header is not valid JSON in UTF-8 at byte ", position, " of it"));
  }

  SafetensorsHeader& header() { return header_; }
  const std::string& fault() const { return fault_; }

 private:
  // What the next event belongs to.
  enum class Place {
    kFile,
    kTop,
    kMetadataStart,
    kMetadata,
    kMetadataValue,
    kEntryStart,
    kEntry,
    kDType,
    kShapeStart,
    kShape,
    kOffsetsStart,
    kOffsets
  };

  static std::string Shown(absl::string_view text) {
    constexpr size_t kMaxShown = 200;
    if (text.size() <= kMaxShown) return absl::Utf8SafeCHexEscape(text);
    return absl::StrCat(absl::Utf8SafeCHexEscape(text.substr(0, kMaxShown)), "…");
  }

  bool FieldKey(const std::string& key) {
    if (key == "dtype") {
      place_ = Place::kDType;
    } else if (key == "shape") {
      place_ = Place::kShapeStart;
    } else if (key == "data_offsets") {
      place_ = Place::kOffsetsStart;
    } else {
      return Refuse(absl::StrCat("tensor '", Shown(entry_.name), "' has the unknown key '", Shown(key),
                                 "' (known: dtype, shape, data_offsets)"));
    }
    if (fields_.insert(key).second) return true;
    return Refuse(absl::StrCat("tensor '", Shown(entry_.name), "' has the key '", key, "' twice"));
  }

  bool Unexpected(const std::string& what) {
    const std::string tensor = absl::StrCat("tensor '", Shown(entry_.name), "': ");
    switch (place_) {
      case Place::kFile:
      case Place::kTop:
        return Refuse(absl::StrCat("the header is ", what, ", expected an object"));
      case Place::kMetadataStart:
        return Refuse(absl::StrCat("__metadata__ is ", what, ", expected an object of strings"));
      case Place::kMetadata:
      case Place::kMetadataValue:
        return Refuse(absl::StrCat("__metadata__ '", Shown(metadata_key_), "' is ", what, ", expected a string"));
      case Place::kDType:
        return Refuse(absl::StrCat(tensor, "dtype is ", what, ", expected a string"));
      case Place::kShapeStart:
      case Place::kShape:
        return Refuse(absl::StrCat(tensor, "shape has ", what, ", expected an array of whole numbers from 0"));
      case Place::kOffsetsStart:
      case Place::kOffsets:
        return Refuse(
            absl::StrCat(tensor, "data_offsets has ", what, ", expected an array of two whole numbers from 0"));
      case Place::kEntryStart:
      case Place::kEntry:
        break;
    }
    return Refuse(absl::StrCat(tensor, "is ", what, ", expected an object with dtype, shape and data_offsets"));
  }

  bool Refuse(std::string fault) {
    fault_ = std::move(fault);
    return false;
  }

  Place place_ = Place::kFile;
  SafetensorsHeader header_;
  std::string fault_;

  // Keys of the top object so far.
  std::set<std::string> names_;
  std::string metadata_key_;

  // The entry that is being read.
  SafetensorsEntry entry_;
  std::set<std::string> fields_;
  int offsets_seen_ = 0;
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
  HeaderReader reader;
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
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) json["__metadata__"] = header.metadata;
  for (const SafetensorsEntry& entry : header.entries) {
    nlohmann::ordered_json described;
    described["dtype"] = entry.dtype;
    described["shape"] = entry.shape;
    described["data_offsets"] = {entry.begin, entry.end};
    json.push_back({entry.name, std::move(described)});
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError("a tensor name or a metadata text is not valid UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace leeway::internal
