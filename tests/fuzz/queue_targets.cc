// What comes to the queue over the wire, and from its store.

#include <memory>
#include <utility>

#include "base/fake_clock.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "queue/door/quarantine.h"
#include "queue/door/validation.h"
#include "queue/fake_trajectory.h"
#include "queue/queue_frontend.h"
#include "queue/store/fake_queue_store.h"
#include "queue/store/memory_store.h"
#include "queue/store/record_keys.h"
#include "queue/wire/lease_stream.h"
#include "rpc/fake_chunks.h"
#include "tests/fuzz/fuzz_target.h"

namespace leeway {
namespace {

constexpr uint32_t kGroupSize = 4;

QueueCoreOptions CoreOptions() {
  QueueCoreOptions options;
  options.staleness.groups_per_step = 2;
  options.staleness.budget = 1;
  options.staleness.steps = 10;
  options.group_size = kGroupSize;
  options.max_groups = 6;
  options.max_trajectory_bytes = 4096;
  options.max_bytes = 16 * kGroupSize * options.max_trajectory_bytes;
  options.task = "sort5";
  options.train_seed = options.evaluation_seed = [](uint64_t index) { return index; };
  return options;
}

void MustHold(const absl::Status& status) { LEEWAY_CHECK(status.ok()) << status; }

// ---- a trajectory at the door ---------------------------------------------------------------------------------------

void RunTrajectory(absl::string_view input) {
  v1::Trajectory trajectory;
  if (!trajectory.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  const std::optional<Rejection> rejection = ValidateTrajectory(trajectory, {kFakeVocabulary, kGroupSize});
  if (rejection.has_value()) {
    LEEWAY_CHECK(!rejection->code.empty() && !rejection->ToString().empty());
    return;
  }
  // What is let in can be summarised, and says the same after another trip.
  const TrajectorySummary summary = Summarize(trajectory);
  LEEWAY_CHECK(summary.key.ticket() == trajectory.key().ticket());
  v1::Trajectory again;
  LEEWAY_CHECK(again.ParseFromString(trajectory.SerializeAsString()));
  LEEWAY_CHECK(!ValidateTrajectory(again, {kFakeVocabulary, kGroupSize}).has_value());
}

std::vector<std::string> TrajectorySeeds() {
  std::vector<std::string> seeds;
  for (uint64_t seed = 1; seed <= 12; ++seed) seeds.push_back(RandomTrajectory(seed, kGroupSize).SerializeAsString());
  return seeds;
}

// ---- pushes ---------------------------------------------------------------------------------------------------------

// A queue with one worker that has tickets. Answers are at once.
struct SmallQueue {
  SmallQueue() {
    core = QueueCore::Create(CoreOptions(), std::make_unique<MemoryStore>()).value();
    raw = core.get();
    QueueFrontendOptions options;
    options.limits = {kFakeVocabulary, kGroupSize};
    options.max_trajectory_bytes = 4096;
    options.max_chunk_bytes = 1024;
    frontend = std::make_unique<QueueFrontend>(options, std::move(core), &quarantine, RealFileSystem(), &clock, [] {});
    v1::RegisterRequest request;
    request.set_name("rollout-0");
    frontend->Register(
        request, [this](absl::StatusOr<v1::RegisterResponse> response) { identity = response.value().identity(); });
    uint64_t lineage = 0;
    frontend->AllocateLineage(
        {}, [&](absl::StatusOr<v1::AllocateLineageResponse> response) { lineage = response.value().lineage(); });
    v1::RestoreRequest restore;
    restore.set_lineage(lineage);
    frontend->Restore(restore, [](absl::StatusOr<v1::RestoreResponse> response) { MustHold(response.status()); });
    v1::CommitRequest commit;
    commit.set_lineage(lineage);
    commit.set_version(1);
    commit.set_digest(std::string(32, 'a'));
    commit.set_initial(true);
    frontend->Commit(commit, [](absl::StatusOr<v1::CommitResponse> response) { MustHold(response.status()); });
    v1::AcquireTicketsRequest acquire;
    *acquire.mutable_identity() = identity;
    acquire.set_sequence(1);
    acquire.set_max_members(2 * kGroupSize);
    acquire.mutable_holds()->set_lineage(lineage);
    acquire.mutable_holds()->set_version(1);
    frontend->AcquireTickets(
        acquire, [this](absl::StatusOr<v1::AcquireTicketsResponse> response) { tickets = response.value(); });
  }

  FakeClock clock;
  Quarantine quarantine{RealFileSystem(), "", 0};
  std::unique_ptr<QueueCore> core;
  QueueCore* raw = nullptr;
  std::unique_ptr<QueueFrontend> frontend;
  v1::WorkerIdentity identity;
  v1::AcquireTicketsResponse tickets;
};

void RunPushes(absl::string_view input) {
  SmallQueue queue;
  std::unique_ptr<QueueFrontend::PushSession> session = queue.frontend->NewPushSession();
  FuzzPieces pieces(input);
  absl::string_view piece;
  bool is_over = false;
  while (!is_over && pieces.Next(&piece)) {
    v1::PushRequest request;
    if (!request.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) continue;
    // Identities are random numbers to a fuzzer: an unset one stands for the worker's.
    if (!request.has_identity()) *request.mutable_identity() = queue.identity;
    session->Handle(&request, [&](const v1::PushResponse&, const absl::Status& status) { is_over = !status.ok(); });
    MustHold(queue.raw->CheckInvariants());
  }
}

std::vector<std::string> PushSeeds() {
  SmallQueue queue;
  std::vector<std::string> messages;
  uint64_t sequence = 0;
  for (const v1::Ticket& ticket : queue.tickets.tickets()) {
    v1::PushRequest whole;
    for (uint32_t member : ticket.members()) {
      const std::string payload = FakeTrajectory(ticket, member).SerializeAsString();
      uint64_t offset = 0;
      ++sequence;
      do {
        v1::PushChunk* chunk = whole.add_chunks();
        chunk->set_sequence(sequence);
        CutChunk(payload, sequence % 2 == 0 ? 40 : 1024, &offset, chunk);
      } while (offset < payload.size());
    }
    messages.push_back(whole.SerializeAsString());
  }
  v1::PushRequest failed;
  v1::Trajectory failure;
  *failure.mutable_key() = FakeTrajectory(queue.tickets.tickets(0), 0).key();
  failure.set_outcome(v1::FAILED);
  failure.mutable_failure()->set_fault(v1::Failure::ENVIRONMENT);
  failure.mutable_failure()->set_code("step_timeout");
  const std::string payload = failure.SerializeAsString();
  uint64_t offset = 0;
  failed.add_chunks()->set_sequence(1);
  CutChunk(payload, 1024, &offset, failed.mutable_chunks(0));
  return {FuzzPieces::Join(messages), FuzzPieces::Join({messages[0]}),
          FuzzPieces::Join({failed.SerializeAsString(), messages[0]})};
}

// ---- a batch, as the trainer reads it -------------------------------------------------------------------------------

void RunLease(absl::string_view input) {
  LeaseJoiner joiner(/*max_trajectory_bytes=*/1 << 16, /*max_chunk_bytes=*/1 << 12);
  FuzzPieces pieces(input);
  absl::string_view piece;
  while (pieces.Next(&piece)) {
    v1::LeaseBatchResponse response;
    if (!response.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) return;
    if (!joiner.Add(&response).ok()) return;
  }
  static_cast<void>(joiner.Finish());
}

std::vector<std::string> LeaseSeeds() {
  LeaseResult lease;
  for (uint64_t ticket = 1; ticket <= 2; ++ticket) {
    LeasedGroup group;
    group.ticket = ticket;
    group.issue = 1;
    group.zero_advantage = ticket == 2;
    for (uint32_t member = 0; member < 2; ++member) {
      const auto payload =
          std::make_shared<const std::string>(FakeTrajectory(ticket, 1, member, {}).SerializeAsString());
      group.members.push_back(std::make_shared<PayloadInMemory>(payload));
    }
    lease.groups.push_back(std::move(group));
  }
  std::vector<std::string> seeds;
  for (uint64_t chunk : {40, 1000}) {
    LeaseCutter cutter(lease, chunk);
    std::vector<std::string> messages;
    for (PayloadMessage message; cutter.Next(&message).value(); message.Clear()) messages.push_back(message.ToString());
    seeds.push_back(FuzzPieces::Join(messages));
  }
  return seeds;
}

// ---- a ledger out of a checkpoint, records out of the store
// -------------------------------------------------------------

// First byte: the step that is restored. The rest gets the digest that it needs to be looked at.
void RunLedger(absl::string_view input) {
  if (input.empty()) return;
  const uint64_t step = static_cast<uint8_t>(input[0]);
  input.remove_prefix(1);
  std::unique_ptr<QueueCore> core = QueueCore::Create(CoreOptions(), std::make_unique<MemoryStore>()).value();
  v1::WeightsVersion committed;
  core->AllocateLineage(&committed);
  const uint64_t lineage = core->AllocateLineage(&committed);
  const std::string snapshot = Digest128(input.data(), input.size()) + std::string(input);
  if (core->Restore(lineage, step, snapshot, MonotonicTime()).ok()) MustHold(core->CheckInvariants());
}

std::vector<std::string> LedgerSeeds() {
  SmallQueue queue;
  const std::string first = queue.raw->Snapshot(1).value();
  return {std::string(1, '\0') + first.substr(32)};
}

// Keys and values, in turn.
void RunRecords(absl::string_view input) {
  FakeQueueStore written;
  std::vector<StoreRecord> records;
  FuzzPieces pieces(input);
  absl::string_view key, value;
  while (pieces.Next(&key) && pieces.Next(&value)) records.push_back({std::string(key), std::string(value)});
  written.Write(std::move(records));
  written.MakeAllDurable();
  const auto core = QueueCore::Create(CoreOptions(), written.Crash(), MonotonicTime());
  if (core.ok()) MustHold((*core)->CheckInvariants());
}

std::vector<std::string> RecordSeeds() {
  auto store = std::make_unique<FakeQueueStore>();
  FakeQueueStore* const raw = store.get();
  raw->MakeDurableAtOnce(true);
  std::unique_ptr<QueueCore> core = QueueCore::Create(CoreOptions(), std::move(store)).value();
  FakeClock clock;
  Quarantine quarantine{RealFileSystem(), "", 0};
  QueueFrontend frontend({}, std::move(core), &quarantine, RealFileSystem(), &clock, [] {});
  v1::RegisterRequest request;
  request.set_name("rollout-0");
  frontend.Register(request, [](absl::StatusOr<v1::RegisterResponse>) {});
  frontend.AllocateLineage({}, [](absl::StatusOr<v1::AllocateLineageResponse>) {});
  v1::RestoreRequest restore;
  restore.set_lineage(1);
  frontend.Restore(restore, [](absl::StatusOr<v1::RestoreResponse>) {});
  v1::CommitRequest commit;
  commit.set_lineage(1);
  commit.set_version(1);
  commit.set_initial(true);
  frontend.Commit(commit, [](absl::StatusOr<v1::CommitResponse>) {});
  std::vector<std::string> pieces;
  MustHold(raw->Recover([&](absl::string_view key, absl::string_view value) {
    pieces.emplace_back(key);
    pieces.emplace_back(value);
    return absl::OkStatus();
  }));
  frontend.Shutdown();
  return {FuzzPieces::Join(pieces)};
}

}  // namespace

std::vector<FuzzTarget> QueueFuzzTargets() {
  return {{"trajectory", RunTrajectory, TrajectorySeeds},
          {"pushes", RunPushes, PushSeeds},
          {"lease", RunLease, LeaseSeeds},
          {"ledger_snapshot", RunLedger, LedgerSeeds},
          {"queue_records", RunRecords, RecordSeeds}};
}

}  // namespace leeway
