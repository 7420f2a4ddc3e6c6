// What the queue gives, beside its peers, in one run on one machine.
//
//   queue_benchmark [throughput] [--sizes 1KiB,64KiB,1MiB] [--repeats N] [--depth N] [--megabytes N] [--folder DIR]
//                   [--store memory|rocksdb] [--no-redis] [--json]
//
// 8 producers push real trajectories, each with at most --depth unanswered; one consumer leases, commits and settles.
// Three rates: put (fill, nobody reads), get (drain), flow (both at once). Redis Streams gets the same bytes from as
// many clients with the same pipeline. Exit code 1: a target is missed (--no-check: never).

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/logging.h"
#include "benchmarks/queue/append_loop.h"
#include "benchmarks/queue/child_process.h"
#include "benchmarks/queue/figures.h"
#include "benchmarks/queue/queue_load.h"
#include "benchmarks/queue/redis_load.h"

namespace leeway {
namespace {

struct Arguments {
  std::vector<uint64_t> kib = {1, 64, 1024};
  int repeats = 3;
  uint64_t depth = 16;
  uint64_t megabytes = 256;
  std::string folder = "/tmp";
  std::string store = "memory";
  bool no_redis = false;
};

LoadShape ShapeOf(uint64_t kib, const Arguments& arguments) {
  LoadShape shape;
  shape.payload_bytes = kib << 10;
  shape.depth = arguments.depth;
  // Batches of 256 small trajectories, of 16 large ones.
  shape.groups_per_step = kib <= 4 ? 32 : kib <= 256 ? 8 : 2;
  const uint64_t steps = (arguments.megabytes << 20) / shape.payload_bytes / shape.batch();
  shape.pushes = std::max<uint64_t>(steps, 4) * shape.batch();
  return shape;
}

// Several runs of one system.
struct Runs {
  std::vector<LoadResult> all;
  Figure Of(double LoadResult::*field, double scale = 1) const {
    std::vector<double> values;
    for (const LoadResult& result : all) values.push_back(scale * (result.*field));
    return FigureOf(values);
  }
};

std::vector<std::string> Row(const std::string& system, const std::string& size, const Runs& runs, uint64_t bytes) {
  return {size,
          system,
          FormatFigure(runs.Of(&LoadResult::put)),
          FormatFigure(runs.Of(&LoadResult::get)),
          FormatFigure(runs.Of(&LoadResult::flow)),
          FormatNumber(runs.Of(&LoadResult::flow).median * static_cast<double>(bytes) / 1e6),
          FormatNumber(runs.Of(&LoadResult::latency_p50, 1e6).median),
          FormatNumber(runs.Of(&LoadResult::latency_p99, 1e6).median),
          FormatNumber(runs.Of(&LoadResult::queue_cpu, 1e6).median),
          FormatNumber(runs.Of(&LoadResult::clients_cpu, 1e6).median)};
}

int Throughput(const Arguments& arguments) {
  TextTable table({"size", "system", "put/s", "get/s", "flow/s", "flow MB/s", "p50 us", "p99 us", "queue CPU us",
                   "clients CPU us"});
  std::vector<Target> targets;
  for (uint64_t kib : arguments.kib) {
    LoadShape shape = ShapeOf(kib, arguments);
    const std::string size = kib < 1024 ? absl::StrCat(kib, " KiB") : absl::StrCat(kib / 1024, " MiB");
    Runs ours, redis;
    for (int repeat = 0; repeat < arguments.repeats; ++repeat) {
      std::fprintf(stderr, "%s, %llu pushes, run %d of %d\n", size.c_str(),
                   static_cast<unsigned long long>(shape.pushes), repeat + 1, arguments.repeats);
      TemporaryFolder folder(arguments.folder);
      ours.all.push_back(MeasureQueue(shape, folder.path()));
      if (!arguments.no_redis) redis.all.push_back(MeasureRedis(shape, RedisSync::kNone, folder.path()));
    }
    table.Add(Row("leeway " + arguments.store, size, ours, shape.payload_bytes));
    if (arguments.no_redis) continue;
    table.Add(Row("redis no fsync", size, redis, shape.payload_bytes));
    const double target = kib <= 1 ? 1.0 : 1.5;
    for (const auto& [name, field] : {std::pair{"put", &LoadResult::put}, std::pair{"flow", &LoadResult::flow}}) {
      targets.push_back(
          {absl::StrCat(size, " ", name, " / redis ", name), ours.Of(field).median / redis.Of(field).median, target});
    }
  }
  std::printf("%s\n", table.ToString().c_str());
  return PrintTargets(targets) ? 0 : 1;
}

int Main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "serve") == 0) return ServeQueue(argc, argv);
  Arguments arguments;
  CLI::App app("Throughput of the queue beside its peers");
  app.add_option("--kib", arguments.kib, "Payload sizes in KiB")->delimiter(',');
  app.add_option("--repeats", arguments.repeats, "Measurements of each");
  app.add_option("--depth", arguments.depth, "Unanswered pushes of each producer");
  app.add_option("--megabytes", arguments.megabytes, "Pushed in each phase");
  app.add_option("--folder", arguments.folder, "Where stores and sockets are made");
  app.add_option("--store", arguments.store, "memory or rocksdb");
  app.add_flag("--no-redis", arguments.no_redis, "Leave the peer out");
  CLI11_PARSE(app, argc, argv);
  return Throughput(arguments);
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::warn);
  return leeway::Main(argc, argv);
}
