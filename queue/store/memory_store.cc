#include "queue/store/memory_store.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace leeway {

absl::Status MemoryStore::Put(const PayloadKey& key, Payload payload) {
  const uint64_t size_bytes = payload->size();
  if (!payloads_.try_emplace(key, std::move(payload)).second) {
    return absl::AlreadyExistsError(
        absl::StrCat("ticket ", key.ticket, " member ", key.member, " has a payload already"));
  }
  bytes_ += size_bytes;
  return absl::OkStatus();
}

absl::StatusOr<Payload> MemoryStore::Get(const PayloadKey& key) const {
  const auto found = payloads_.find(key);
  if (found == payloads_.end()) {
    return absl::NotFoundError(absl::StrCat("ticket ", key.ticket, " member ", key.member, " has no payload"));
  }
  return found->second;
}

void MemoryStore::Erase(const PayloadKey& key) {
  const auto found = payloads_.find(key);
  if (found == payloads_.end()) return;
  bytes_ -= found->second->size();
  payloads_.erase(found);
}

}  // namespace leeway
