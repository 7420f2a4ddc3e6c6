#include "trainer/loss/train_batch.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "trainer/parallel/balanced_packing.h"

namespace leeway {
namespace {

absl::Status CheckGivenSpan(const v1::Span& span) {
  if (span.logprobs_size() == 0 && span.versions_size() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a given span of ", span.ids_size(), " ids has ", span.logprobs_size(),
                                                 " log-probabilities and ", span.versions_size(), " version runs"));
}

absl::Status CheckSampledSpan(const v1::Span& span, int64_t vocabulary) {
  if (span.logprobs_size() != span.ids_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sampled span has ", span.ids_size(), " ids but ", span.logprobs_size(), " log-probabilities"));
  }
  int64_t in_runs = 0;
  for (const v1::VersionRun& run : span.versions()) {
    if (run.weights().lineage() == 0 || run.weights().version() == 0) {
      return absl::InvalidArgumentError("a version run without lineage or version");
    }
    in_runs += run.count();
  }
  if (in_runs != span.ids_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sampled span has ", span.ids_size(), " ids but versions for ", in_runs));
  }
  if (!(span.temperature() > 0) || !std::isfinite(span.temperature())) {
    return absl::InvalidArgumentError(absl::StrCat("a sampled span has temperature ", span.temperature()));
  }
  for (int i = 0; i < span.legal_ids_size(); ++i) {
    const int32_t id = span.legal_ids(i);
    if (id < 0 || id >= vocabulary || (i > 0 && id <= span.legal_ids(i - 1))) {
      return absl::InvalidArgumentError(
          absl::StrCat("legal ids are not strictly ascending ids below ", vocabulary, ": ", id, " at place ", i));
    }
  }
  for (int i = 0; i < span.ids_size(); ++i) {
    if (!std::isfinite(span.logprobs(i)) || span.logprobs(i) > 0) {
      return absl::InvalidArgumentError(absl::StrCat("log-probability ", span.logprobs(i), " at place ", i));
    }
    if (span.legal_ids_size() > 0 &&
        !std::binary_search(span.legal_ids().begin(), span.legal_ids().end(), span.ids(i))) {
      return absl::InvalidArgumentError(absl::StrCat("sampled id ", span.ids(i), " at place ", i, " is not legal"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTrajectory(const v1::Trajectory& trajectory, const TrainBatchOptions& options) {
  int64_t ids = 0;
  int64_t end_of_sampled = 0;
  for (int s = 0; s < trajectory.spans_size(); ++s) {
    const v1::Span& span = trajectory.spans(s);
    absl::Status status = span.sampled() ? CheckSampledSpan(span, options.vocabulary) : CheckGivenSpan(span);
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("span ", s, ": ", std::string(status.message())));
    for (int32_t id : span.ids()) {
      if (id < 0 || id >= options.vocabulary) {
        return absl::InvalidArgumentError(
            absl::StrCat("span ", s, ": id ", id, " is outside the vocabulary of ", options.vocabulary));
      }
    }
    if (ids == 0 && span.sampled() && span.ids_size() > 0) {
      return absl::InvalidArgumentError("the first id is a sampled one, which nothing can have predicted");
    }
    ids += span.ids_size();
    if (span.sampled()) end_of_sampled = ids;
  }
  if (end_of_sampled == 0) return absl::InvalidArgumentError("no sampled token");
  if (end_of_sampled - 1 > options.max_positions) {
    return absl::InvalidArgumentError(absl::StrCat(end_of_sampled - 1,
                                                   " tokens before the last sampled one, the model has ",
                                                   options.max_positions, " positions"));
  }
  if (!std::isfinite(trajectory.score().reward())) {
    return absl::InvalidArgumentError(absl::StrCat("reward ", trajectory.score().reward()));
  }
  return absl::OkStatus();
}

// Members in order of their number. INVALID_ARGUMENT: the same member twice, or a trajectory that does not belong here.
absl::StatusOr<std::vector<const v1::Trajectory*>> CheckedMembers(const BatchGroup& group,
                                                                  const TrainBatchOptions& options) {
  std::vector<const v1::Trajectory*> members;
  for (const v1::Trajectory& trajectory : group.members) members.push_back(&trajectory);
  std::sort(members.begin(), members.end(),
            [](const v1::Trajectory* a, const v1::Trajectory* b) { return a->key().member() < b->key().member(); });
  for (size_t i = 0; i < members.size(); ++i) {
    const uint32_t member = members[i]->key().member();
    const auto at = [&](absl::string_view message) {
      return absl::InvalidArgumentError(absl::StrCat("member ", member, ": ", message));
    };
    if (i > 0 && member == members[i - 1]->key().member()) return at("stands twice in its group");
    if (members[i]->key().ticket() != group.ticket) return at(absl::StrCat("of ticket ", members[i]->key().ticket()));
    if (!TrainableReward(*members[i]).has_value()) continue;
    if (absl::Status status = CheckTrajectory(*members[i], options); !status.ok()) {
      return at(std::string(status.message()));
    }
  }
  return members;
}

// Appends checked trajectories to a batch.
class BatchBuilder {
 public:
  BatchBuilder(const TrainBatchOptions& options, TrainBatch* batch) : options_(options), batch_(batch) {}

  absl::Status Add(const v1::Trajectory& trajectory, int64_t group, double advantage, LossNormaliser* normaliser) {
    TrainSequence sequence;
    sequence.ticket = trajectory.key().ticket();
    sequence.member = trajectory.key().member();
    sequence.group = group;
    sequence.begin = batch_->position_count();
    sequence.advantage = advantage;
    sequence.is_exact = trajectory.kv_cache_consistent();
    const int64_t rows = RowsOf(trajectory);
    int64_t place = 0;
    for (const v1::Span& span : trajectory.spans()) {
      const int64_t wanted = std::clamp<int64_t>(rows - place, 0, span.ids_size());
      rows_.tokens.insert(rows_.tokens.end(), span.ids().begin(), span.ids().begin() + wanted);
      if (span.sampled()) LEEWAY_RETURN_IF_ERROR(AddPositions(span, place, &sequence));
      place += span.ids_size();
    }
    rows_.starts.push_back(static_cast<int64_t>(rows_.tokens.size()));
    sequence.end = batch_->position_count();
    batch_->sequences.push_back(sequence);
    batch_->sequence_tokens += rows;
    normaliser->tokens += sequence.trained;
    normaliser->sequences += sequence.trained > 0 ? 1 : 0;
    return absl::OkStatus();
  }

  // Makes the micro-batches of the sequences added since the last update.
  absl::Status EndUpdate(const LossNormaliser& normaliser) {
    const int64_t end = static_cast<int64_t>(batch_->sequences.size());
    const int64_t micro_begin = static_cast<int64_t>(batch_->micro_batches.size());
    if (options_.data_ranks == 1) {
      for (int64_t s = update_begin_; s < end; ++s) {
        const bool fits = s > update_begin_ &&
                          static_cast<int64_t>(batch_->micro_batches.back().sequences.tokens.size()) + Length(s) <=
                              options_.micro_batch_tokens;
        if (!fits) batch_->micro_batches.emplace_back();
        AddTo(&batch_->micro_batches.back(), s);
      }
    } else {
      std::vector<int64_t> lengths;
      for (int64_t s = update_begin_; s < end; ++s) lengths.push_back(Length(s));
      LEEWAY_ASSIGN_OR_RETURN(const Packing packing,
                              PackBalanced(lengths, {options_.data_ranks, options_.micro_batch_tokens, options_.cost}));
      for (const std::vector<int64_t>& members : packing.micro_batches[options_.data_rank]) {
        MicroBatch& micro = batch_->micro_batches.emplace_back();
        for (const int64_t member : members) AddTo(&micro, update_begin_ + member);
      }
    }
    batch_->updates.push_back({micro_begin, static_cast<int64_t>(batch_->micro_batches.size()), normaliser});
    update_begin_ = end;
    return absl::OkStatus();
  }

 private:
  // The last sampled id is only a target, and what was given after it has no influence on anything.
  static int64_t RowsOf(const v1::Trajectory& trajectory) {
    int64_t ids = 0;
    int64_t rows = 0;
    for (const v1::Span& span : trajectory.spans()) {
      ids += span.ids_size();
      if (span.sampled() && span.ids_size() > 0) rows = ids - 1;
    }
    return rows;
  }

  int64_t Length(int64_t sequence) const { return rows_.starts[sequence + 1] - rows_.starts[sequence]; }

  void AddTo(MicroBatch* micro, int64_t sequence) const {
    const int64_t first_row = static_cast<int64_t>(micro->sequences.tokens.size());
    micro->members.push_back(sequence);
    micro->sequences.tokens.insert(micro->sequences.tokens.end(), rows_.tokens.begin() + rows_.starts[sequence],
                                   rows_.tokens.begin() + rows_.starts[sequence + 1]);
    micro->sequences.starts.push_back(static_cast<int64_t>(micro->sequences.tokens.size()));
    for (int64_t i = batch_->sequences[sequence].begin; i < batch_->sequences[sequence].end; ++i) {
      micro->positions.push_back(positions_[i]);
      micro->positions.back().row += first_row;
    }
  }

  int32_t LegalSetOf(const v1::Span& span) {
    if (span.legal_ids_size() == 0) return -1;
    std::vector<int32_t> ids(span.legal_ids().begin(), span.legal_ids().end());
    const auto [it, is_new] = legal_sets_.try_emplace(std::move(ids), static_cast<int32_t>(batch_->legal_sets.size()));
    if (is_new) batch_->legal_sets.push_back(it->first);
    return it->second;
  }

  // The token at row r of its sequence is predicted by row r - 1.
  absl::Status AddPositions(const v1::Span& span, int64_t row_of_first, TrainSequence* sequence) {
    const int32_t legal_set = LegalSetOf(span);
    int place = 0;
    for (const v1::VersionRun& run : span.versions()) {
      const uint64_t version = run.weights().version();
      const uint64_t lag = options_.step - version;
      const bool beyond = version > options_.step || lag > options_.lag_limit;
      if (beyond && (version > options_.step || !options_.breach_masks)) {
        return absl::InternalError(absl::StrCat(
            "ticket ", sequence->ticket, " member ", sequence->member, ": sampled token ",
            batch_->position_count() - sequence->begin, " has version ", version, " in step ", options_.step,
            ", the staleness bound is ", options_.lag_limit, ": the queue must not lease it"));
      }
      for (uint32_t i = 0; i < run.count(); ++i, ++place) {
        positions_.push_back({row_of_first + place - 1, span.ids(place), span.temperature(), legal_set});
        batch_->mu.push_back(span.logprobs(place));
        batch_->lag.push_back(static_cast<uint32_t>(std::min<uint64_t>(lag, UINT32_MAX)));
        batch_->mask.push_back(beyond ? 0 : 1);
      }
      (beyond ? batch_->masked_tokens : batch_->trained_tokens) += run.count();
      if (!beyond) sequence->trained += run.count();
    }
    return absl::OkStatus();
  }

  const TrainBatchOptions& options_;
  TrainBatch* const batch_;
  PackedSequences rows_;                   // of all sequences
  std::vector<ScoredPosition> positions_;  // of all sequences; rows count from the sequence's first
  int64_t update_begin_ = 0;               // first sequence of the update that is being filled
  std::map<std::vector<int32_t>, int32_t> legal_sets_;
};

void ClearBatch(TrainBatch* batch) {
  batch->sequences.clear();
  batch->micro_batches.clear();
  batch->updates.clear();
  batch->legal_sets.clear();
  batch->mu.clear();
  batch->lag.clear();
  batch->mask.clear();
  batch->rewards.clear();
  batch->unscored = batch->trained_tokens = batch->masked_tokens = batch->sequence_tokens = 0;
}

}  // namespace

absl::Status BuildTrainBatch(const TrainBatchOptions& options, absl::Span<const BatchGroup> groups, TrainBatch* batch,
                             std::vector<RefusedGroup>* refused) {
  ClearBatch(batch);
  refused->clear();
  std::vector<const BatchGroup*> sorted;
  for (const BatchGroup& group : groups) sorted.push_back(&group);
  std::sort(sorted.begin(), sorted.end(),
            [](const BatchGroup* a, const BatchGroup* b) { return a->ticket < b->ticket; });

  std::vector<std::vector<const v1::Trajectory*>> members(sorted.size());
  std::vector<std::vector<std::optional<double>>> rewards(sorted.size());
  std::vector<bool> zero_advantage;
  for (size_t g = 0; g < sorted.size(); ++g) {
    if (g > 0 && sorted[g]->ticket == sorted[g - 1]->ticket) {
      return absl::InternalError(
          absl::StrCat("ticket ", sorted[g]->ticket, " stands twice in the batch of step ", options.step));
    }
    absl::StatusOr<std::vector<const v1::Trajectory*>> checked = CheckedMembers(*sorted[g], options);
    if (!checked.ok()) {
      refused->push_back({sorted[g]->ticket, "malformed_trajectory", std::string(checked.status().message())});
      continue;
    }
    members[g] = *std::move(checked);
    for (const v1::Trajectory* member : members[g]) rewards[g].push_back(TrainableReward(*member));
    zero_advantage.push_back(sorted[g]->zero_advantage);
  }
  if (!refused->empty()) return absl::OkStatus();

  const std::vector<std::vector<std::optional<double>>> advantages =
      ComputeAdvantages(options.advantage, rewards, zero_advantage);
  BatchBuilder builder(options, batch);
  const int64_t group_count = static_cast<int64_t>(sorted.size());
  for (int64_t update = 0, g = 0; g < group_count; ++update) {
    LossNormaliser normaliser;
    for (; g < group_count && g * options.updates / group_count == update; ++g) {
      for (size_t m = 0; m < members[g].size(); ++m) {
        if (!rewards[g][m].has_value()) {
          ++batch->unscored;
          continue;
        }
        batch->rewards.push_back(*rewards[g][m]);
        LEEWAY_RETURN_IF_ERROR(builder.Add(*members[g][m], g, *advantages[g][m], &normaliser));
      }
    }
    LEEWAY_RETURN_IF_ERROR(builder.EndUpdate(normaliser));
  }
  return CheckStalenessBound(*batch, options.lag_limit);
}

absl::Status CheckStalenessBound(const TrainBatch& batch, uint64_t lag_limit) {
  for (const TrainSequence& sequence : batch.sequences) {
    for (int64_t i = sequence.begin; i < sequence.end; ++i) {
      if (batch.mask[i] && batch.lag[i] > lag_limit) {
        return absl::InternalError(absl::StrCat("packed batch: ticket ", sequence.ticket, " member ", sequence.member,
                                                ": token ", i - sequence.begin, " has lag ", batch.lag[i],
                                                ", the bound is ", lag_limit));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace leeway
