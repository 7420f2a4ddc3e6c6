#include "trainer/parallel/flops.h"

#include "trainer/enum_names.h"

namespace leeway {
namespace {

constexpr internal::EnumName<Recompute> kRecomputes[] = {
    {Recompute::kNone, "none"},
    {Recompute::kSelective, "selective"},
    {Recompute::kFull, "full"},
};

}  // namespace

absl::StatusOr<Recompute> ParseRecompute(absl::string_view name) {
  return internal::ParseEnum(kRecomputes, "recompute", name);
}

const std::vector<std::string>& RecomputeNames() {
  static const auto* const names = new std::vector<std::string>(internal::EnumNames(kRecomputes));
  return *names;
}

ForwardFlops CountForward(const ModelShape& shape, const SequenceWork& work, AttentionCount convention) {
  const double layers = static_cast<double>(shape.layers);
  const double hidden = static_cast<double>(shape.hidden);
  const double query = static_cast<double>(shape.heads * shape.head_dim);
  const double key_value = static_cast<double>(shape.key_value_heads * shape.head_dim);
  ForwardFlops flops;
  const double per_token =
      2 * hidden * (2 * query + 2 * key_value) + 6 * hidden * static_cast<double>(shape.intermediate);
  flops.linear = layers * per_token * static_cast<double>(work.tokens);
  const double share = convention == AttentionCount::kCausal ? 0.5 : 1.0;
  flops.attention = layers * 4 * query * share * static_cast<double>(work.squared_lengths);
  flops.head = 2 * hidden * static_cast<double>(shape.vocabulary) * static_cast<double>(work.scored);
  return flops;
}

double ModelFlops(const ModelShape& shape, const SequenceWork& work, AttentionCount convention) {
  return 3 * CountForward(shape, work, convention).total();
}

double HardwareFlops(const ModelShape& shape, const SequenceWork& work, AttentionCount convention,
                     Recompute recompute) {
  const ForwardFlops forward = CountForward(shape, work, convention);
  const double one_product = static_cast<double>(shape.layers) * 2 * static_cast<double>(shape.hidden) *
                             static_cast<double>(shape.intermediate) * static_cast<double>(work.tokens);
  double again = 0;
  if (recompute == Recompute::kSelective) again = 2 * one_product;
  if (recompute == Recompute::kFull) again = forward.linear + forward.attention - one_product;
  return 3 * forward.total() + again;
}

LengthCost CostOfLength(const ModelShape& shape) {
  const ForwardFlops one = CountForward(shape, {1, 1, 1}, AttentionCount::kCausal);
  return {one.linear + one.head, one.attention};
}

}  // namespace leeway
