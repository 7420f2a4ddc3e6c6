// What the queue gives, beside its peers, in one run on one machine.
//
//   queue_benchmark [throughput] [--kib 1,64,1024] [--store memory,rocksdb] [--repeats N] [--depth N] [--megabytes N]
//                   [--folder DIR] [--no-redis] [--json FILE]
//   queue_benchmark soak  [--pushes N] [--store memory|rocksdb] [--folder DIR]
//   queue_benchmark stall [--seconds N] [--store memory|rocksdb] [--folder DIR]
//
// throughput: 8 producers push real trajectories, each with at most --depth (and 4 MiB, but two) on the wire; one
// consumer leases, commits and settles. Three rates: put (fill, nobody reads), get (drain), flow (both at once), in
// memory that was used before. Redis Streams gets the same bytes from as many clients with the same pipeline; a store
// on disk is compared with its appendfsync always. Beside them the floors: gRPC with the same messages and no queue,
// and the bare append + fdatasync loop. soak and stall: benchmarks/queue/endurance.h. Exit code 1: a target is missed.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/allocator.h"
#include "base/logging.h"
#include "benchmarks/queue/append_loop.h"
#include "benchmarks/queue/child_process.h"
#include "benchmarks/queue/endurance.h"
#include "benchmarks/queue/figures.h"
#include "benchmarks/queue/grpc_floor.h"
#include "benchmarks/queue/queue_load.h"
#include "benchmarks/queue/redis_load.h"

