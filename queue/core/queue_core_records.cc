// QueueCore and its durable store: what changed becomes records, and records become a queue again.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "queue/core/queue_core.h"
#include "queue/store/record_keys.h"

namespace leeway {
namespace {

constexpr uint32_t kRecordFormat = 2;

// Equal messages give equal bytes, whatever order their maps have in memory.
std::string Serialized(const v1::HeadRecord& head) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  LEEWAY_CHECK(head.SerializeToCodedStream(&coded));
  coded.Trim();
  return bytes;
}

template <typename Message>
absl::StatusOr<Message> Parse(absl::string_view key, absl::string_view value) {
  Message message;
  if (!message.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
    return absl::DataLossError(absl::StrCat("a record of kind '", key.substr(0, 1), "' can not be read"));
  }
  return message;
}

}  // namespace

// ---- into the store -------------------------------------------------------------------------------------------------

v1::HeadRecord QueueCore::MakeHead() const {
  v1::HeadRecord head;
  head.set_format(kRecordFormat);
  head.set_task(options_.task);
  head.set_group_size(options_.group_size);
  head.set_groups_per_step(options_.staleness.groups_per_step);
  head.set_order(OrderName(options_.staleness.order));
  head.set_budget(options_.staleness.budget);
  head.set_seed_of_first_ticket(options_.train_seed(0));
  head.set_lives(lives_);
  head.set_phase(static_cast<uint32_t>(phase_));
  head.set_lineage(lineage_);
  head.set_step(step_);
  head.set_requested_step(requested_step_);
  *head.mutable_committed() = committed_;
  head.set_committed_digest(committed_digest_);
  ledger_.SaveCounters(&head);
  head.set_groups_finished(groups_finished_);
  head.set_last_completion(last_completion_);
  head.set_judged_through(judged_through_);
  head.set_judged_kept(judged_kept_);
  for (const auto& [step, count] : filtered_in_step_) (*head.mutable_filtered_in_step())[step] = count;
  for (const auto& [name, count] : answers_) (*head.mutable_answers())[name] = count;
  for (const auto& [code, count] : episode_failures_) (*head.mutable_episode_failures())[code] = count;
  head.set_zero_advantage_groups(zero_advantage_groups_);
  head.set_generated_tokens(generated_tokens_);
  head.set_completed_trajectories(completed_trajectories_);
  evaluation_.SaveCounters(&head);
  head.set_evaluation_episodes(options_.evaluation.episodes);
  return head;
}

std::string QueueCore::MakeRow(const TicketRow& row) const {
  v1::RowRecord record;
  Ledger::SaveRow(row, &record);
  if (const auto run = running_.find(row.ticket); run != running_.end()) record.set_producer(run->second.producer);
  if (const auto suspicion = suspicions_.find(row.ticket); suspicion != suspicions_.end()) {
    record.set_losses(suspicion->second.losses);
    record.set_finished_before(suspicion->second.finished_before);
  }
  return record.SerializeAsString();
}

v1::WorkerRecord QueueCore::MakeWorker(const Worker& worker) const {
  v1::WorkerRecord record;
  record.set_name(worker.name);
  *record.mutable_identity() = worker.identity;
  record.set_alive(worker.alive);
  record.set_lost_because(worker.lost_because);
  *record.mutable_holds() = worker.holds;
  record.set_acquire_sequence(worker.acquire_sequence);
  record.set_free_slots(worker.free_slots);
  record.mutable_acquired()->Assign(worker.acquired.begin(), worker.acquired.end());
  record.set_slots(worker.slots);
  record.set_next_sequence(worker.next_sequence);
  record.set_trajectories(worker.trajectories);
  record.set_failures(worker.failures);
  return record;
}

void QueueCore::WriteAnswers(Worker* worker, std::vector<StoreRecord>* records) {
  const auto key = [&](uint64_t epoch, uint64_t first) {
    return RecordKey(RecordKind::kAnswers, {worker->identity.producer_id(), epoch, first});
  };
  const size_t unwritten = std::min(std::exchange(worker->unwritten_answers, 0), worker->answers.size());
  if (unwritten > 0) {
    v1::PushResponse response;
    for (auto answer = worker->answers.end() - static_cast<int64_t>(unwritten); answer != worker->answers.end();
         ++answer) {
      *response.add_answers() = *answer;
    }
    const uint64_t first = worker->next_sequence - unwritten;
    records->push_back({key(worker->identity.epoch(), first), response.SerializeAsString()});
    worker->answer_records.push_back({worker->identity.epoch(), first});
  }
  // A record may go when the one after it begins where memory does, or before.
  const uint64_t oldest = worker->next_sequence - worker->answers.size();
  while (worker->answer_records.size() > 1 && worker->answer_records[1].second <= oldest) {
    const auto [epoch, first] = worker->answer_records.front();
    records->push_back({key(epoch, first), std::nullopt});
    worker->answer_records.pop_front();
  }
}

