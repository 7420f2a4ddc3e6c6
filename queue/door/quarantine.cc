#include "queue/door/quarantine.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "base/logging.h"
#include "google/protobuf/util/json_util.h"
#include "leeway/v1/types.pb.h"
#include "nlohmann/json.hpp"

namespace leeway {
namespace {

// The content as a JSON member, made without parsing protobuf's JSON again.
std::string Content(absl::string_view bytes) {
  v1::Trajectory trajectory;
  std::string json;
  if (trajectory.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) &&
      google::protobuf::util::MessageToJsonString(trajectory, &json).ok()) {
    return "\"trajectory\":" + json;
  }
  return "\"base64\":\"" + absl::Base64Escape(bytes) + "\"";
}

std::string Head(absl::string_view reason, absl::string_view from, size_t size_bytes) {
  const nlohmann::ordered_json head = {
      {"reason", std::string(reason)}, {"from", std::string(from)}, {"bytes", size_bytes}};
  // Names and messages may hold bytes that are not UTF-8.
  std::string text = head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.pop_back();  // the closing brace
  return text;
}

}  // namespace

Quarantine::Quarantine(FileSystem* file_system, std::string path, uint64_t max_bytes)
    : file_system_(file_system), path_(std::move(path)), max_bytes_(max_bytes) {
  if (path_.empty() || !file_system_->Exists(path_)) return;
  MutexLock lock(&mutex_);
  size_ = file_system_->FileSize(path_).value_or(max_bytes_);
}

void Quarantine::Keep(absl::string_view reason, absl::string_view from, absl::string_view bytes) {
  const std::string head = Head(reason, from, bytes.size());
  MutexLock lock(&mutex_);
  ++kept_;
  // JSON is larger than the bytes: what cannot fit is not even converted.
  if (size_ + bytes.size() < max_bytes_ && Append(head + "," + Content(bytes) + "}\n")) return;
  ++dropped_;
  Append(head + "}\n");
}

bool Quarantine::Append(const std::string& line) {
  if (path_.empty() || size_ + line.size() > max_bytes_) return false;
  const absl::Status status = file_system_->AppendToFile(path_, line);
  if (!status.ok()) {
    LEEWAY_LOG_WARNING("a refused trajectory is not kept: {}", std::string(status.message()));
    return false;
  }
  size_ += line.size();
  return true;
}

uint64_t Quarantine::kept() const {
  MutexLock lock(&mutex_);
  return kept_;
}

uint64_t Quarantine::dropped() const {
  MutexLock lock(&mutex_);
  return dropped_;
}

}  // namespace leeway
