#ifndef LEEWAY_TRAINER_PARALLEL_SHARDING_OPTIONS_H_
#define LEEWAY_TRAINER_PARALLEL_SHARDING_OPTIONS_H_

// What data-parallel ranks keep of the training state (ZeRO; Rajbhandari et al., arXiv 1910.02054), and how many bytes
// that is, before anything is allocated.
//
//              stage 0      stage 1      stage 2      stage 3
//   optimizer  everything   own shard    own shard    own shard
//   gradients  everything   everything   own shard    own shard
//   parameters everything   everything   everything   own shard
//
// Elements that a rank sends in a step of k micro-batches, in units of (N-1)/N of the trainable parameters (stage 3
// gathers the frozen ones too):
//   stage 0    2      one all-reduce
//   stage 1    2      one reduce-scatter, one all-gather
//   stage 2    k+1    a reduce-scatter a micro-batch, one all-gather
//   stage 3    3k     two all-gathers (forward, backward) and a reduce-scatter a micro-batch; with reduce_once, which
//                     keeps whole gradients until the end of the step, 2k + 1
// Stage 3 as the Transformer walks it sends less: it takes embedding, final norm and head once a micro-batch, the
// layers twice. Beside that, once a step, the Learner gathers all units once more for rank 0 to publish, at stage 3.
// One data-parallel rank alone holds everything and sends nothing at every stage.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/shape.h"
#include "trainer/config_problem.h"
#include "trainer/optimizer/optimizer_options.h"
#include "trainer/parallel/mesh.h"
#include "trainer/parallel/shard_plan.h"

namespace leeway {

struct ShardingOptions {
  int zero_stage = 0;
  bool reduce_once = false;
  // Parameters in bf16 beside a master copy in the arithmetic's type, which the optimizer works on; without it they are
  // the master.
  bool bf16_parameters = false;
  // Gradients are kept in bf16: formed, reduced and used in the arithmetic's type, rounded at every addition.
  bool bf16_gradients = false;
  // Names of parameters that do not change.
  std::vector<std::string> frozen;
};

// Keys are "trainer.<field>". Empty = usable.
std::vector<ConfigProblem> ShardingProblems(const ShardingOptions& options);

// Names of `list`, separated by commas; a `*` at the end of a name stands for all of the model's that begin like it.
// What matches nothing stays as it is written, for FrozenProblems to name.
std::vector<std::string> FrozenNames(absl::string_view list, const ModelShape& model);
// Keys are "trainer.frozen". Empty = usable.
std::vector<ConfigProblem> FrozenProblems(const std::vector<std::string>& frozen, const ModelShape& model);

// Which of the three are cut over `data_ranks`.
struct ShardedKinds {
  bool optimizer = false;
  bool gradients = false;
  bool parameters = false;
};
ShardedKinds KindsSharded(const ShardingOptions& options, int data_ranks);

// Bytes of one rank.
struct StateBytes {
  int64_t parameters = 0;
  int64_t master = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  // Kept between calls for collectives and conversions: a unit on its way, and the unit that the model reads.
  int64_t buffers = 0;
  int64_t total() const { return parameters + master + gradients + optimizer + buffers; }
  friend bool operator==(const StateBytes&, const StateBytes&) = default;
};

// Elements of those buffers: `unit` and `gathered` of the parameters' type, `scratch_bytes` bytes.
struct BufferSizes {
  int64_t unit = 0;
  int64_t gathered = 0;
  int64_t scratch_bytes = 0;
};
BufferSizes SizesOfBuffers(const ShardPlan& plan, int64_t rank, const ShardingOptions& options, int data_ranks,
                           int64_t real_bytes);

// Of the rank `world_rank` of the mesh. `real_bytes`: of the arithmetic, 4 in the product. INVALID_ARGUMENT: a frozen
// parameter that does not exist.
absl::StatusOr<StateBytes> ExpectedStateBytes(const ModelShape& model, const MeshShape& mesh, int world_rank,
                                              const ShardingOptions& options, OptimizerKind optimizer,
                                              int64_t real_bytes);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_PARALLEL_SHARDING_OPTIONS_H_
