#include "queue/policy/staleness_policy.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

template <typename T>
struct Word {
  const char* text;
  T value;
};

template <typename T, size_t n>
absl::StatusOr<T> ParseWord(absl::string_view text, const char* what, const Word<T> (&words)[n]) {
  std::string known;
  for (const Word<T>& word : words) {
    if (text == word.text) return word.value;
    absl::StrAppend(&known, known.empty() ? "" : ", ", word.text);
  }
  return absl::InvalidArgumentError(absl::StrCat(what, " \"", text, "\" is not one of: ", known));
}

}  // namespace

absl::StatusOr<StalenessMode> ParseStalenessMode(absl::string_view text) {
  return ParseWord<StalenessMode>(text, "mode", {{"async", StalenessMode::kAsync}, {"sync", StalenessMode::kSync}});
}

absl::StatusOr<StalenessOrder> ParseStalenessOrder(absl::string_view text) {
  return ParseWord<StalenessOrder>(
      text, "staleness.order",
      {{"ticket", StalenessOrder::kTicket}, {"oldest", StalenessOrder::kOldest}, {"ready", StalenessOrder::kReady}});
}

absl::StatusOr<StalenessBreach> ParseStalenessBreach(absl::string_view text) {
  return ParseWord<StalenessBreach>(
      text, "staleness.breach",
      {{"drop", StalenessBreach::kDrop}, {"mask", StalenessBreach::kMask}, {"wait", StalenessBreach::kWait}});
}

absl::StatusOr<StalenessPolicy> StalenessPolicy::Create(const StalenessOptions& options) {
  std::string errors;
  if (options.groups_per_step == 0) absl::StrAppend(&errors, "trainer.groups_per_step must be at least 1; ");
  if (options.steps == 0) absl::StrAppend(&errors, "trainer.steps must be at least 1; ");
  if (options.breach == StalenessBreach::kWait && options.order != StalenessOrder::kTicket) {
    absl::StrAppend(&errors, "staleness.breach = \"wait\" needs staleness.order = \"ticket\"; ");
  }
  if (!errors.empty()) return absl::InvalidArgumentError(errors.substr(0, errors.size() - 2));
  return StalenessPolicy(options);
}

uint64_t StalenessPolicy::RankLimit(uint64_t step, uint64_t requested_step) const {
  const uint64_t last_step = options_.mode == StalenessMode::kSync ? requested_step : step + options_.budget;
  return std::min(last_step, options_.steps) * options_.groups_per_step;
}

StalenessPolicy::OrderKey StalenessPolicy::KeyOf(uint64_t ticket, uint64_t oldest_version, uint64_t completion) const {
  switch (options_.order) {
    case StalenessOrder::kTicket:
      return {ticket, 0};
    case StalenessOrder::kOldest:
      return {oldest_version, ticket};
    case StalenessOrder::kReady:
      return {completion, 0};
  }
  return {ticket, 0};
}

StalenessPolicy::Verdict StalenessPolicy::Judge(uint64_t step, uint64_t oldest_version) const {
  if (oldest_version == 0 || step <= oldest_version + lag_limit()) return Verdict::kTrain;
  switch (options_.breach) {
    case StalenessBreach::kDrop:
      return Verdict::kStale;
    case StalenessBreach::kMask:
      return Verdict::kMask;
    case StalenessBreach::kWait:
      return Verdict::kBreach;
  }
  return Verdict::kBreach;
}

uint64_t StalenessPolicy::lag_limit() const { return options_.mode == StalenessMode::kSync ? 0 : options_.budget; }

}  // namespace leeway
