#ifndef LEEWAY_COLLECTIVE_CPU_GLOO_COMMUNICATOR_H_
#define LEEWAY_COLLECTIVE_CPU_GLOO_COMMUNICATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "collective/communicator.h"
#include "collective/cpu/gloo_mesh.h"

namespace leeway {

// The communicator of this process among `options.size` processes on CPUs. Blocks until all are there; errors as
// GlooMesh::Connect. Destroying the last communicator of a family waits for the other ranks to do the same, at most for
// the timeout of an operation, unless it has failed.
absl::StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(const GlooOptions& options);

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_CPU_GLOO_COMMUNICATOR_H_
