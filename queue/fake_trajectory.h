#ifndef LEEWAY_QUEUE_FAKE_TRAJECTORY_H_
#define LEEWAY_QUEUE_FAKE_TRAJECTORY_H_

// Well-formed trajectories that nobody sampled, for tests and benchmarks.

#include <cstdint>

#include "base/random.h"
#include "leeway/v1/types.pb.h"

namespace leeway {

// Ids of fake trajectories are below this.
inline constexpr int32_t kFakeVocabulary = 64;

// One turn: four given ids, then `sampled` ids of `weights`, scored `reward`.
inline v1::Trajectory FakeTrajectory(uint64_t ticket, uint32_t issue, uint32_t member,
                                     const v1::WeightsVersion& weights, int sampled = 5, double reward = 1.0) {
  v1::Trajectory trajectory;
  trajectory.mutable_key()->set_ticket(ticket);
  trajectory.mutable_key()->set_issue(issue);
  trajectory.mutable_key()->set_member(member);
  trajectory.mutable_key()->set_attempt(1);
  trajectory.set_outcome(v1::COMPLETED);
  trajectory.set_terminal(v1::TERMINATED);
  trajectory.set_stop_reason(v1::END_OF_TEXT);
  trajectory.set_turns(1);
  trajectory.set_kv_cache_consistent(true);
  trajectory.mutable_score()->set_status(v1::Score::SCORED);
  trajectory.mutable_score()->set_reward(reward);
  v1::Span* given = trajectory.add_spans();
  for (int32_t id : {1, 10, 11, 12}) given->add_ids(id);
  v1::Span* span = trajectory.add_spans();
  span->set_sampled(true);
  span->set_temperature(1.0f);
  for (int i = 0; i < sampled; ++i) {
    span->add_ids(i % kFakeVocabulary);
    span->add_logprobs(-0.25f * static_cast<float>(i % 8));
  }
  v1::VersionRun* run = span->add_versions();
  *run->mutable_weights() = weights;
  run->set_count(sampled);
  return trajectory;
}

// The same for a member of a ticket that the queue gave out.
inline v1::Trajectory FakeTrajectory(const v1::Ticket& ticket, uint32_t member, int sampled = 5, double reward = 1.0) {
  v1::Trajectory trajectory = FakeTrajectory(ticket.id(), ticket.issue(), member, ticket.weights(), sampled, reward);
  trajectory.set_evaluation(ticket.evaluation());
  return trajectory;
}

// Any well-formed trajectory: several turns, several versions in a span, legal sets, failures, every kind of score. A
// pure function of `seed`.
inline v1::Trajectory RandomTrajectory(uint64_t seed, uint32_t group_size) {
  RandomStream random({.seed = seed, .purpose = RandomPurpose::kTask});
  v1::Trajectory trajectory;
  trajectory.mutable_key()->set_ticket(1 + random.NextBelow(1'000'000));
  trajectory.mutable_key()->set_issue(static_cast<uint32_t>(1 + random.NextBelow(5)));
  trajectory.mutable_key()->set_member(static_cast<uint32_t>(random.NextBelow(group_size)));
  trajectory.mutable_key()->set_attempt(static_cast<uint32_t>(1 + random.NextBelow(3)));
  trajectory.set_environment_seconds(random.NextUniform());
  const bool failed = random.NextBelow(8) == 0;
  if (failed) {
    trajectory.set_outcome(v1::FAILED);
    trajectory.mutable_failure()->set_fault(static_cast<v1::Failure::Fault>(1 + random.NextBelow(9)));
    trajectory.mutable_failure()->set_code("step_timeout");
  } else {
    trajectory.set_outcome(v1::COMPLETED);
    trajectory.set_terminal(random.NextBelow(2) == 0 ? v1::TERMINATED : v1::TRUNCATED);
    trajectory.set_stop_reason(static_cast<v1::StopReason>(1 + random.NextBelow(8)));
    trajectory.mutable_score()->set_status(static_cast<v1::Score::Status>(1 + random.NextBelow(3)));
    if (trajectory.score().status() == v1::Score::SCORED) {
      trajectory.mutable_score()->set_reward(random.NextNormal());
      (*trajectory.mutable_score()->mutable_parts())["format"] = random.NextUniform();
    }
  }
  const uint64_t turns = failed ? random.NextBelow(3) : 1 + random.NextBelow(4);
  trajectory.set_turns(static_cast<uint32_t>(turns));
  uint64_t version = 1 + random.NextBelow(100);
  for (uint64_t turn = 0; turn < turns; ++turn) {
    v1::Span* given = trajectory.add_spans();
    const uint64_t given_ids = random.NextBelow(6);  // an observation may be empty
    for (uint64_t i = 0; i < given_ids; ++i) given->add_ids(static_cast<int32_t>(random.NextBelow(kFakeVocabulary)));
    v1::Span* span = trajectory.add_spans();
    span->set_sampled(true);
    span->set_temperature(static_cast<float>(0.01 + random.NextUniform()));
    if (random.NextBelow(2) == 0) {
      for (int32_t id = 0; id < kFakeVocabulary; ++id) {
        if (id == 7 || random.NextBelow(3) == 0) span->add_legal_ids(id);
      }
    }
    const uint64_t runs = 1 + random.NextBelow(3);
    for (uint64_t r = 0; r < runs; ++r) {
      v1::VersionRun* run = span->add_versions();
      run->mutable_weights()->set_lineage(1);
      run->mutable_weights()->set_version(version++);
      run->set_count(static_cast<uint32_t>(1 + random.NextBelow(4)));
      for (uint32_t i = 0; i < run->count(); ++i) {
        const int32_t any = static_cast<int32_t>(random.NextBelow(kFakeVocabulary));
        const int legal = span->legal_ids_size();
        span->add_ids(legal == 0 ? any : span->legal_ids(any % legal));
        span->add_logprobs(random.NextBelow(5) == 0 ? 0.0f : static_cast<float>(-10 * random.NextUniform()));
      }
    }
  }
  return trajectory;
}

}  // namespace leeway

#endif  // LEEWAY_QUEUE_FAKE_TRAJECTORY_H_
