#include "queue/store/memory_store.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace leeway {

absl::Status MemoryStore::Put(const PayloadKey& key, Payload payload) {
  const uint64_t size_bytes = payload->size();
  const auto [place, is_new] = payloads_.try_emplace(key);
  if (!is_new) {
    return absl::AlreadyExistsError(
        absl::StrCat("ticket ", key.ticket, " member ", key.member, " has a payload already"));
  }
  place->second = std::make_shared<const PayloadInMemory>(std::move(payload));
  bytes_ += size_bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const StoredPayload>> MemoryStore::Get(const PayloadKey& key) const {
  const auto found = payloads_.find(key);
  if (found == payloads_.end()) {
    return absl::NotFoundError(absl::StrCat("ticket ", key.ticket, " member ", key.member, " has no payload"));
  }
  return found->second;
}

void MemoryStore::Erase(const PayloadKey& key) {
  const auto found = payloads_.find(key);
  if (found == payloads_.end()) return;
  bytes_ -= found->second->size_bytes();
  payloads_.erase(found);
}

}  // namespace leeway
