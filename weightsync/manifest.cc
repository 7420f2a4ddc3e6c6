#include "weightsync/manifest.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/ndarray.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

// Bytes are copied and hashed in pieces that stay in the second-level cache between the two.
constexpr size_t kPieceBytes = 256 << 10;
constexpr size_t kDigestDigits = 32;

std::string ShapeText(absl::Span<const int64_t> shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

absl::StatusOr<uint64_t> ByteLength(absl::Span<const int64_t> shape, const std::string& dtype) {
  LEEWAY_ASSIGN_OR_RETURN(const DType type, DTypeFromName(dtype));
  LEEWAY_ASSIGN_OR_RETURN(const int64_t count, ElementCount(shape));
  uint64_t length = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(count), DTypeBytes(type), &length)) {
    return absl::InvalidArgumentError(absl::StrCat("impossible shape ", ShapeText(shape), " of ", dtype));
  }
  return length;
}

absl::Status CheckVersionIsSet(const v1::WeightsVersion& weights) {
  if (weights.lineage() >= 1 && weights.version() >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("weights need lineage >= 1 and version >= 1, got ", VersionName(weights)));
}

bool IsDigest(const std::string& text) {
  return text.size() == kDigestDigits && std::all_of(text.begin(), text.end(), [](char digit) {
           return absl::ascii_isdigit(digit) || (digit >= 'a' && digit <= 'f');
         });
}

std::string Describe(const v1::TensorEntry& entry) {
  return absl::StrCat(entry.dtype(), " ", ShapeText(entry.shape()));
}

// Hashes (and copies, if `destination` is not null) one tensor in pieces; feeds `whole` on the way.
std::string HashTensor(absl::Span<const std::byte> bytes, std::byte* destination, Digest128Stream* whole) {
  Digest128Stream own;
  for (size_t offset = 0; offset < bytes.size(); offset += kPieceBytes) {
    const size_t size = std::min(kPieceBytes, bytes.size() - offset);
    const std::byte* piece = bytes.data() + offset;
    if (destination != nullptr) {
      std::memcpy(destination + offset, piece, size);
      piece = destination + offset;
    }
    own.Update(piece, size);
    whole->Update(piece, size);
  }
  return own.Finish();
}

absl::StatusOr<v1::Manifest> MakeHashedManifest(const v1::WeightsVersion& weights, absl::Span<const TensorView> tensors,
                                                std::byte* destination) {
  LEEWAY_RETURN_IF_ERROR(CheckVersionIsSet(weights));
  LEEWAY_ASSIGN_OR_RETURN(v1::Manifest manifest, MakeLayout(tensors));
  std::vector<std::string> problems;
  for (int i = 0; i < manifest.tensors_size(); ++i) {
    const uint64_t wanted = manifest.tensors(i).byte_length();
    if (tensors[i].bytes.size() != wanted) {
      problems.push_back(absl::StrCat("tensor \"", tensors[i].name, "\": ", tensors[i].bytes.size(), " bytes, but ",
                                      Describe(manifest.tensors(i)), " takes ", wanted));
    }
  }
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "; "));

  *manifest.mutable_weights() = weights;
  Digest128Stream whole;
  for (int i = 0; i < manifest.tensors_size(); ++i) {
    v1::TensorEntry* entry = manifest.mutable_tensors(i);
    std::byte* place = destination == nullptr ? nullptr : destination + entry->offset();
    entry->set_hash(HashTensor(tensors[i].bytes, place, &whole));
  }
  manifest.set_digest(whole.Finish());
  return manifest;
}

}  // namespace

absl::StatusOr<v1::Manifest> MakeLayout(absl::Span<const TensorView> tensors) {
  v1::Manifest manifest;
  std::vector<std::string> problems;
  std::set<std::string> names;
  uint64_t offset = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    if (tensor.name.empty()) problems.push_back(absl::StrCat("tensor ", i, " has no name"));
    if (!names.insert(tensor.name).second)
      problems.push_back(absl::StrCat("tensor \"", tensor.name, "\" appears twice"));
    const absl::StatusOr<uint64_t> length = ByteLength(tensor.shape, tensor.dtype);
    if (!length.ok()) {
      problems.push_back(absl::StrCat("tensor \"", tensor.name, "\": ", std::string(length.status().message())));
      continue;
    }
    v1::TensorEntry* entry = manifest.add_tensors();
    entry->set_name(tensor.name);
    entry->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    entry->set_dtype(tensor.dtype);
    entry->set_offset(offset);
    entry->set_byte_length(*length);
    if (__builtin_add_overflow(offset, *length, &offset)) problems.push_back("the tensors together are too large");
  }
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
  manifest.set_total_bytes(offset);
  return manifest;
}

absl::StatusOr<v1::Manifest> MakeManifest(const v1::WeightsVersion& weights, absl::Span<const TensorView> tensors,
                                          absl::Span<std::byte> destination) {
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t total, TotalBytes(tensors));
  LEEWAY_CHECK(destination.size() == total) << "destination of " << destination.size() << " bytes for " << total;
  return MakeHashedManifest(weights, tensors, destination.data());
}

absl::StatusOr<v1::Manifest> MakeManifest(const v1::WeightsVersion& weights, absl::Span<const TensorView> tensors) {
  return MakeHashedManifest(weights, tensors, /*destination=*/nullptr);
}