void QueueCore::MarkAllChanged() {
  ledger_.MarkAllChanged();
  evaluation_.MarkAllChanged();
  for (const Worker& worker : workers_) MarkChanged(worker);
  written_lives_.clear();
  written_head_.clear();
}

uint64_t QueueCore::WriteChanges() {
  if (!store_->is_durable()) return 0;
  std::vector<StoreRecord> records;
  for (std::string& key : forgotten_answers_) records.push_back({std::move(key), std::nullopt});
  forgotten_answers_.clear();
  for (uint64_t producer : changed_workers_) {
    Worker& worker = workers_[producer - 1];
    WriteAnswers(&worker, &records);
    records.push_back({RecordKey(RecordKind::kWorker, {producer}), MakeWorker(worker).SerializeAsString()});
  }
  changed_workers_.clear();
  const Ledger::Changes changes = ledger_.TakeChanges();
  for (uint64_t ticket : changes.rows) {
    StoreRecord& record = records.emplace_back(StoreRecord{RecordKey(RecordKind::kRow, {ticket}), std::nullopt});
    if (const TicketRow* row = ledger_.Find(ticket)) record.value = MakeRow(*row);
  }
  for (uint64_t first : changes.folded) {
    StoreRecord& record = records.emplace_back(StoreRecord{RecordKey(RecordKind::kFolded, {first}), std::nullopt});
    if (const auto range = ledger_.folded().find(first); range != ledger_.folded().end()) {
      record.value = Fixed64(range->second);
    }
  }
  for (uint64_t block : changes.closed_blocks) {
    StoreRecord& record = records.emplace_back(StoreRecord{RecordKey(RecordKind::kClosedBlock, {block}), std::nullopt});
    if (std::string bitmap = ledger_.closed().Block(block); !bitmap.empty()) record.value = std::move(bitmap);
  }
  const std::vector<LineageHistory::Life>& lives = history_.lives();
  for (size_t i = 0; i < lives.size(); ++i) {
    if (i < written_lives_.size() && written_lives_[i] == lives[i]) continue;
    v1::LineageLife life;
    life.set_lineage(lives[i].lineage);
    life.set_restored_step(lives[i].restored_step);
    life.set_last_committed(lives[i].last_committed);
    records.push_back({RecordKey(RecordKind::kLineage, {lives[i].lineage}), life.SerializeAsString()});
  }
  written_lives_ = lives;
  evaluation_.TakeChanges(&records);
  std::string head = Serialized(MakeHead());
  if (head != written_head_) {
    records.push_back({RecordKey(RecordKind::kHead), head});
    written_head_ = std::move(head);
  }
  if (!records.empty()) last_write_ = store_->Write(std::move(records));
  if (std::exchange(has_committed_, false)) commit_write_ = last_write_;
  return last_write_;
}

// ---- and back -------------------------------------------------------------------------------------------------------

absl::Status QueueCore::CheckSameRun(const v1::HeadRecord& head) const {
  std::string errors;
  const auto require = [&](const char* what, auto saved, auto here) {
    if (saved != here) absl::StrAppend(&errors, what, " is ", saved, " in the store and ", here, " here; ");
  };
  require("the records' format", head.format(), kRecordFormat);
  require("task.name", head.task(), options_.task);
  require("trainer.group_size", head.group_size(), options_.group_size);
  require("trainer.groups_per_step", head.groups_per_step(), options_.staleness.groups_per_step);
  require("staleness.order", head.order(), std::string(OrderName(options_.staleness.order)));
  require("the first ticket's seed", head.seed_of_first_ticket(), options_.train_seed(0));
  if (head.budget() > options_.staleness.budget) {
    absl::StrAppend(&errors, "staleness.budget is ", head.budget(), " in the store and may not be lowered to ",
                    options_.staleness.budget, "; ");
  }
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the queue's store belongs to another run: ", errors));
}

