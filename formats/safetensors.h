#ifndef LEEWAY_FORMATS_SAFETENSORS_H_
#define LEEWAY_FORMATS_SAFETENSORS_H_

// Strict reading and writing of safetensors files: u64 header length, JSON header, tensor bytes.
//
// The reader checks everything before it maps anything: sizes, JSON with duplicate keys, types, checked products of
// shapes, and that the tensors tile the data exactly (no hole, no overlap, no rest). A file that another program saved
// under the wrong name (a git-LFS pointer, an HTML page, a GGUF or zip archive) is called what it is. No bad file
// crashes or over-reads; each error names path and place.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/ndarray.h"

namespace leeway {

using SafetensorsMetadata = std::map<std::string, std::string>;

// One tensor as the header describes it. `dtype` is the format's name for it, also of those that NDArray does not know
// (F8_E4M3, C64, F4).
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  // Bytes after the header: [begin, end).
  uint64_t begin = 0;
  uint64_t end = 0;
};

// A validated, memory-mapped file. Immutable after Open; thread-safe. The file must not be shortened by anybody while
// it is mapped.
class SafetensorsFile {
 public:
  // Validates the whole file, then maps it. Blocks on the disk for the header only; tensor bytes are read when touched.
  // NOT_FOUND, PERMISSION_DENIED: the file can not be opened. INVALID_ARGUMENT: it breaks the format; the message says
  // how and where.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  // An array over the mapped bytes, which it keeps alive beyond this object. Writing to it changes a private copy,
  // never the file. NOT_FOUND: no such tensor. UNIMPLEMENTED: a dtype that NDArray does not hold.
  absl::StatusOr<NDArray> Tensor(absl::string_view name) const;

  bool Contains(absl::string_view name) const;
  // In the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

 private:
  SafetensorsFile() = default;

  std::string path_;
  std::vector<SafetensorsEntry> entries_;
  // Name -> position in entries_.
  std::map<std::string, size_t> index_;
  SafetensorsMetadata metadata_;

  // The whole file as mapped; unmapped when the last array over it is gone.
  std::shared_ptr<void> mapping_;
  // First byte after the header.
  std::byte* data_ = nullptr;
};

struct NamedTensor {
  std::string name;
  NDArray array;
};

// Writes `path` atomically: temporary file beside it, sync, rename, sync of the folder. Nothing but the arguments
// decides the bytes: tensors by dtype size descending, then name; header padded with spaces to a multiple of 8; no
// metadata key without metadata. Uses no memory beyond small buffers. Blocks on the disk. INVALID_ARGUMENT: duplicate
// or reserved names, text that is not UTF-8. Others: errors of the file system, path inside. `digest`, if any, gets the
// bytes of the file as they are meant: what is on the disk afterwards can be compared with it.
absl::Status WriteSafetensors(FileSystem* file_system, const std::string& path, absl::Span<const NamedTensor> tensors,
                              const SafetensorsMetadata& metadata = {}, Digest128Stream* digest = nullptr);

}  // namespace leeway

#endif  // LEEWAY_FORMATS_SAFETENSORS_H_
