#include "collective/communicator.h"

namespace leeway {

absl::string_view CollectiveName(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kSend:
      return "send";
    case Collective::kReceive:
      return "receive";
    case Collective::kBarrier:
      return "barrier";
  }
  return "unknown";
}

int64_t RingBytesSent(Collective collective, int64_t array_bytes, int size) {
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * array_bytes * (size - 1) / size;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kBroadcast:
      return array_bytes * (size - 1) / size;
    case Collective::kSend:
      return array_bytes;
    case Collective::kReceive:
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

}  // namespace leeway