absl::Status QueueCore::RecoverHead(const v1::HeadRecord& head) {
  LEEWAY_RETURN_IF_ERROR(CheckSameRun(head));
  if (head.phase() > static_cast<uint32_t>(Phase::kOpen)) return absl::DataLossError("the head is malformed");
  lives_ = head.lives() + 1;
  phase_ = static_cast<Phase>(head.phase());
  lineage_ = std::max(lineage_, head.lineage());
  step_ = head.step();
  requested_step_ = head.requested_step();
  committed_ = head.committed();
  committed_digest_ = head.committed_digest();
  groups_finished_ = head.groups_finished();
  last_completion_ = head.last_completion();
  judged_through_ = head.judged_through();
  judged_kept_ = head.judged_kept();
  filtered_in_step_.insert(head.filtered_in_step().begin(), head.filtered_in_step().end());
  answers_.insert(head.answers().begin(), head.answers().end());
  episode_failures_.insert(head.episode_failures().begin(), head.episode_failures().end());
  zero_advantage_groups_ = head.zero_advantage_groups();
  generated_tokens_ = head.generated_tokens();
  completed_trajectories_ = head.completed_trajectories();
  evaluation_.RecoverCounters(head);
  return ledger_.RecoverCounters(head);
}

absl::Status QueueCore::RecoverRow(uint64_t ticket, const v1::RowRecord& record) {
  LEEWAY_RETURN_IF_ERROR(ledger_.RecoverRow(ticket, record));
  if (record.producer() != 0) recovered_runs_[ticket] = record.producer();
  if (record.losses() > 0) suspicions_[ticket] = {record.losses(), record.finished_before()};
  return absl::OkStatus();
}

absl::Status QueueCore::RecoverWorker(uint64_t producer, const v1::WorkerRecord& record, MonotonicTime now) {
  if (producer != workers_.size() + 1 || record.identity().producer_id() != producer || record.next_sequence() == 0) {
    return absl::DataLossError(absl::StrCat("the record of producer ", producer, " is malformed"));
  }
  Worker& worker = workers_.emplace_back();
  worker.name = record.name();
  worker.identity = record.identity();
  worker.alive = record.alive();
  worker.lost_because = record.lost_because();
  worker.last_seen = now;
  worker.holds = record.holds();
  worker.acquire_sequence = record.acquire_sequence();
  worker.free_slots = record.free_slots();
  worker.acquired.assign(record.acquired().begin(), record.acquired().end());
  worker.slots = record.slots();
  worker.next_sequence = record.next_sequence();
  worker.trajectories = record.trajectories();
  worker.failures = record.failures();
  producer_by_name_[worker.name] = producer;
  return absl::OkStatus();
}

absl::Status QueueCore::RecoverAnswers(absl::string_view key, const v1::PushResponse& answers) {
  const uint64_t producer = KeyNumber(key, 0);
  const uint64_t epoch = KeyNumber(key, 1);
  const uint64_t first = KeyNumber(key, 2);
  // Records come by key: answers before the workers they belong to.
  RecoveredAnswers& recovered = recovered_answers_[producer];
  recovered.records.push_back({epoch, first});
  const uint64_t expected = recovered.next_sequence == 0 ? first : recovered.next_sequence;
  if (first != expected) {
    return absl::DataLossError(
        absl::StrCat("answers of producer ", producer, " from ", expected, " to ", first, " are missing"));
  }
  recovered.next_sequence = first + answers.answers_size();
  for (const v1::PushAnswer& answer : answers.answers()) {
    recovered.answers.push_back(answer);
    if (recovered.answers.size() > kRememberedAnswers) recovered.answers.pop_front();
  }
  return absl::OkStatus();
}

