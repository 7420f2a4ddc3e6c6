#include "benchmarks/queue/real_trajectory.h"

#include <algorithm>

#include "base/random.h"

namespace leeway {

v1::Trajectory RealTrajectory(uint64_t bytes, uint64_t seed) {
  RandomStream random({.seed = seed, .purpose = RandomPurpose::kTask});
  const auto id = [&] { return static_cast<int32_t>(random.NextBelow(kBenchmarkVocabulary)); };
  v1::Trajectory trajectory;
  trajectory.mutable_key()->set_ticket(1);
  trajectory.mutable_key()->set_issue(1);
  trajectory.mutable_key()->set_attempt(1);
  trajectory.set_outcome(v1::COMPLETED);
  trajectory.set_terminal(v1::TERMINATED);
  trajectory.set_stop_reason(v1::END_OF_TEXT);
  trajectory.set_turns(1);
  trajectory.set_kv_cache_consistent(true);
  trajectory.mutable_score()->set_status(v1::Score::SCORED);
  trajectory.mutable_score()->set_reward(1.0);
  v1::Span* given = trajectory.add_spans();
  for (int i = 0; i < 16; ++i) given->add_ids(id());
  v1::Span* span = trajectory.add_spans();
  span->set_sampled(true);
  span->set_temperature(1.0f);
  v1::VersionRun* run = span->add_versions();
  run->mutable_weights()->set_lineage(1);
  run->mutable_weights()->set_version(1);
  while (span->ids_size() == 0 || trajectory.ByteSizeLong() + 4 < bytes) {
    const uint64_t left = bytes - std::min<uint64_t>(bytes, trajectory.ByteSizeLong());
    for (uint64_t i = 0; i <= left / 8; ++i) {
      span->add_ids(id());
      span->add_logprobs(static_cast<float>(-5 * random.NextUniform()));
    }
    run->set_count(static_cast<uint32_t>(span->ids_size()));
  }
  return trajectory;
}

void SetKey(const v1::Ticket& ticket, uint32_t member, v1::Trajectory* trajectory) {
  trajectory->mutable_key()->set_ticket(ticket.id());
  trajectory->mutable_key()->set_issue(ticket.issue());
  trajectory->mutable_key()->set_member(member);
  *trajectory->mutable_spans(1)->mutable_versions(0)->mutable_weights() = ticket.weights();
}

}  // namespace leeway
