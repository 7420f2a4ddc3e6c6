#include "trainer/checkpoint/checkpoint_manifest.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "trainer/checkpoint/checkpoint.h"

namespace leeway {
namespace {

using nlohmann::json;

constexpr char kManifest[] = "manifest.json";
constexpr size_t kReadBytes = 4 << 20;

}  // namespace

absl::StatusOr<WrittenFile> DescribeFile(FileSystem* files, const std::string& path) {
  Digest128Stream digest;
  WrittenFile file;
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const std::string bytes, files->ReadFileRange(path, file.bytes, kReadBytes));
    digest.Update(bytes.data(), bytes.size());
    file.bytes += bytes.size();
    if (bytes.size() < kReadBytes) break;
  }
  file.digest = digest.Finish();
  return file;
}

absl::Status WriteManifest(FileSystem* files, const std::string& folder, uint64_t step, const WrittenFiles& written) {
  json by_name = json::object();
  for (const auto& [name, file] : written) by_name[name] = {{"bytes", file.bytes}, {"digest", file.digest}};
  return files->WriteFileAtomically(JoinPath(folder, kManifest),
                                    json({{"step", step}, {"files", by_name}}).dump(1) + "\n");
}

absl::StatusOr<WrittenFiles> ReadManifest(FileSystem* files, const std::string& folder) {
  const std::string path = JoinPath(folder, kManifest);
  LEEWAY_ASSIGN_OR_RETURN(const std::string text, files->ReadFile(path));
  WrittenFiles written;
  try {
    const json manifest = json::parse(text);
    for (const auto& [name, file] : manifest.at("files").items()) {
      // Of this folder.
      if (absl::StrContains(name, '/'))
        return absl::DataLossError(absl::StrCat(path, ": '", name, "' is no file name"));
      written[name] = {file.at("bytes").get<uint64_t>(), file.at("digest").get<std::string>()};
    }
  } catch (const json::exception& error) {
    return absl::DataLossError(absl::StrCat(path, ": ", error.what()));
  }
  for (const std::string& name : CheckpointTextNames()) {
    if (written.count(name) == 0) return absl::DataLossError(absl::StrCat(path, " does not name ", name));
  }
  return written;
}

absl::Status VerifyCheckpoint(FileSystem* files, const std::string& folder) {
  LEEWAY_ASSIGN_OR_RETURN(const WrittenFiles expected, ReadManifest(files, folder));
  std::vector<std::string> damaged;
  for (const auto& [name, file] : expected) {
    const std::string path = JoinPath(folder, name);
    if (!files->Exists(path)) {
      damaged.push_back(absl::StrCat(name, " is missing"));
      continue;
    }
    LEEWAY_ASSIGN_OR_RETURN(const WrittenFile actual, DescribeFile(files, path));
    if (actual.bytes != file.bytes) {
      damaged.push_back(absl::StrCat(name, " has ", actual.bytes, " bytes instead of ", file.bytes));
    } else if (actual.digest != file.digest) {
      damaged.push_back(absl::StrCat(name, " holds other bytes"));
    }
  }
  if (damaged.empty()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("sizes or digests differ from ", kManifest, ": ", absl::StrJoin(damaged, ", ")));
}

absl::StatusOr<PieceReader> OpenCheckpoint(FileSystem* files, const std::string& folder,
                                           const std::vector<ParameterInfo>& layout) {
  LEEWAY_ASSIGN_OR_RETURN(const WrittenFiles written, ReadManifest(files, folder));
  std::vector<std::string> names;
  for (const auto& [name, file] : written) names.push_back(name);
  return PieceReader::Open(folder, names, layout);
}

}  // namespace leeway
