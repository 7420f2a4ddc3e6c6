#ifndef LEEWAY_QUEUE_WIRE_CONNECTION_H_
#define LEEWAY_QUEUE_WIRE_CONNECTION_H_

#include "rpc/channel.h"

namespace leeway {

// What the queue's server and its clients agree on. Chunks stay far below the message limit; it is that large for the
// single messages that grow with the run: a ledger snapshot, a status. A peer that is gone without a word is noticed
// after ten seconds, long before anybody's patience ends.
inline ConnectionOptions QueueConnectionOptions() {
  return {.max_message_bytes = 16 << 20, .keepalive_time = absl::Seconds(5), .keepalive_timeout = absl::Seconds(5)};
}

}  // namespace leeway

#endif  // LEEWAY_QUEUE_WIRE_CONNECTION_H_
