#ifndef LEEWAY_QUEUE_SIMULATION_CAPACITY_MODEL_TEST_H_
#define LEEWAY_QUEUE_SIMULATION_CAPACITY_MODEL_TEST_H_

// The bounds of the queue in the design's words, without the queue: which capacities can come to a stop for ever? For
// small sizes every order of events is looked at. Tests compare the answer with what the queue and `leeway check`
// accept.

#include <stddef.h>

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace leeway {

struct Capacities {
  uint64_t groups_per_step = 1;
  uint64_t group_size = 1;
  uint64_t budget = 0;
  uint64_t steps = 2;
  uint64_t max_groups = 1;
  uint64_t max_bytes = 1;
  // Reserved for every member; the trajectories are as large as they may be.
  uint64_t trajectory_bytes = 1;
  // Groups are taken strictly by id, or any that are ready.
  bool is_order_ticket = true;
};

class CapacityModel {
 public:
  explicit CapacityModel(const Capacities& capacities) : c_(capacities) {}

  // From every state that can be reached the last step can be trained.
  bool NeverStops() const {
    std::map<State, std::vector<State>> came_from;
    std::vector<State> frontier = {State()}, good;
    came_from[State()] = {};
    while (!frontier.empty()) {
      const State state = frontier.back();
      frontier.pop_back();
      if (state.trained == c_.steps * c_.groups_per_step) good.push_back(state);
      for (const State& next : Next(state)) {
        const bool is_new = came_from.find(next) == came_from.end();
        came_from[next].push_back(state);
        if (is_new) frontier.push_back(next);
      }
    }
    std::set<State> ends(good.begin(), good.end());
    while (!good.empty()) {
      const State state = good.back();
      good.pop_back();
      for (const State& before : came_from[state]) {
        if (ends.insert(before).second) good.push_back(before);
      }
    }
    return ends.size() == came_from.size();
  }

 private:
  struct State {
    // Groups trained so far; their payloads are kept until a checkpoint covers them.
    uint64_t trained = 0;
    uint64_t unsettled = 0;
    // Of each open group, by id: members that have come.
    std::vector<uint64_t> open;
    friend bool operator<(const State& a, const State& b) {
      return std::tie(a.trained, a.unsettled, a.open) < std::tie(b.trained, b.unsettled, b.open);
    }
  };

  // A group takes its whole reservation from its issue until it is settled.
  uint64_t Bytes(const State& state) const {
    return (state.open.size() + state.unsettled) * c_.group_size * c_.trajectory_bytes;
  }

  std::vector<State> Next(const State& state) const {
    std::vector<State> next;
    const uint64_t version = state.trained / c_.groups_per_step + 1;
    const uint64_t paced = (version + c_.budget < c_.steps ? version + c_.budget : c_.steps) * c_.groups_per_step;
    const bool may_issue = state.trained + state.open.size() < paced && state.open.size() < c_.max_groups &&
                           Bytes(state) + c_.group_size * c_.trajectory_bytes <= c_.max_bytes;
    if (may_issue) {
      next.push_back(state);
      next.back().open.push_back(0);
    }
    std::vector<size_t> ready;
    for (size_t i = 0; i < state.open.size(); ++i) {
      if (state.open[i] == c_.group_size) {
        ready.push_back(i);
        continue;
      }
      next.push_back(state);
      ++next.back().open[i];
      // Failed for good: another ticket takes its place, later.
      next.push_back(state);
      next.back().open.erase(next.back().open.begin() + static_cast<int64_t>(i));
    }
    const bool has_batch = ready.size() >= c_.groups_per_step &&
                           (!c_.is_order_ticket || ready[c_.groups_per_step - 1] == c_.groups_per_step - 1);
    if (has_batch) {
      next.push_back(state);
      for (size_t i = c_.groups_per_step; i > 0; --i) {
        next.back().open.erase(next.back().open.begin() + static_cast<int64_t>(ready[i - 1]));
      }
      next.back().trained += c_.groups_per_step;
      next.back().unsettled += c_.groups_per_step;
    }
    if (state.unsettled > 0) {
      next.push_back(state);
      next.back().unsettled = 0;
    }
    return next;
  }

  const Capacities c_;
};

// Calls `visit` with every combination of small sizes, feasible or not.
template <typename Visit>
void ForSmallCapacities(uint64_t smallest_group, const Visit& visit) {
  Capacities c;
  c.trajectory_bytes = 2;
  for (c.groups_per_step = 1; c.groups_per_step <= 3; ++c.groups_per_step)
    for (c.group_size = smallest_group; c.group_size <= smallest_group + 1; ++c.group_size)
      for (c.budget = 0; c.budget <= 2; ++c.budget)
        for (c.max_groups = 1; c.max_groups <= 4; ++c.max_groups)
          for (const bool is_order_ticket : {true, false}) {
            c.is_order_ticket = is_order_ticket;
            const uint64_t group = c.group_size * c.trajectory_bytes;
            // Around every number of whole groups.
            for (uint64_t groups = 1; groups <= 4; ++groups)
              for (c.max_bytes = groups * group - 1; c.max_bytes <= groups * group + 1; ++c.max_bytes) visit(c);
          }
}

}  // namespace leeway

#endif  // LEEWAY_QUEUE_SIMULATION_CAPACITY_MODEL_TEST_H_