namespace leeway {
namespace {

struct Arguments {
  std::vector<uint64_t> kib = {1, 64, 1024};
  std::vector<std::string> stores = {"memory"};
  int repeats = 3;
  uint64_t depth = 16;
  uint64_t megabytes = 256;
  std::string folder = "/tmp";
  bool no_redis = false;
  // One line a system and size, for programs.
  std::string json;
  uint64_t pushes = 10'000'000;
  int64_t seconds = 300;
};

LoadShape ShapeOf(uint64_t kib, const Arguments& arguments) {
  LoadShape shape;
  shape.payload_bytes = kib << 10;
  // Large ones are in flight with 4 MiB a producer: more only leaves the caches.
  shape.depth = std::max<uint64_t>(2, std::min(arguments.depth, (uint64_t{4} << 20) / shape.payload_bytes));
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

// Medians of a size's runs as one line of `path`.
void AppendJson(const std::string& path, const std::string& system, uint64_t kib, const Runs& runs) {
  std::ofstream(path, std::ios::app) << absl::StrFormat(
      "{\"system\": \"%s\", \"kib\": %d, \"put\": %.6g, \"get\": %.6g, \"flow\": %.6g}\n", system, kib,
      runs.Of(&LoadResult::put).median, runs.Of(&LoadResult::get).median, runs.Of(&LoadResult::flow).median);
}

// What a store has to reach, as ratios to Redis: in memory to Redis without fsync, on disk to `always`.
double TargetOf(uint64_t kib, bool is_durable) {
  if (is_durable) return kib <= 1 ? 1.5 : 1.0;
  return kib <= 1 ? 1.0 : 1.5;
}

// The answer's time at 16 unanswered pushes of one producer, against that of the disk.
Target DurableLatency(const Arguments& arguments) {
  LoadShape shape;
  shape.pushes = 1 << 14;
  shape.producers = 1;
  shape.lots = 1;
  shape.depth = 16;
  shape.is_durable = true;
  TemporaryFolder folder(arguments.folder);
  std::vector<double> answers, in_memory, syncs;
  for (int repeat = 0; repeat < arguments.repeats; ++repeat) {
    syncs.push_back(MeasureAppends(shape.depth * shape.payload_bytes, 2000, folder.path()).sync_p50);
    answers.push_back(MeasurePut(shape, folder.path()).latency_p50);
    LoadShape memory_shape = shape;
    memory_shape.is_durable = false;
    in_memory.push_back(MeasurePut(memory_shape, folder.path()).latency_p50);
  }
  const Figure answer = FigureOf(answers), sync = FigureOf(syncs);
  std::printf("durable answer at batch 16: p50 %s us (from memory %.0f us); fdatasync of 16 KiB: p50 %s us\n\n",
              FormatFigure({1e6 * answer.min, 1e6 * answer.median, 1e6 * answer.max}).c_str(),
              1e6 * FigureOf(in_memory).median,
              FormatFigure({1e6 * sync.min, 1e6 * sync.median, 1e6 * sync.max}).c_str());
  return {"3 x median sync / durable answer p50", 3 * sync.median / answer.median, 1.0};
}

int Throughput(const Arguments& arguments) {
  TextTable table({"size", "system", "put/s", "get/s", "flow/s", "flow MB/s", "p50 us", "p99 us", "queue CPU us",
                   "clients CPU us"});
  std::vector<Target> targets;
  for (const std::string& store : arguments.stores) {
    for (uint64_t kib : arguments.kib) {
      LoadShape shape = ShapeOf(kib, arguments);
      shape.is_durable = store == "rocksdb";
      const RedisSync sync = shape.is_durable ? RedisSync::kAlways : RedisSync::kNone;
      const std::string size = kib < 1024 ? absl::StrCat(kib, " KiB") : absl::StrCat(kib / 1024, " MiB");
      Runs ours, redis;
      std::vector<double> appends, floors;
      for (int repeat = 0; repeat < arguments.repeats; ++repeat) {
        std::fprintf(stderr, "%s, %s, %llu pushes, run %d of %d\n", store.c_str(), size.c_str(),
                     static_cast<unsigned long long>(shape.pushes), repeat + 1, arguments.repeats);
        TemporaryFolder folder(arguments.folder);
        ours.all.push_back(MeasureQueue(shape, folder.path()));
        floors.push_back(MeasureGrpcFloor(shape, folder.path()));
        if (!arguments.no_redis) redis.all.push_back(MeasureRedis(shape, sync, folder.path()));
        if (shape.is_durable) {
          appends.push_back(MeasureAppends(shape.payload_bytes, kib <= 64 ? 1000 : 100, folder.path()).appends_per_s);
        }
      }
      table.Add(Row("leeway " + store, size, ours, shape.payload_bytes));
      if (!arguments.json.empty()) AppendJson(arguments.json, "leeway " + store, kib, ours);
      if (!arguments.no_redis) {
        table.Add(Row(shape.is_durable ? "redis always" : "redis no fsync", size, redis, shape.payload_bytes));
        for (const auto& [name, field] : {std::pair{"put", &LoadResult::put}, std::pair{"flow", &LoadResult::flow}}) {
          targets.push_back({absl::StrCat(size, " ", store, " ", name, " / redis ", name),
                             ours.Of(field).median / redis.Of(field).median, TargetOf(kib, shape.is_durable)});
        }
      }
      table.Add({size, "gRPC alone", FormatFigure(FigureOf(floors))});
      if (!appends.empty()) table.Add({size, "append + fdatasync", FormatFigure(FigureOf(appends))});
    }
    if (store == "rocksdb") targets.push_back(DurableLatency(arguments));
  }
  std::printf("%s\n", table.ToString().c_str());
  return PrintTargets(targets) ? 0 : 1;
}

int Main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "serve") == 0) return ServeQueue(argc, argv);
  if (argc == 3 && std::strcmp(argv[1], "floor") == 0) return ServeGrpcFloor(argv[2]);
  Arguments arguments;
  CLI::App app("The queue beside its peers, and under endurance");
  const CLI::IsMember stores({"memory", "rocksdb"});
  app.add_option("--folder", arguments.folder, "Where stores and sockets are made");
  app.add_option("--store", arguments.stores, "memory, rocksdb")->delimiter(',')->check(stores);
  app.add_option("--kib", arguments.kib, "Payload sizes in KiB")->delimiter(',');
  app.add_option("--repeats", arguments.repeats, "Measurements of each");
  app.add_option("--depth", arguments.depth, "Unanswered pushes of each producer");
  app.add_option("--megabytes", arguments.megabytes, "Pushed in each phase");
  app.add_flag("--no-redis", arguments.no_redis, "Leave the peer out");
  app.add_option("--json", arguments.json, "File to which the medians are appended");
  app.add_option("--pushes", arguments.pushes, "soak: how many");
  app.add_option("--seconds", arguments.seconds, "stall: how long the consumer stands still");
  app.fallthrough();
  app.add_subcommand("throughput");
  CLI::App* const soak = app.add_subcommand("soak");
  CLI::App* const stall = app.add_subcommand("stall");
  CLI11_PARSE(app, argc, argv);
  const bool is_durable = arguments.stores.front() == "rocksdb";
  if (*soak) return PrintTargets(Soak(arguments.pushes, is_durable, arguments.folder)) ? 0 : 1;
  if (*stall) return PrintTargets(Stall(absl::Seconds(arguments.seconds), is_durable, arguments.folder)) ? 0 : 1;
  return Throughput(arguments);
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  leeway::PrepareAllocator();
  spdlog::set_level(spdlog::level::warn);
  return leeway::Main(argc, argv);
}
