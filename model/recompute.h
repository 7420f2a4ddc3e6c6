#ifndef LEEWAY_MODEL_RECOMPUTE_H_
#define LEEWAY_MODEL_RECOMPUTE_H_

namespace leeway {

// What a backward pass computes again instead of finding it kept. No bit depends on it.
enum class Recompute {
  kNone,
  kSelective,  // the rows of gate and up, the widest ones: one product of the forward pass
  kFull,       // a layer from its input to those rows
};

}  // namespace leeway

#endif  // LEEWAY_MODEL_RECOMPUTE_H_
