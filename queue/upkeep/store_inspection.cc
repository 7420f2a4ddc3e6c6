#include "queue/upkeep/store_inspection.h"

#include <limits>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "fmt/format.h"
#include "queue/core/queue_core.h"
#include "queue/store/record_keys.h"

namespace leeway {
namespace {

// A queue that accepts what the head says of its run.
absl::StatusOr<QueueCoreOptions> OptionsOf(const v1::HeadRecord& head) {
  QueueCoreOptions options;
  LEEWAY_ASSIGN_OR_RETURN(options.staleness.order, ParseStalenessOrder(head.order()));
  options.staleness.budget = head.budget();
  options.staleness.groups_per_step = head.groups_per_step();
  options.staleness.steps = std::numeric_limits<uint32_t>::max();
  options.staleness.breach = StalenessBreach::kMask;
  options.group_size = head.group_size();
  options.max_groups = std::numeric_limits<uint32_t>::max();
  options.max_bytes = std::numeric_limits<uint64_t>::max();
  options.max_trajectory_bytes = 1;
  options.task = head.task();
  options.train_seed = [seed = head.seed_of_first_ticket()](uint64_t) { return seed; };
  options.evaluation_seed = [](uint64_t) { return 0; };
  options.evaluation.episodes = head.evaluation_episodes();
  return options;
}

std::string Line(const std::string& name, const std::string& value) {
  return fmt::format("  {:<12} {}\n", name, value);
}

struct OpenedStore {
  v1::HeadRecord head;
  std::unique_ptr<QueueCore> core;
  const RocksDbStore* disk = nullptr;  // the core's
};

absl::StatusOr<OpenedStore> OpenToRead(const std::string& directory) {
  RocksDbStoreOptions store_options;
  store_options.directory = directory;
  store_options.read_only = true;
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<RocksDbStore> store, RocksDbStore::Open(store_options));
  OpenedStore opened;
  opened.disk = store.get();
  bool has_head = false;
  LEEWAY_RETURN_IF_ERROR(store->Recover([&](absl::string_view key, absl::string_view value) {
    if (key == RecordKey(RecordKind::kHead)) {
      has_head = opened.head.ParseFromArray(value.data(), static_cast<int>(value.size()));
    }
    return absl::OkStatus();
  }));
  if (!has_head) return absl::NotFoundError(absl::StrCat(directory, ": a store in which no queue has written yet"));
  LEEWAY_ASSIGN_OR_RETURN(QueueCoreOptions options, OptionsOf(opened.head));
  LEEWAY_ASSIGN_OR_RETURN(opened.core, QueueCore::Create(std::move(options), std::move(store)));
  return opened;
}

// Trajectories that could not be loaded, and why.
using Unreadable = absl::flat_hash_map<PayloadKey, absl::Status>;

Unreadable FindUnreadable(const OpenedStore& opened, const InspectionProgress& progress) {
  Unreadable unreadable;
  uint64_t checked = 0, bytes = 0;
  const auto check = [&](const PayloadKey& key, const StoredPayload& payload) {
    if (progress) progress(checked, opened.disk->payloads(), bytes);
    // The store compares what it reads with the hash that was written with it.
    if (const auto loaded = payload.Load(); !loaded.ok()) unreadable[key] = loaded.status();
    ++checked;
    bytes += payload.size_bytes();
    return absl::OkStatus();
  };
  opened.core->VisitPayloads(check).IgnoreError();  // has none of its own
  return unreadable;
}

// What is damaged among the unreadable ones, in order. A queue that has the store open may have trained and removed
// some meanwhile: those are gone when one looks again. Not OK: one is there and cannot be read at this moment.
absl::StatusOr<std::vector<std::string>> LookAgain(const std::string& directory, const Unreadable& unreadable) {
  std::vector<std::string> damaged;
  if (unreadable.empty()) return damaged;
  LEEWAY_ASSIGN_OR_RETURN(const OpenedStore again, OpenToRead(directory));
  LEEWAY_RETURN_IF_ERROR(again.core->VisitPayloads([&](const PayloadKey& key, const StoredPayload& payload) {
    if (!unreadable.contains(key)) return absl::OkStatus();
    const absl::Status status = payload.Load().status();
    if (status.ok() || (!absl::IsDataLoss(status) && !absl::IsNotFound(status))) return status;
    damaged.push_back(std::string(status.message()));
    return absl::OkStatus();
  }));
  return damaged;
}

}  // namespace