absl::Status QueueCore::RecoverRecord(absl::string_view key, absl::string_view value, MonotonicTime now) {
  if (key.empty()) return absl::DataLossError("a record without a key");
  const uint64_t number = KeyNumber(key, 0);
  switch (static_cast<RecordKind>(key[0])) {
    case RecordKind::kHead:
      return absl::OkStatus();  // taken before
    case RecordKind::kRow: {
      LEEWAY_ASSIGN_OR_RETURN(const auto record, Parse<v1::RowRecord>(key, value));
      return RecoverRow(number, record);
    }
    case RecordKind::kFolded:
      if (value.size() != 8) return absl::DataLossError("a folded range is malformed");
      return ledger_.RecoverFolded(number, ReadFixed64(value));
    case RecordKind::kClosedBlock:
      return ledger_.RecoverClosedBlock(number, value);
    case RecordKind::kLineage: {
      LEEWAY_ASSIGN_OR_RETURN(const auto life, Parse<v1::LineageLife>(key, value));
      LEEWAY_RETURN_IF_ERROR(history_.Restore(life.lineage(), life.restored_step()));
      history_.AdoptCommits(life.last_committed());
      return absl::OkStatus();
    }
    case RecordKind::kWorker: {
      LEEWAY_ASSIGN_OR_RETURN(const auto record, Parse<v1::WorkerRecord>(key, value));
      return RecoverWorker(number, record, now);
    }
    case RecordKind::kAnswers: {
      LEEWAY_ASSIGN_OR_RETURN(const auto answers, Parse<v1::PushResponse>(key, value));
      return RecoverAnswers(key, answers);
    }
    case RecordKind::kEvaluation: {
      LEEWAY_ASSIGN_OR_RETURN(const auto record, Parse<v1::EvaluationRecord>(key, value));
      return evaluation_.RecoverEvaluation(record, now);
    }
  }
  return absl::DataLossError(absl::StrCat("a record of the unknown kind '", key.substr(0, 1), "'"));
}

absl::Status QueueCore::RebuildFromRows(MonotonicTime now) {
  for (const TicketRow* row : ledger_.SortedRows()) {
    reserved_bytes_ += MissingBytes(*row);
    switch (row->state) {
      case RowState::kReady:
        IndexReady(*row);
        break;
      case RowState::kLeased:
        leased_.insert(row->ticket);
        break;
      case RowState::kTrained:
        for (const MemberRecord& member : row->members) trained_bytes_ += member.bytes;
        break;
      case RowState::kRunning: {
        const auto producer = recovered_runs_.find(row->ticket);
        if (producer == recovered_runs_.end() || producer->second > workers_.size()) {
          return absl::DataLossError(absl::StrCat("ticket ", row->ticket, " runs on an unknown worker"));
        }
        Worker& worker = workers_[producer->second - 1];
        Run run;
        run.producer = producer->second;
        run.started = now;
        run.deadline = now + options_.ticket_deadline;
        run.missing = row->CountMembers(MemberRecord::State::kMissing);
        running_[row->ticket] = run;
        ticket_deadlines_.insert({run.deadline.since_origin, row->ticket});
        worker.running.insert(row->ticket);
        worker.busy += run.missing;
        break;
      }
      default:
        break;
    }
  }
  recovered_runs_.clear();
  return absl::OkStatus();
}

absl::Status QueueCore::Recover(MonotonicTime now) {
  ledger_.TrackChanges();
  now_ = now;
  // The head says what the others are measured by, so it goes first.
  std::string head_bytes;
  uint64_t records = 0;
  LEEWAY_RETURN_IF_ERROR(store_->Recover([&](absl::string_view key, absl::string_view value) {
    ++records;
    if (key == RecordKey(RecordKind::kHead)) head_bytes = std::string(value);
    return absl::OkStatus();
  }));
  if (records == 0 && store_->payloads() == 0) return absl::OkStatus();
  if (head_bytes.empty()) return absl::DataLossError("the queue's store has records, but no head");
  LEEWAY_ASSIGN_OR_RETURN(const auto head, Parse<v1::HeadRecord>("h", head_bytes));
  LEEWAY_RETURN_IF_ERROR(RecoverHead(head));
  LEEWAY_RETURN_IF_ERROR(store_->Recover([&](absl::string_view key, absl::string_view value) {
    LEEWAY_FAILPOINT("queue_in_recovery");
    return RecoverRecord(key, value, now);
  }));
  for (auto& [producer, recovered] : recovered_answers_) {
    if (producer == 0 || producer > workers_.size() ||
        recovered.next_sequence != workers_[producer - 1].next_sequence) {
      return absl::DataLossError(absl::StrCat("the answers of producer ", producer, " do not end where it does"));
    }
    workers_[producer - 1].answers = std::move(recovered.answers);
    workers_[producer - 1].answer_records = std::move(recovered.records);
  }
  recovered_answers_.clear();
  LEEWAY_RETURN_IF_ERROR(RebuildFromRows(now));
  ledger_.TakeChanges();  // putting it together changed nothing
  written_lives_ = history_.lives();
  is_reach_changed_ = true;
  if (absl::Status holds = CheckConsistency(); !holds.ok()) {
    return absl::DataLossError(absl::StrCat("the queue's store contradicts itself: ", holds.message()));
  }
  return absl::OkStatus();
}

}  // namespace leeway
