#include "queue/policy/evaluation_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "queue/store/record_keys.h"

namespace leeway {
namespace {

bool SameVersion(const v1::WeightsVersion& a, const v1::WeightsVersion& b) {
  return a.lineage() == b.lineage() && a.version() == b.version();
}

// A worker that holds `holds` has not gone past `weights` yet.
bool IsBefore(const v1::WeightsVersion& holds, const v1::WeightsVersion& weights) {
  return holds.lineage() < weights.lineage() ||
         (holds.lineage() == weights.lineage() && holds.version() < weights.version());
}

}  // namespace

EvaluationPlan::EvaluationPlan(const EvaluationOptions& options, uint64_t last_version)
    : options_(options), last_version_(last_version), issues_(options.episodes, 0) {}

bool EvaluationPlan::OnCommit(const v1::WeightsVersion& weights, const std::vector<uint64_t>& members,
                              MonotonicTime now) {
  newest_ = weights;
  if (options_.every == 0 || options_.episodes == 0) return false;
  if ((weights.version() - 1) % options_.every != 0 && weights.version() != last_version_) return false;
  Evaluation& evaluation = evaluations_.emplace_back();
  evaluation.weights = weights;
  evaluation.deadline = now + options_.deadline;
  evaluation.members.insert(members.begin(), members.end());
  evaluation.episodes.resize(options_.episodes);
  for (uint32_t id = 1; id <= options_.episodes; ++id) evaluation.pending.insert(evaluation.pending.end(), id);
  ++unfinished_;
  return true;
}

template <typename Predicate>
void EvaluationPlan::Forget(Predicate is_forgotten) {
  for (const Evaluation& evaluation : evaluations_) {
    if (is_forgotten(evaluation)) forgotten_.push_back(evaluation.weights);
  }
  evaluations_.erase(std::remove_if(evaluations_.begin(), evaluations_.end(), is_forgotten), evaluations_.end());
}

void EvaluationPlan::OnRestore(uint64_t step) {
  Forget([&](const Evaluation& evaluation) { return evaluation.weights.version() > step; });
  unfinished_ = std::count_if(evaluations_.begin(), evaluations_.end(), [](const Evaluation& e) { return !e.is_over; });
}

void EvaluationPlan::OnHeld(const v1::WeightsVersion& weights) {
  for (Evaluation& evaluation : evaluations_) {
    if (!SameVersion(evaluation.weights, weights) || evaluation.was_held) continue;
    evaluation.was_held = true;
    evaluation.has_changed = true;
  }
}

bool EvaluationPlan::AwaitsHolder(MonotonicTime now) const {
  if (evaluations_.empty()) return false;
  const Evaluation& last = evaluations_.back();
  const MonotonicTime committed = last.deadline - options_.deadline;
  return SameVersion(last.weights, newest_) && !last.is_over && !last.was_held && now - committed < kHolderPatience;
}

bool EvaluationPlan::IsInReach(const Evaluation& evaluation, uint64_t worker, const v1::WeightsVersion& holds) const {
  if (evaluation.is_over) return false;
  if (SameVersion(holds, evaluation.weights)) return true;
  return IsBefore(holds, evaluation.weights) &&
         (evaluation.members.contains(worker) || SameVersion(evaluation.weights, newest_));
}

uint64_t EvaluationPlan::Reachable(uint64_t worker, const v1::WeightsVersion& holds) const {
  uint64_t episodes = 0;
  for (const Evaluation& evaluation : evaluations_) {
    if (IsInReach(evaluation, worker, holds)) episodes += evaluation.pending.size();
  }
  return episodes;
}

std::vector<EvaluationPlan::Assignment> EvaluationPlan::Acquire(uint64_t worker, const v1::WeightsVersion& holds,
                                                                uint64_t max_episodes) {
  std::vector<Assignment> assignments;
  for (Evaluation& evaluation : evaluations_) {
    if (!IsInReach(evaluation, worker, holds)) continue;
    while (assignments.size() < max_episodes && !evaluation.pending.empty()) {
      const uint32_t id = *evaluation.pending.begin();
      evaluation.pending.erase(evaluation.pending.begin());
      evaluation.has_changed = true;
      Episode& episode = evaluation.episodes[id - 1];
      episode.state = Episode::State::kAssigned;
      episode.worker = worker;
      episode.issue = ++issues_[id - 1];
      assignments.push_back(Assignment{evaluation.weights, id, episode.issue});
    }
  }
  return assignments;
}

void EvaluationPlan::WorkerLost(uint64_t worker) {
  for (Evaluation& evaluation : evaluations_) {
    if (evaluation.is_over) continue;
    evaluation.members.erase(worker);
    evaluation.has_changed = true;
    for (uint32_t id = 1; id <= evaluation.episodes.size(); ++id) {
      Episode& episode = evaluation.episodes[id - 1];
      if (episode.state != Episode::State::kAssigned || episode.worker != worker) continue;
      episode.state = Episode::State::kPending;
      evaluation.pending.insert(id);
    }
  }
}

EvaluationPlan::Evaluation* EvaluationPlan::FindAssigned(const v1::EpisodeKey& key) {
  for (Evaluation& evaluation : evaluations_) {
    if (evaluation.is_over) continue;
    if (evaluation.episodes[key.ticket() - 1].issue == key.issue()) return &evaluation;
  }
  return nullptr;
}

v1::PushResult EvaluationPlan::Push(uint64_t worker, const TrajectorySummary& summary, std::string* reason) {
  const v1::EpisodeKey& key = summary.key;
  if (key.ticket() == 0 || key.ticket() > options_.episodes || key.member() != 0 || key.issue() == 0 ||
      key.issue() > issues_[key.ticket() - 1]) {
    *reason = absl::StrCat("unknown_evaluation: id ", key.ticket(), " issue ", key.issue(), " member ", key.member());
    return v1::REJECTED;
  }
  Evaluation* evaluation = FindAssigned(key);
  if (evaluation == nullptr) {
    *reason = "evaluation_closed";
    return v1::GROUP_CLOSED;
  }
  const Episode& episode = evaluation->episodes[key.ticket() - 1];
  if (episode.state == Episode::State::kDone) {
    *reason = "delivered before";
    return v1::DUPLICATE;
  }
  if (episode.state != Episode::State::kAssigned || episode.worker != worker) {
    *reason = "evaluation_reassigned";
    return v1::GROUP_CLOSED;
  }
  if (!summary.completed && summary.failure_code == "version_gone") {
    // Not the episode's fault: another worker may still hold the version.
    evaluation->members.erase(worker);
    evaluation->has_changed = true;
    evaluation->episodes[key.ticket() - 1].state = Episode::State::kPending;
    evaluation->pending.insert(key.ticket());
    return v1::ACCEPTED;
  }
  if (!summary.completed) {
    Finish(evaluation, key.ticket(), std::nullopt);
    return v1::ACCEPTED;
  }
  const VersionUse pinned = {
      LineageUse{evaluation->weights.lineage(), evaluation->weights.version(), evaluation->weights.version()}};
  if (summary.versions != pinned) {
    *reason = absl::StrCat("evaluation_version: evaluation ", key.ticket(), " is pinned to version ",
                           evaluation->weights.version(), " of lineage ", evaluation->weights.lineage());
    Finish(evaluation, key.ticket(), std::nullopt);
    return v1::REJECTED;
  }
  Finish(evaluation, key.ticket(), summary.reward);
  return v1::ACCEPTED;
}

void EvaluationPlan::Fail(uint64_t worker, const v1::EpisodeKey& key) {
  if (key.ticket() == 0 || key.ticket() > options_.episodes || key.issue() == 0) return;
  Evaluation* evaluation = FindAssigned(key);
  if (evaluation == nullptr) return;
  const Episode& episode = evaluation->episodes[key.ticket() - 1];
  if (episode.state != Episode::State::kAssigned || episode.worker != worker) return;
  Finish(evaluation, key.ticket(), std::nullopt);
}

void EvaluationPlan::Finish(Evaluation* evaluation, uint32_t id, std::optional<double> reward) {
  evaluation->has_changed = true;
  Episode& episode = evaluation->episodes[id - 1];
  episode.state = Episode::State::kDone;
  episode.reward = reward;
  v1::EvaluationResult& result = evaluation->result;
  result.set_episodes(result.episodes() + 1);
  if (!reward.has_value()) result.set_failed(result.failed() + 1);
  if (result.episodes() != options_.episodes) return;
  End(evaluation);
  Prune();
}

v1::EvaluationResult EvaluationPlan::ResultOf(const Evaluation& evaluation) {
  v1::EvaluationResult result = evaluation.result;
  *result.mutable_weights() = evaluation.weights;
  // By id, so that the bits of the mean do not depend on the order of arrival.
  double sum = 0.0;
  uint64_t scored = 0;
  for (const Episode& episode : evaluation.episodes) {
    if (!episode.reward.has_value()) continue;
    sum += *episode.reward;
    ++scored;
  }
  if (scored > 0) result.set_reward_mean(sum / static_cast<double>(scored));
  return result;
}

void EvaluationPlan::End(Evaluation* evaluation) {
  const uint32_t missing = options_.episodes - evaluation->result.episodes();
  evaluation->result = ResultOf(*evaluation);
  evaluation->result.set_episodes(options_.episodes);
  evaluation->result.set_failed(evaluation->result.failed() + missing);
  evaluation->result.set_complete(true);
  evaluation->is_over = true;
  evaluation->has_changed = true;
  evaluation->members.clear();
  evaluation->pending.clear();
  evaluation->episodes.clear();
  evaluation->episodes.shrink_to_fit();
  evaluation->end_number = ++ends_;
  --unfinished_;
}

void EvaluationPlan::Prune() {
  std::vector<uint64_t> ends;
  for (const Evaluation& evaluation : evaluations_) {
    if (evaluation.is_over) ends.push_back(evaluation.end_number);
  }
  if (ends.size() <= kKeptResults) return;
  std::sort(ends.rbegin(), ends.rend());
  Forget([&](const Evaluation& e) { return e.is_over && e.end_number <= ends[kKeptResults]; });
}

std::vector<std::string> EvaluationPlan::Tick(MonotonicTime now) {
  std::vector<std::string> events;
  for (Evaluation& evaluation : evaluations_) {
    if (evaluation.is_over || evaluation.deadline > now) continue;
    events.push_back(absl::StrCat("evaluation of version ", evaluation.weights.version(), " passed its deadline with ",
                                  options_.episodes - evaluation.result.episodes(), " of ", options_.episodes,
                                  " episodes missing: they count as failed"));
    End(&evaluation);
  }
  Prune();
  return events;
}

void EvaluationPlan::Postpone(absl::Duration by) {
  for (Evaluation& evaluation : evaluations_) evaluation.deadline = evaluation.deadline + by;
}

std::vector<std::string> EvaluationPlan::EndUnreachable(const std::vector<Holder>& live) {
  std::vector<std::string> events;
  for (Evaluation& evaluation : evaluations_) {
    if (evaluation.is_over || SameVersion(evaluation.weights, newest_)) continue;
    const bool is_worked_on =
        std::any_of(evaluation.episodes.begin(), evaluation.episodes.end(),
                    [](const Episode& episode) { return episode.state == Episode::State::kAssigned; });
    const bool is_in_reach = std::any_of(live.begin(), live.end(), [&](const Holder& holder) {
      return IsInReach(evaluation, holder.worker, holder.holds);
    });
    if (is_worked_on || is_in_reach) continue;
    events.push_back(absl::StrCat("evaluation of version ", evaluation.weights.version(),
                                  ": no worker holds it any more, ", options_.episodes - evaluation.result.episodes(),
                                  " of ", options_.episodes, " episodes count as failed"));
    End(&evaluation);
  }
  Prune();
  return events;
}

MonotonicTime EvaluationPlan::NextDeadline() const {
  MonotonicTime next = MonotonicTime::InfiniteFuture();
  for (const Evaluation& evaluation : evaluations_) {
    if (!evaluation.is_over && evaluation.deadline < next) next = evaluation.deadline;
  }
  return next;
}

std::vector<v1::EvaluationResult> EvaluationPlan::Results() const {
  std::vector<v1::EvaluationResult> results;
  results.reserve(evaluations_.size());
  for (const Evaluation& evaluation : evaluations_) {
    results.push_back(evaluation.is_over ? evaluation.result : ResultOf(evaluation));
  }
  return results;
}

// ---- records --------------------------------------------------------------------------------------------------------

void EvaluationPlan::TakeChanges(std::vector<StoreRecord>* records) {
  const auto key_of = [](const v1::WeightsVersion& weights) {
    return RecordKey(RecordKind::kEvaluation, {weights.lineage(), weights.version()});
  };
  for (const v1::WeightsVersion& weights : forgotten_) records->push_back({key_of(weights), std::nullopt});
  forgotten_.clear();
  for (Evaluation& evaluation : evaluations_) {
    if (!evaluation.has_changed) continue;
    evaluation.has_changed = false;
    v1::EvaluationRecord record;
    *record.mutable_weights() = evaluation.weights;
    record.set_was_held(evaluation.was_held);
    for (uint64_t member : evaluation.members) record.add_members(member);
    record.set_is_over(evaluation.is_over);
    record.set_end_number(evaluation.end_number);
    *record.mutable_result() = evaluation.result;
    for (const Episode& episode : evaluation.episodes) {
      record.add_states(static_cast<uint32_t>(episode.state));
      record.add_workers(episode.worker);
      record.add_issues(episode.issue);
      record.add_rewards(episode.reward.value_or(std::numeric_limits<double>::quiet_NaN()));
    }
    records->push_back({key_of(evaluation.weights), record.SerializeAsString()});
  }
}

void EvaluationPlan::MarkAllChanged() {
  for (Evaluation& evaluation : evaluations_) evaluation.has_changed = true;
}

void EvaluationPlan::SaveCounters(v1::HeadRecord* head) const {
  *head->mutable_evaluation_newest() = newest_;
  head->set_evaluation_ends(ends_);
  head->set_evaluation_last_issue(issues_.empty() ? 0 : *std::max_element(issues_.begin(), issues_.end()));
}

void EvaluationPlan::RecoverCounters(const v1::HeadRecord& head) {
  newest_ = head.evaluation_newest();
  ends_ = head.evaluation_ends();
  // Issue numbers of one id need only rise.
  std::fill(issues_.begin(), issues_.end(), head.evaluation_last_issue());
}

absl::Status EvaluationPlan::RecoverEvaluation(const v1::EvaluationRecord& record, MonotonicTime now) {
  Evaluation& evaluation = evaluations_.emplace_back();
  evaluation.has_changed = false;
  evaluation.weights = record.weights();
  evaluation.deadline = now + options_.deadline;
  evaluation.was_held = record.was_held();
  evaluation.members.insert(record.members().begin(), record.members().end());
  evaluation.is_over = record.is_over();
  evaluation.end_number = record.end_number();
  evaluation.result = record.result();
  if (record.is_over()) return absl::OkStatus();
  const int episodes = record.states_size();
  bool is_malformed =
      record.workers_size() != episodes || record.issues_size() != episodes || record.rewards_size() != episodes;
  for (uint32_t state : record.states()) is_malformed |= state > static_cast<uint32_t>(Episode::State::kDone);
  if (is_malformed) {
    return absl::DataLossError(absl::StrCat("the evaluation of version ", record.weights().version(), " is malformed"));
  }
  if (episodes != static_cast<int>(options_.episodes)) {
    // The run goes on with another eval.episodes: this one can not be finished as it was begun.
    forgotten_.push_back(evaluation.weights);
    evaluations_.pop_back();
    return absl::OkStatus();
  }
  ++unfinished_;
  for (int i = 0; i < episodes; ++i) {
    Episode& episode = evaluation.episodes.emplace_back();
    episode.state = static_cast<Episode::State>(record.states(i));
    episode.worker = record.workers(i);
    episode.issue = record.issues(i);
    if (!std::isnan(record.rewards(i))) episode.reward = record.rewards(i);
    if (episode.state == Episode::State::kPending) evaluation.pending.insert(evaluation.pending.end(), i + 1);
  }
  return absl::OkStatus();
}

}  // namespace leeway
