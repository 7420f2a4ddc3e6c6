#include "benchmarks/queue/endurance.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "benchmarks/queue/child_process.h"
#include "benchmarks/queue/queue_load.h"

namespace leeway {
namespace {

constexpr uint64_t kStepsOfRoom = 4;

// Small ones, as a trajectory of a short game is.
LoadShape SmallShape(uint64_t pushes, bool is_durable) {
  LoadShape shape;
  shape.payload_bytes = 200;
  shape.pushes = pushes;
  shape.is_durable = is_durable;
  return shape;
}

QueueUnderLoad::Options Bounded(const LoadShape& shape, const std::string& folder) {
  // The bound, not the budget, is what stops producers.
  return {.shape = shape,
          .max_groups = kStepsOfRoom * shape.groups_per_step,
          .steps = uint64_t{1} << 40,
          .budget = uint64_t{1} << 20,
          .folder = folder};
}

double Mebibytes(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Growth as a target: at most `most`, in the form "1 + most over what it was".
Target NoGrowth(const std::string& what, double before, double largest, double most) {
  return {absl::StrCat(what, ": ", FormatNumber(before), " MiB, later at most ", FormatNumber(largest),
                       " MiB; allowed size / largest size"),
          before * (1 + most) / largest, 1.0};
}

}  // namespace

std::vector<Target> Soak(uint64_t pushes, bool is_durable, const std::string& folder) {
  LoadShape shape = SmallShape(pushes, is_durable);
  TemporaryFolder own(folder);
  QueueUnderLoad queue(Bounded(shape, own.path()));
  const uint64_t warm = std::min<uint64_t>(1'000'000, pushes / 10);
  double before = 0, largest = 0, store_before = 0, store_largest = 0;
  const MonotonicTime start = RealClock()->Now();
  MonotonicTime next_line = start;
  queue.StartProducers(pushes);
  // The last groups may be incomplete: what producers took beyond the quota is not waited for.
  const uint64_t last = pushes - 2 * kStepsOfRoom * shape.batch();
  for (uint64_t got = 0; got < last;) {
    got += queue.Step();
    const MonotonicTime now = RealClock()->Now();
    const bool is_warm_now = got >= warm && before == 0;
    if (now < next_line && got < last && !is_warm_now) continue;
    next_line = now + absl::Seconds(2);
    const double resident = Mebibytes(ProcessResidentBytes(queue.pid()));
    const double store = Mebibytes(queue.store_bytes());
    if (got < warm) {
      store_before = std::max(store, store_before);
    } else {
      if (is_warm_now) before = resident;
      largest = std::max(largest, resident);
      store_largest = std::max(store_largest, store);
    }
    std::printf("%6.1f s  %9llu trajectories  queue %7.1f MiB  clients %7.1f MiB  store %7.1f MiB\n",
                absl::ToDoubleSeconds(now - start), static_cast<unsigned long long>(got), resident,
                Mebibytes(ProcessResidentBytes(0)), store);
    std::fflush(stdout);
  }
  std::vector<Target> targets = {NoGrowth(absl::StrCat("queue's resident size after ", warm), before, largest, 0.05)};
  // A store is compacted now and then: twice what it was is the most that this takes.
  if (is_durable) targets.push_back(NoGrowth("store's size", store_before, store_largest, 1.0));
  while (queue.Status().counts().ready() >= shape.groups_per_step) queue.Step();
  queue.JoinProducers();
  return targets;
}

std::vector<Target> Stall(absl::Duration pause, bool is_durable, const std::string& folder) {
  // More than will be pushed.
  LoadShape shape = SmallShape(uint64_t{1} << 40, is_durable);
  TemporaryFolder own(folder);
  QueueUnderLoad queue(Bounded(shape, own.path()));
  queue.StartProducers(shape.pushes);
  for (int i = 0; i < 400; ++i) queue.Step();
  // Until nothing moves any more.
  uint64_t answered = 0;
  for (int still = 0; still < 4;) {
    usleep(500'000);
    still = queue.answered() == answered ? still + 1 : 0;
    answered = queue.answered();
  }
  const double queue_before = Mebibytes(ProcessResidentBytes(queue.pid()));
  const double own_before = Mebibytes(ProcessResidentBytes(0));
  double queue_largest = queue_before, own_largest = own_before;
  const std::vector<uint64_t> at_stop = queue.answered_by_producer();
  double full = 1;
  const MonotonicTime start = RealClock()->Now();
  while (RealClock()->Now() - start < pause) {
    usleep(1'000'000);
    queue_largest = std::max(queue_largest, Mebibytes(ProcessResidentBytes(queue.pid())));
    own_largest = std::max(own_largest, Mebibytes(ProcessResidentBytes(0)));
    const std::vector<std::string> causes = queue.causes();
    const auto is_full = [](const std::string& cause) { return cause == "queue_full"; };
    full = std::min(full, static_cast<double>(std::count_if(causes.begin(), causes.end(), is_full)) /
                              static_cast<double>(causes.size()));
    std::printf("%6.1f s blocked  queue %.1f MiB  producers %.1f MiB  causes: %s\n",
                absl::ToDoubleSeconds(RealClock()->Now() - start), queue_largest, own_largest,
                absl::StrJoin(causes, " ").c_str());
    std::fflush(stdout);
  }
  const bool moved = queue.answered_by_producer() != at_stop;
  for (int i = 0; i < 400; ++i) queue.Step();
  std::vector<double> shares;
  double sum = 0;
  const std::vector<uint64_t> after = queue.answered_by_producer();
  for (size_t i = 0; i < after.size(); ++i) {
    shares.push_back(static_cast<double>(after[i] - at_stop[i]));
    sum += shares.back();
  }
  const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
  const double mean = sum / static_cast<double>(shares.size());
  std::printf("answered after the release, by producer: %s\n", absl::StrJoin(shares, " ").c_str());
  queue.StopProducers();
  while (queue.Status().counts().ready() >= shape.groups_per_step) queue.Step();
  return {NoGrowth("queue's resident size", queue_before, queue_largest, 0.05),
          NoGrowth("producers' resident size", own_before, own_largest, 0.05),
          {"share of the producers that said queue_full, at the least", full, 1.0},
          {"nothing was accepted while the consumer stood still", moved ? 0.0 : 1.0, 1.0},
          {"smallest share of a producer / mean", *least / mean, 0.9},
          {"mean / largest share of a producer", mean / *most, 1 / 1.1}};
}

}  // namespace leeway
