#ifndef LEEWAY_TRAINER_CONFIG_PROBLEM_H_
#define LEEWAY_TRAINER_CONFIG_PROBLEM_H_

#include <string>

namespace leeway {

// One thing that is wrong with a configuration, in the words of its keys, so that `leeway check` can point at
// file:line:column.
struct ConfigProblem {
  std::string key;      // "objective.correction"
  std::string message;  // what was found, what is possible, what to change
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_CONFIG_PROBLEM_H_
