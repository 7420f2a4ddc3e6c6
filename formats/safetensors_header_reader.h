#ifndef LEEWAY_FORMATS_SAFETENSORS_HEADER_READER_H_
#define LEEWAY_FORMATS_SAFETENSORS_HEADER_READER_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "formats/safetensors_header.h"
#include "nlohmann/json.hpp"

namespace leeway::internal {

// Follows the JSON parser's events through the only shape a safetensors header may have:
//   { "__metadata__": {string: string}, NAME: {"dtype": string, "shape": [n...], "data_offsets": [b, e]}, ... }
// Every event either fits the place it comes at, or stops the parser with a message. Keeps no depth but `place_`, so
// nesting can not hurt. Judges the shape of the JSON alone; sizes and offsets are ParseSafetensorsHeader's.
class SafetensorsHeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override;
  bool boolean(bool value) override;
  bool number_integer(number_integer_t value) override;
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t value, const string_t& text) override;
  bool string(string_t& value) override;
  bool binary(binary_t& value) override;
  bool start_object(size_t elements) override;
  bool key(string_t& key) override;
  bool end_object() override;
  bool start_array(size_t elements) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string& last_token, const nlohmann::json::exception& error) override;

  // What was read; entries in the order of the text.
  SafetensorsHeader& header() { return header_; }
  // Why the parser was stopped.
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

  bool FieldKey(const std::string& key);
  // "tensor 'NAME': " and the text, for faults of the entry that is being read.
  bool RefuseEntry(const std::string& what);
  // An event of a kind that does not fit place_.
  bool Unexpected(const std::string& what);
  bool Refuse(std::string fault);

  Place place_ = Place::kFile;
  SafetensorsHeader header_;
  std::string fault_;

  // Keys of the top object so far.
  std::set<std::string> names_;
  std::string metadata_key_;

  // The entry that is being read, and its keys so far.
  SafetensorsEntry entry_;
  std::set<std::string> fields_;
  int offsets_seen_ = 0;
};

}  // namespace leeway::internal

#endif  // LEEWAY_FORMATS_SAFETENSORS_HEADER_READER_H_
