#ifndef LEEWAY_WEIGHTSYNC_MANIFEST_H_
#define LEEWAY_WEIGHTSYNC_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "leeway/v1/types.pb.h"
#include "leeway/v1/weights.pb.h"
#include "weightsync/weight_publisher.h"

namespace leeway {

// The manifest says what one version is: every tensor's name, shape, dtype, place and hash, and one digest over all
// bytes. Tensors lie back to back in the order given, without padding. Pure functions, no state; hashing runs at memory
// speed and reads the bytes once.

// What a receiver expects: names, shapes, dtypes, offsets, lengths; hashes, digest and version unset. The views' bytes
// may be empty. INVALID_ARGUMENT names every bad tensor: empty or repeated name, negative dimension, unknown dtype.
absl::StatusOr<v1::Manifest> MakeLayout(absl::Span<const TensorView> tensors);

// The manifest of `tensors`, and their bytes copied to `destination` on the way (each byte is read from memory once).
// `destination` has exactly the sum of the tensors' lengths. INVALID_ARGUMENT: as MakeLayout; unset version; bytes that
// do not fill the shape.
absl::StatusOr<v1::Manifest> MakeManifest(const v1::WeightsVersion& weights, absl::Span<const TensorView> tensors,
                                          absl::Span<std::byte> destination);
// The same without a copy.
absl::StatusOr<v1::Manifest> MakeManifest(const v1::WeightsVersion& weights, absl::Span<const TensorView> tensors);

// Sum of the tensors' lengths by shape and dtype. Errors as MakeLayout.
absl::StatusOr<uint64_t> TotalBytes(absl::Span<const TensorView> tensors);

// INVALID_ARGUMENT when a manifest that came from elsewhere is not consistent in itself: version unset, lengths that do
// not follow from shape and dtype, offsets with gaps or overlaps, a total that is not the sum, hashes that are not 32
// hexadecimal digits.
absl::Status CheckManifest(const v1::Manifest& manifest);

// Every difference between what a receiver expects and what was announced, one line each: missing and surplus names,
// shapes, dtypes, order. Empty = they match.
std::vector<std::string> LayoutDifferences(const v1::Manifest& expected, const v1::Manifest& announced);

// Hashes `bytes` and compares with the manifest, tensor by tensor and as a whole. DATA_LOSS names every tensor that
// differs.
absl::Status VerifyBytes(const v1::Manifest& manifest, absl::Span<const std::byte> bytes);

// "lineage 2 version 17", for messages.
std::string VersionName(const v1::WeightsVersion& weights);

// Order in time of one trainer's life after another: by lineage first, then by version.
bool IsSameVersion(const v1::WeightsVersion& a, const v1::WeightsVersion& b);
bool IsNewerVersion(const v1::WeightsVersion& a, const v1::WeightsVersion& b);

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_MANIFEST_H_
