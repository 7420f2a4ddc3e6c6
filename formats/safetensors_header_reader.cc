#include "formats/safetensors_header_reader.h"

#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace leeway::internal {
namespace {

// Names and strings in messages: printable, and not longer than a line or two.
std::string Shown(absl::string_view text) {
  constexpr size_t kMaxShown = 200;
  if (text.size() <= kMaxShown) return absl::Utf8SafeCHexEscape(text);
  return absl::StrCat(absl::Utf8SafeCHexEscape(text.substr(0, kMaxShown)), "...");
}

}  // namespace

bool SafetensorsHeaderReader::null() { return Unexpected("null"); }
bool SafetensorsHeaderReader::boolean(bool) { return Unexpected("a boolean"); }
bool SafetensorsHeaderReader::binary(binary_t&) { return Unexpected("binary data"); }
bool SafetensorsHeaderReader::number_integer(number_integer_t value) {
  return Unexpected(absl::StrCat("the negative number ", value));
}
bool SafetensorsHeaderReader::number_float(number_float_t, const string_t& text) {
  return Unexpected("the number " + Shown(text));
}

bool SafetensorsHeaderReader::number_unsigned(number_unsigned_t value) {
  if (place_ == Place::kShape) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return RefuseEntry(absl::StrCat("dimension ", value, " is too large"));
    }
    entry_.shape.push_back(static_cast<int64_t>(value));
    return true;
  }
  if (place_ == Place::kOffsets) {
    if (offsets_seen_ == 2) return RefuseEntry("data_offsets has more than two numbers");
    (offsets_seen_ == 0 ? entry_.begin : entry_.end) = value;
    ++offsets_seen_;
    return true;
  }
  return Unexpected(absl::StrCat("the number ", value));
}

bool SafetensorsHeaderReader::string(string_t& value) {
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

bool SafetensorsHeaderReader::start_object(size_t) {
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

bool SafetensorsHeaderReader::key(string_t& key) {
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

bool SafetensorsHeaderReader::end_object() {
  switch (place_) {
    case Place::kEntry:
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        if (fields_.count(field) == 0) return Refuse(absl::StrCat("tensor '", Shown(entry_.name), "' has no ", field));
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

bool SafetensorsHeaderReader::start_array(size_t) {
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

bool SafetensorsHeaderReader::end_array() {
  if (place_ == Place::kOffsets && offsets_seen_ != 2) {
    return RefuseEntry(absl::StrCat("data_offsets has ", offsets_seen_, " numbers, expected two"));
  }
  place_ = Place::kEntry;
  return true;
}

bool SafetensorsHeaderReader::parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
  return Refuse(absl::StrCat("the header is not valid JSON in UTF-8 at byte ", position, " of it"));
}

bool SafetensorsHeaderReader::FieldKey(const std::string& key) {
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

bool SafetensorsHeaderReader::Unexpected(const std::string& what) {
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
      return RefuseEntry(absl::StrCat("dtype is ", what, ", expected a string"));
    case Place::kShapeStart:
    case Place::kShape:
      return RefuseEntry(absl::StrCat("shape has ", what, ", expected an array of whole numbers from 0"));
    case Place::kOffsetsStart:
    case Place::kOffsets:
      return RefuseEntry(absl::StrCat("data_offsets has ", what, ", expected an array of two whole numbers from 0"));
    case Place::kEntryStart:
    case Place::kEntry:
      break;
  }
  return RefuseEntry(absl::StrCat("is ", what, ", expected an object with dtype, shape and data_offsets"));
}

bool SafetensorsHeaderReader::RefuseEntry(const std::string& what) {
  return Refuse(absl::StrCat("tensor '", Shown(entry_.name), "': ", what));
}

bool SafetensorsHeaderReader::Refuse(std::string fault) {
  fault_ = std::move(fault);
  return false;
}

}  // namespace leeway::internal
