#ifndef LEEWAY_BENCHMARKS_QUEUE_REDIS_LOAD_H_
#define LEEWAY_BENCHMARKS_QUEUE_REDIS_LOAD_H_

#include <string>

#include "benchmarks/queue/load_shape.h"

namespace leeway {

// How a Redis server keeps what it was given.
enum class RedisSync {
  kNone,    // memory only
  kAlways,  // appendonly, fsync before every answer
};

// The same load on Redis Streams: a server in a process of its own (Debian's redis-server), `producers` connections
// that keep `depth` XADDs of the same serialised trajectories in flight, one consumer that reads in a group,
// acknowledges and deletes. The clients are as cheap as can be: all producers share one thread, commands are encoded
// once. Ends the program, and says what to install, when there is no redis-server.
LoadResult MeasureRedis(const LoadShape& shape, RedisSync sync, const std::string& folder);

}  // namespace leeway

#endif  // LEEWAY_BENCHMARKS_QUEUE_REDIS_LOAD_H_
