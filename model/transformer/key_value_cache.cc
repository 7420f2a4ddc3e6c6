#include "model/transformer/key_value_cache.h"

namespace leeway {

template <typename Real>
KeyValueCache<Real>::KeyValueCache(const ModelShape& shape) : state_(std::make_unique<State>(shape)) {}

template <typename Real>
KeyValueCache<Real>::~KeyValueCache() = default;
template <typename Real>
KeyValueCache<Real>::KeyValueCache(KeyValueCache&&) noexcept = default;
template <typename Real>
KeyValueCache<Real>& KeyValueCache<Real>::operator=(KeyValueCache&&) noexcept = default;

template <typename Real>
int64_t KeyValueCache<Real>::length() const {
  return state_->length;
}

template <typename Real>
void KeyValueCache<Real>::Clear() {
  state_->length = 0;
}

template <typename Real>
size_t KeyValueCache<Real>::size_bytes() const {
  return state_->tiles.size() * state_->block_bytes;
}

template class KeyValueCache<float>;
template class KeyValueCache<double>;

}  // namespace leeway
