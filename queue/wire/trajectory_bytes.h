#ifndef LEEWAY_QUEUE_WIRE_TRAJECTORY_BYTES_H_
#define LEEWAY_QUEUE_WIRE_TRAJECTORY_BYTES_H_

#include <string>

#include "absl/strings/string_view.h"
#include "leeway/v1/types.pb.h"

namespace leeway {

// v1::Trajectory to bytes and back, in protobuf's format, several times as fast as the generated code for long ones:
// their token ids are written and read without a branch for each byte. Pure functions.

// Fields may come in another order than protobuf's; the message is the same.
std::string SerializeTrajectory(const v1::Trajectory& trajectory);

// False: the bytes are no Trajectory; `trajectory` is undefined then.
bool ParseTrajectory(absl::string_view bytes, v1::Trajectory* trajectory);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_WIRE_TRAJECTORY_BYTES_H_