absl::StatusOr<uint64_t> TotalBytes(absl::Span<const TensorView> tensors) {
  LEEWAY_ASSIGN_OR_RETURN(const v1::Manifest layout, MakeLayout(tensors));
  return layout.total_bytes();
}

absl::Status CheckManifest(const v1::Manifest& manifest) {
  LEEWAY_RETURN_IF_ERROR(CheckVersionIsSet(manifest.weights()));
  std::vector<std::string> problems;
  std::set<std::string> names;
  uint64_t offset = 0;
  for (const v1::TensorEntry& entry : manifest.tensors()) {
    const std::string where = absl::StrCat("tensor \"", entry.name(), "\": ");
    if (entry.name().empty() || !names.insert(entry.name()).second)
      problems.push_back(absl::StrCat(where, "the name is empty or repeated"));
    const absl::StatusOr<uint64_t> length = ByteLength(entry.shape(), entry.dtype());
    if (!length.ok()) {
      problems.push_back(absl::StrCat(where, std::string(length.status().message())));
    } else if (*length != entry.byte_length()) {
      problems.push_back(
          absl::StrCat(where, "says ", entry.byte_length(), " bytes, but ", Describe(entry), " takes ", *length));
    }
    if (entry.offset() != offset)
      problems.push_back(absl::StrCat(where, "lies at ", entry.offset(), " instead of ", offset));
    if (!IsDigest(entry.hash())) problems.push_back(absl::StrCat(where, "hash \"", entry.hash(), "\" is not a digest"));
    if (__builtin_add_overflow(offset, entry.byte_length(), &offset))
      problems.push_back(absl::StrCat(where, "too large"));
  }
  if (offset != manifest.total_bytes())
    problems.push_back(absl::StrCat("total is ", manifest.total_bytes(), " bytes, but the tensors take ", offset));
  if (!IsDigest(manifest.digest()))
    problems.push_back(absl::StrCat("digest \"", manifest.digest(), "\" is not a digest"));
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("manifest of ", VersionName(manifest.weights()), ": ", absl::StrJoin(problems, "; ")));
}

std::vector<std::string> LayoutDifferences(const v1::Manifest& expected, const v1::Manifest& announced) {
  std::vector<std::string> differences;
  std::map<std::string, const v1::TensorEntry*> announced_by_name;
  for (const v1::TensorEntry& entry : announced.tensors()) announced_by_name[entry.name()] = &entry;
  // Names on both sides, in each side's order.
  std::vector<std::string> shared_expected;
  std::vector<std::string> shared_announced;
  std::set<std::string> expected_names;
  for (const v1::TensorEntry& entry : expected.tensors()) {
    expected_names.insert(entry.name());
    const auto found = announced_by_name.find(entry.name());
    if (found == announced_by_name.end()) {
      differences.push_back(absl::StrCat("missing \"", entry.name(), "\" (", Describe(entry), ")"));
      continue;
    }
    shared_expected.push_back(entry.name());
    if (Describe(entry) != Describe(*found->second)) {
      differences.push_back(
          absl::StrCat("\"", entry.name(), "\": expected ", Describe(entry), ", announced ", Describe(*found->second)));
    }
  }
  for (const v1::TensorEntry& entry : announced.tensors()) {
    if (expected_names.count(entry.name()) == 0) {
      differences.push_back(absl::StrCat("surplus \"", entry.name(), "\" (", Describe(entry), ")"));
    } else {
      shared_announced.push_back(entry.name());
    }
  }
  for (size_t i = 0; i < std::min(shared_expected.size(), shared_announced.size()); ++i) {
    if (shared_expected[i] == shared_announced[i]) continue;
    differences.push_back(
        absl::StrCat("order: expected \"", shared_expected[i], "\" where \"", shared_announced[i], "\" was announced"));
  }
  return differences;
}

absl::Status VerifyBytes(const v1::Manifest& manifest, absl::Span<const std::byte> bytes) {
  if (bytes.size() != manifest.total_bytes()) {
    return absl::DataLossError(
        absl::StrCat(VersionName(manifest.weights()), ": holds ", bytes.size(), " bytes of ", manifest.total_bytes()));
  }
  // One hash proves all; the tensors' own hashes only say where it went wrong.
  if (Digest128(bytes.data(), bytes.size()) == manifest.digest()) return absl::OkStatus();
  std::vector<std::string> wrong;
  for (const v1::TensorEntry& entry : manifest.tensors()) {
    if (Digest128(bytes.data() + entry.offset(), entry.byte_length()) != entry.hash()) {
      wrong.push_back(absl::StrCat("\"", entry.name(), "\""));
    }
  }
  return absl::DataLossError(absl::StrCat(
      VersionName(manifest.weights()), ": the held bytes do not have the announced digest; wrong tensors: ",
      wrong.empty() ? "none (the manifest's digest does not belong to its tensors)" : absl::StrJoin(wrong, ", ")));
}

std::string VersionName(const v1::WeightsVersion& weights) {
  return absl::StrCat("lineage ", weights.lineage(), " version ", weights.version());
}

bool IsSameVersion(const v1::WeightsVersion& a, const v1::WeightsVersion& b) {
  return a.lineage() == b.lineage() && a.version() == b.version();
}

bool IsNewerVersion(const v1::WeightsVersion& a, const v1::WeightsVersion& b) {
  return a.lineage() != b.lineage() ? a.lineage() > b.lineage() : a.version() > b.version();
}

}  // namespace leeway
