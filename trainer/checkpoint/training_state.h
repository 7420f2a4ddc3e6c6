#ifndef LEEWAY_TRAINER_CHECKPOINT_TRAINING_STATE_H_
#define LEEWAY_TRAINER_CHECKPOINT_TRAINING_STATE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace leeway {

// What training goes on from, of the whole model whatever ranks hold parts of it.
template <typename Real>
struct BasicTrainingState {
  std::vector<Real> parameters;  // in full precision; flat, ParameterLayout order
  // The optimizer's arrays, "<parameter>.<array>" ("model.norm.weight.first_moment"), each as large as its parameter.
  std::map<std::string, std::vector<Real>> optimizer;
  int64_t updates = 0;  // that the optimizer has made

  friend bool operator==(const BasicTrainingState&, const BasicTrainingState&) = default;
};

using TrainingState = BasicTrainingState<float>;

}  // namespace leeway

#endif  // LEEWAY_TRAINER_CHECKPOINT_TRAINING_STATE_H_
