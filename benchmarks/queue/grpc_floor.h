#ifndef LEEWAY_BENCHMARKS_QUEUE_GRPC_FLOOR_H_
#define LEEWAY_BENCHMARKS_QUEUE_GRPC_FLOOR_H_

#include <string>

#include "benchmarks/queue/load_shape.h"

namespace leeway {

// What gRPC gives at best on this machine: the messages that `MeasureQueue` puts (shape.depth payloads in one, as many
// streams), between two processes over a unix socket, read, thrown away and answered with a few bytes. Payloads per
// second: no queue on gRPC can take more in this pattern.
double MeasureGrpcFloor(const LoadShape& shape, const std::string& folder);

// The other process: `floor ADDRESS`. Ends at SIGTERM.
int ServeGrpcFloor(const std::string& address);

}  // namespace leeway

#endif  // LEEWAY_BENCHMARKS_QUEUE_GRPC_FLOOR_H_