absl::StatusOr<StoreContents> InspectStore(const std::string& directory, const InspectionProgress& progress) {
  LEEWAY_ASSIGN_OR_RETURN(const OpenedStore opened, OpenToRead(directory));
  StoreContents contents;
  opened.core->FillStatus(MonotonicTime(), &contents.status);
  contents.groups_per_step = opened.head.groups_per_step();
  contents.group_size = opened.head.group_size();
  contents.budget = opened.head.budget();
  contents.lineage = opened.head.lineage();
  contents.lives = opened.head.lives();
  contents.payloads = opened.disk->payloads();
  contents.payload_bytes = opened.disk->bytes();
  contents.statistics = opened.disk->Statistics();
  LEEWAY_ASSIGN_OR_RETURN(contents.damaged, LookAgain(directory, FindUnreadable(opened, progress)));
  return contents;
}

std::string DescribeContents(const StoreContents& contents) {
  const v1::StatusResponse& status = contents.status;
  const v1::LedgerCounts& counts = status.counts();
  std::string text = Line("run", fmt::format("{} groups of {} episodes a step, staleness budget {}",
                                             contents.groups_per_step, contents.group_size, contents.budget));
  text += Line("version", status.committed().version() == 0
                              ? "none committed"
                              : fmt::format("{} of lineage {} (newest lineage {})", status.committed().version(),
                                            status.committed().lineage(), contents.lineage));
  text += Line("tickets", fmt::format("{} issued ({} rows); conservation {}", status.next_ticket() - 1,
                                      counts.issued_total(), status.conservation_holds() ? "holds" : "IS BROKEN"));
  text += Line("open", fmt::format("{} issued, {} running, {} ready, {} leased, {} trained", counts.issued(),
                                   counts.running(), counts.ready(), counts.leased(), counts.trained()));
  text += Line("ended",
               fmt::format("{} settled, {} filtered, {} stale, {} failed, {} cancelled, {} rewound", counts.settled(),
                           counts.filtered(), counts.stale(), counts.failed(), counts.cancelled(), counts.rewound()));
  text += Line("payloads", fmt::format("{} trajectories, {} bytes; segments {} files, {} bytes", contents.payloads,
                                       contents.payload_bytes, contents.statistics.segments,
                                       contents.statistics.segment_file_bytes));
  text +=
      Line("checked", contents.damaged.empty() ? "the bytes of all trajectories are what was acknowledged"
                                               : fmt::format("{} trajectories ARE DAMAGED; a queue has their groups "
                                                             "generated again:",
                                                             contents.damaged.size()));
  for (const std::string& damage : contents.damaged) text += Line("damaged", damage);
  for (const v1::WorkerStatus& worker : status.workers()) {
    text += Line("worker", fmt::format("{} (producer {}, epoch {}): {}, {} tickets running, {} trajectories, {} failed",
                                       worker.name(), worker.identity().producer_id(), worker.identity().epoch(),
                                       worker.alive() ? "registered" : "lost", worker.running_tickets(),
                                       worker.trajectories(), worker.failures()));
  }
  for (const auto& [code, count] : status.episode_failures()) {
    text += Line("failure", fmt::format("{} x {}", count, code));
  }
  text += Line("queue", fmt::format("{} processes have run on this store", contents.lives));
  return text;
}

}  // namespace leeway
