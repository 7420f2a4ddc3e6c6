#include "trainer/parallel/shard_plan.h"

#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace leeway {
namespace {

// The unit that a parameter belongs to: "embedding", "layer N", or, for everything behind the layers, "head".
std::string UnitName(absl::string_view parameter) {
  if (absl::ConsumePrefix(&parameter, "model.layers.")) {
    return absl::StrCat("layer ", parameter.substr(0, parameter.find('.')));
  }
  return absl::ConsumePrefix(&parameter, "model.embed_tokens.") ? "embedding" : "head";
}

int64_t RowElements(const ParameterInfo& parameter) {
  return parameter.shape[0] == 0 ? 0 : parameter.element_count / parameter.shape[0];
}

}  // namespace

absl::StatusOr<ShardPlan> ShardPlan::Create(std::vector<ParameterInfo> layout, int64_t ranks,
                                            absl::Span<const std::string> frozen) {
  if (ranks < 1) return absl::InvalidArgumentError(absl::StrCat(ranks, " data-parallel ranks: expected at least 1"));
  std::set<std::string> unknown(frozen.begin(), frozen.end());
  ShardPlan plan;
  plan.ranks_ = ranks;
  for (const ParameterInfo& parameter : layout) {
    bool is_frozen = false;
    for (const std::string& name : frozen) is_frozen |= name == parameter.name;
    plan.is_frozen_.push_back(is_frozen);
    unknown.erase(parameter.name);
    const int64_t index = static_cast<int64_t>(plan.is_frozen_.size()) - 1;
    const std::string unit = UnitName(parameter.name);
    if (plan.units_.empty() || plan.units_.back().name != unit) plan.units_.push_back({unit, index, index});
    plan.units_.back().parameter_end = index + 1;
  }
  if (!unknown.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("frozen parameters that the model does not have: ", absl::StrJoin(unknown, ", "),
                     "; names are those of the checkpoint, such as ", layout[0].name));
  }
  plan.layout_ = std::move(layout);
  for (const Held held : {Held::kAll, Held::kTrainable}) {
    const size_t h = plan.index(held);
    plan.full_offsets_[h] = {0};
    plan.shard_offsets_[h].push_back(std::vector<int64_t>(static_cast<size_t>(ranks), 0));
    for (const ShardUnit& unit : plan.units_) {
      int64_t full = plan.full_offsets_[h].back();
      std::vector<int64_t> shards = plan.shard_offsets_[h].back();
      for (int64_t p = unit.parameter_begin; p < unit.parameter_end; ++p) {
        if (!plan.Includes(p, held)) continue;
        const ParameterInfo& parameter = plan.layout_[static_cast<size_t>(p)];
        full += parameter.element_count;
        for (int64_t r = 0; r < ranks; ++r) {
          const int64_t rows = plan.RowBegin(parameter.shape[0], r + 1) - plan.RowBegin(parameter.shape[0], r);
          shards[static_cast<size_t>(r)] += rows * RowElements(parameter);
        }
      }
      plan.full_offsets_[h].push_back(full);
      plan.shard_offsets_[h].push_back(std::move(shards));
    }
  }
  return plan;
}

int64_t ShardPlan::FullOffset(int64_t unit, Held held) const {
  return full_offsets_[index(held)][static_cast<size_t>(unit)];
}

int64_t ShardPlan::ShardOffset(int64_t unit, int64_t rank, Held held) const {
  return shard_offsets_[index(held)][static_cast<size_t>(unit)][static_cast<size_t>(rank)];
}

std::vector<int64_t> ShardPlan::ShareCounts(int64_t unit, Held held) const {
  std::vector<int64_t> counts;
  for (int64_t r = 0; r < ranks_; ++r) counts.push_back(ShareCount(unit, r, held));
  return counts;
}

std::vector<ShardPart> ShardPlan::Parts(int64_t unit, int64_t rank, Held held) const {
  const ShardUnit& range = units_[static_cast<size_t>(unit)];
  std::vector<ShardPart> parts;
  int64_t full = FullOffset(unit, held);
  int64_t shard = ShardOffset(unit, rank, held);
  for (int64_t p = range.parameter_begin; p < range.parameter_end; ++p) {
    if (!Includes(p, held)) continue;
    const ParameterInfo& parameter = layout_[static_cast<size_t>(p)];
    const int64_t row_elements = RowElements(parameter);
    const int64_t begin = RowBegin(parameter.shape[0], rank);
    const int64_t count = (RowBegin(parameter.shape[0], rank + 1) - begin) * row_elements;
    const int64_t into = begin * row_elements;
    parts.push_back({p, begin, parameter.offset + into, full + into, shard, count});
    full += parameter.element_count;
    shard += count;
  }
  return parts;
}

std::vector<OptimizerPart> ShardPlan::OptimizerParts(int64_t rank) const {
  std::vector<OptimizerPart> parts;
  for (int64_t unit = 0; unit < unit_count(); ++unit) {
    for (const ShardPart& part : Parts(unit, rank, Held::kTrainable)) {
      parts.push_back({layout_[static_cast<size_t>(part.parameter)], part.first_row, part.count});
    }
  }
  return parts;
}

std::vector<ShardPart> ShardPlan::RankMajorParts(int64_t unit, Held held) const {
  std::vector<ShardPart> parts;
  int64_t place = 0;
  for (int64_t r = 0; r < ranks_; ++r) {
    for (ShardPart& part : Parts(unit, r, held)) {
      part.shard_offset = place;
      place += part.count;
      parts.push_back(part);
    }
  }
  return parts;
}

bool ShardPlan::IsRankMajor(int64_t unit, Held held) const {
  const ShardUnit& range = units_[static_cast<size_t>(unit)];
  int64_t parameters = 0;
  for (int64_t p = range.parameter_begin; p < range.parameter_end; ++p) parameters += Includes(p, held) ? 1 : 0;
  return ranks_ == 1 || parameters <= 1;
}

}  // namespace leeway
