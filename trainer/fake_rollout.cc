#include "trainer/fake_rollout.h"

#include <string>
#include <utility>

#include "base/random.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

constexpr int32_t kBeginning = 1;

int32_t RandomId(uint64_t ticket, uint32_t member, uint64_t position, const std::vector<int32_t>& from) {
  RandomKey key;
  key.seed = 99;
  key.purpose = RandomPurpose::kSampling;
  key.ticket = ticket;
  key.member = member;
  key.position = position;
  return from[RandomBelow(key, from.size())];
}

}  // namespace

ModelShape TinyShape() {
  ModelShape shape;
  shape.vocabulary = 64;
  shape.hidden = 16;
  shape.layers = 1;
  shape.heads = 2;
  shape.key_value_heads = 1;
  shape.head_dim = 8;
  shape.intermediate = 24;
  shape.max_positions = 32;
  return shape;
}

void FakeRollout::SetWeights(const v1::WeightsVersion& weights, absl::Span<const float> parameters) {
  weights_ = weights;
  model_.SetParameters(parameters);
}

v1::Trajectory FakeRollout::Episode(uint64_t ticket, uint32_t member) {
  std::vector<int32_t> all;
  for (int32_t id = 2; id < static_cast<int32_t>(shape_.vocabulary); ++id) all.push_back(id);
  const std::vector<std::vector<int32_t>> legal_sets = {{4, 5, 6, 7, 8, 9, 20, 33}};
  v1::Trajectory trajectory;
  trajectory.mutable_key()->set_ticket(ticket);
  trajectory.mutable_key()->set_issue(1);
  trajectory.mutable_key()->set_member(member);
  trajectory.mutable_key()->set_attempt(1);
  trajectory.set_outcome(v1::COMPLETED);
  trajectory.set_terminal(v1::TERMINATED);
  trajectory.set_stop_reason(v1::ENVIRONMENT_DONE);
  trajectory.set_turns(2);
  trajectory.set_kv_cache_consistent(true);

  PackedSequences packed;
  std::vector<ScoredPosition> positions;
  uint64_t position = 0;
  int even = 0;
  const auto add_span = [&](bool sampled, int count, float temperature, int32_t legal_set) {
    v1::Span* span = trajectory.add_spans();
    span->set_sampled(sampled);
    if (sampled) span->set_temperature(temperature);
    if (legal_set >= 0) span->mutable_legal_ids()->Add(legal_sets[0].begin(), legal_sets[0].end());
    for (int i = 0; i < count; ++i) {
      // The question is the same for all members of a group, the answers are not.
      const uint32_t of_member = sampled ? member + 1 : 0;
      const int32_t id = packed.tokens.empty()
                             ? kBeginning
                             : RandomId(ticket, of_member, position, legal_set >= 0 ? legal_sets[0] : all);
      if (sampled) {
        positions.push_back({static_cast<int64_t>(packed.tokens.size()) - 1, id, temperature, legal_set});
        even += id % 2 == 0 ? 1 : 0;
      }
      span->add_ids(id);
      packed.tokens.push_back(id);
      ++position;
    }
    if (sampled) {
      v1::VersionRun* run = span->add_versions();
      *run->mutable_weights() = weights_;
      run->set_count(static_cast<uint32_t>(count));
    }
  };
  add_span(false, 4, 0, -1);
  add_span(true, 3, 0.7f, 0);
  add_span(false, 1, 0, -1);
  add_span(true, 2, 1.0f, -1);
  add_span(false, 1, 0, -1);
  packed.starts.push_back(static_cast<int64_t>(packed.tokens.size()));

  PositionScores<float> scores;
  const absl::Status scored = model_.Score(packed, positions, legal_sets, /*keep_activations=*/false, &scores);
  LEEWAY_CHECK(scored.ok()) << scored;
  for (int i = 0; i < 3; ++i) trajectory.mutable_spans(1)->add_logprobs(scores.logprobs[i]);
  for (int i = 3; i < 5; ++i) trajectory.mutable_spans(3)->add_logprobs(scores.logprobs[i]);
  trajectory.mutable_score()->set_status(v1::Score::SCORED);
  trajectory.mutable_score()->set_reward(even / 5.0);
  return trajectory;
}

BatchGroup FakeRollout::Group(uint64_t ticket, int members) {
  BatchGroup group;
  group.ticket = ticket;
  group.issue = 1;
  for (int m = 0; m < members; ++m) group.members.push_back(Episode(ticket, static_cast<uint32_t>(m)));
  return group;
}

LeasedBatch FakeRollout::Batch(uint64_t step, int groups, int members) {
  LeasedBatch batch;
  for (int g = 0; g < groups; ++g) {
    batch.groups.push_back(Group((step - 1) * static_cast<uint64_t>(groups) + static_cast<uint64_t>(g) + 1, members));
  }
  return batch;
}

}  // namespace leeway
