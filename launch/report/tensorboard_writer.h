#ifndef LEEWAY_LAUNCH_REPORT_TENSORBOARD_WRITER_H_
#define LEEWAY_LAUNCH_REPORT_TENSORBOARD_WRITER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/file_system.h"

namespace leeway {

// Writes a TensorBoard event file. Records are TFRecords: u64 length, masked CRC-32C of it, the Event message, masked
// CRC-32C of that, all little-endian. The few fields of Event and Summary that scalars need are encoded by hand, so
// that no protobuf of TensorFlow is needed. One thread; appends, so a reader may follow the file.
class TensorboardWriter {
 public:
  // Starts the file events.out.tfevents.<wall seconds>.leeway in `directory` (made if missing). `files` outlives the
  // object.
  TensorboardWriter(FileSystem* files, std::string directory, int64_t wall_seconds);

  // One event with all scalars of a step.
  absl::Status Write(int64_t step, double wall_seconds, const std::vector<std::pair<std::string, double>>& scalars);

  const std::string& path() const { return path_; }

 private:
  absl::Status Append(const std::string& event);

  FileSystem* const files_;
  const std::string directory_;
  const std::string path_;
  const double start_seconds_;
  bool is_started_ = false;
};

namespace internal {
// CRC-32C (Castagnoli), and TFRecord's mask of it.
uint32_t Crc32c(const std::string& bytes);
uint32_t MaskedCrc32c(const std::string& bytes);
// A whole record around `payload`.
std::string TfRecord(const std::string& payload);
}  // namespace internal

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_REPORT_TENSORBOARD_WRITER_H_
