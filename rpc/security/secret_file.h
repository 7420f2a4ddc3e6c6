#ifndef LEEWAY_RPC_SECURITY_SECRET_FILE_H_
#define LEEWAY_RPC_SECURITY_SECRET_FILE_H_

// Files with tokens and private keys: readable by their owner alone. Blocking file I/O; thread-safe.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

// Largest file that is read: tokens and certificates are far smaller.
inline constexpr size_t kMaxSecretFileBytes = 1 << 20;

// The content of a regular file that belongs to this user (or root) and that nobody else may open. NOT_FOUND;
// PERMISSION_DENIED: others may read or change it (the message says which chmod mends that), or it is another user's;
// INVALID_ARGUMENT: no regular file, or too large.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

// Makes the file with mode 0600, complete or not at all, synced. ALREADY_EXISTS: nothing is overwritten.
absl::Status CreateSecretFile(const std::string& path, absl::string_view content);

}  // namespace leeway

#endif  // LEEWAY_RPC_SECURITY_SECRET_FILE_H_
