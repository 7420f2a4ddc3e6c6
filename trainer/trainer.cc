#include "trainer/trainer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/cpu_time.h"
#include "base/failpoint.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "collective/in_process/in_process_group.h"
#include "trainer/checkpoint/checkpoint_keeper.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/learner.h"
#include "trainer/learner_ranks.h"
#include "trainer/publication.h"
#include "trainer/queue_patience.h"
#include "trainer/records/metrics_line.h"
#include "trainer/records/run_records.h"
#include "trainer/records/step_meter.h"
#include "trainer/records/trajectory_records.h"
#include "trainer/start/initial_weights.h"
#include "trainer/start/warm_start.h"

namespace leeway {
namespace {

// Between two looks at the queue while the last evaluations are on their way.
constexpr absl::Duration kEvaluationPoll = absl::Milliseconds(50);

}  // namespace

class Trainer::Impl {
 public:
  Impl(TrainerOptions options, const TrainerEnvironment& environment, Trainer* owner)
      : options_(std::move(options)),
        environment_(environment),
        owner_(owner),
        started_at_(environment.clock->Now()),
        layout_(ParameterLayout(options_.model)),
        store_(environment.files, JoinPath(options_.run_directory, "checkpoints"), layout_, options_.checkpoints_kept),
        records_(options_, environment.files, environment.clock, environment.tokenizer),
        patience_(options_.queue_patience, &owner->stop_requested_, environment.states, environment.clock),
        publication_(options_, layout_, environment.queue, environment.publisher, &patience_),
        meter_(options_.name, environment.states),
        last_commit_at_(started_at_) {}

  absl::Status Run();

 private:
  absl::Status RunSteps();

  // What became of asking for a batch.
  enum class LeaseOutcome { kBatch, kStop };

  // Makes the learners of all ranks.
  absl::Status Gather();
  absl::Status Start();
  absl::Status StartFrom(const Checkpoint& checkpoint);
  absl::Status StartFresh();
  absl::StatusOr<WarmStartResult> WarmStart(std::vector<float>* parameters);
  absl::Status AddInitialLine();

  absl::Status Step(uint64_t step);
  absl::StatusOr<LeaseOutcome> Lease(uint64_t step, LeasedBatch* leased);
  absl::Status CheckLease(uint64_t step, const LeasedBatch& leased) const;
  absl::Status Refuse(uint64_t step, const std::vector<RefusedGroup>& refused, int64_t* refused_in_step);
  // Lease and train until a batch was trained; kStop when the run has to end instead.
  absl::StatusOr<LeaseOutcome> TrainBatchOf(uint64_t step, LeasedBatch* leased, StepReport* report);
  absl::Status Record(uint64_t step, const LeasedBatch& leased, const StepReport& report, const PublishFacts& publish);

  // Of the moment: the end of the last finished step.
  absl::StatusOr<Checkpoint> MakeCheckpoint();
  absl::Status Finish();

  // Asks until there is an answer: for what the run can not do without.
  absl::StatusOr<v1::StatusResponse> QueueStatus();
  StepFacts Facts(uint64_t step, const PublishFacts& publish);
  void LookAtQueue(StepFacts* facts);
  void ShowGauges(const StepFacts& facts);
  bool IsEvaluated(uint64_t version) const;
  double WallSeconds() const {
    return wall_seconds_before_ + absl::ToDoubleSeconds(environment_.clock->Now() - started_at_);
  }
  v1::WeightsVersion Version(uint64_t version) const;
  bool stop_requested() const { return owner_->stop_requested_.load(); }
  void SetFinished(uint64_t step) {
    finished_step_ = step;
    owner_->finished_step_.store(static_cast<int64_t>(step));
  }

  const TrainerOptions options_;
  const TrainerEnvironment environment_;
  Trainer* const owner_;
  const MonotonicTime started_at_;

  const std::vector<ParameterInfo> layout_;
  // Of a trainer that is alone.
  std::unique_ptr<Communicator> alone_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<LearnerLeader> leader_;
  CheckpointStore store_;
  std::unique_ptr<CheckpointKeeper> checkpoints_;
  const CheckpointKeeper::Make make_checkpoint_ = [this] { return MakeCheckpoint(); };
  RunRecords records_;
  QueuePatience patience_;
  Publication publication_;
  StepMeter meter_;

  uint64_t lineage_ = 0;
  uint64_t finished_step_ = 0;
  // Part of the checkpoint: see struct Checkpoint.
  TicketRanges consumed_;
  uint64_t skipped_steps_ = 0;
  double wall_seconds_before_ = 0;
  uint64_t refused_groups_ = 0;
  bool has_checkpoint_ = false;
  std::string ledger_to_restore_;
  std::vector<HeldLine> held_to_restore_;

  // As the queue's last answer says: trained groups leave it little room.
  bool queue_wants_checkpoint_ = false;
  bool is_draining_ = false;
  double train_seconds_ = 0;
  double peak_flops_ = 0;
  MonotonicTime last_commit_at_;
};

absl::Status Trainer::Impl::Run() {
  LEEWAY_RETURN_IF_ERROR(Gather());
  const absl::Status ended = RunSteps();
  // Whatever ended the run, the others need not find out by waiting.
  const absl::Status stopped = leader_->Stop(ended);
  return ended.ok() ? stopped : ended;
}

absl::Status Trainer::Impl::Gather() {
  Communicator* world = environment_.world;
  if (world == nullptr) {
    alone_ = InProcessGroup(1, "trainer", absl::InfiniteDuration()).Take(0);
    world = alone_.get();
  }
  LEEWAY_ASSIGN_OR_RETURN(mesh_, Mesh::Create(options_.mesh, world));
  LEEWAY_ASSIGN_OR_RETURN(learner_, Learner::Create(options_, mesh_.get(), environment_.parallel));
  LEEWAY_ASSIGN_OR_RETURN(peak_flops_, learner_->MeasurePeak());
  leader_ = std::make_unique<LearnerLeader>(learner_.get(), environment_.commands, environment_.files);
  checkpoints_ = std::make_unique<CheckpointKeeper>(
      options_.run_directory, leader_.get(), &store_,
      [this](uint64_t step) {
        return patience_("Settle",
                         [&] { return environment_.queue->Settle(lineage_, step, options_.queue_timeout).status(); });
      },
      environment_.states, environment_.clock);
  return absl::OkStatus();
}

absl::Status Trainer::Impl::RunSteps() {
  LEEWAY_RETURN_IF_ERROR(Start());
  const uint64_t steps = static_cast<uint64_t>(options_.steps);
  while (finished_step_ < steps && !stop_requested() && !is_draining_) {
    LEEWAY_RETURN_IF_ERROR(Step(finished_step_ + 1));
  }
  return Finish();
}

v1::WeightsVersion Trainer::Impl::Version(uint64_t version) const {
  v1::WeightsVersion weights;
  weights.set_lineage(lineage_);
  weights.set_version(version);
  return weights;
}

bool Trainer::Impl::IsEvaluated(uint64_t version) const {
  if (options_.eval_every == 0) return false;
  return (version - 1) % static_cast<uint64_t>(options_.eval_every) == 0 ||
         version == static_cast<uint64_t>(options_.steps) + 1;
}

absl::Status Trainer::Impl::Start() {
  // Durable on the queue's side before anything is done in its name.
  LEEWAY_ASSIGN_OR_RETURN(const v1::AllocateLineageResponse allocated, patience_("AllocateLineage", [&] {
                            return environment_.queue->AllocateLineage(options_.queue_timeout);
                          }));
  lineage_ = allocated.lineage();
  LEEWAY_ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint, store_.LoadNewest());
  if (checkpoint.has_value()) {
    LEEWAY_RETURN_IF_ERROR(StartFrom(*checkpoint));
  } else {
    LEEWAY_RETURN_IF_ERROR(StartFresh());
    if (stop_requested()) return absl::OkStatus();
  }
  const uint64_t step = finished_step_;
  LEEWAY_LOG_INFO("lineage {} starts from the end of step {}; the queue's newest commit is version {}", lineage_, step,
                  allocated.committed().version());
  LEEWAY_RETURN_IF_ERROR(records_.Open(step, held_to_restore_, has_checkpoint_));
  LEEWAY_RETURN_IF_ERROR(patience_("Restore", [&] {
    return environment_.queue->Restore(lineage_, step, ledger_to_restore_, options_.queue_timeout).status();
  }));
  if (records_.metrics().Contains(step)) {
    // The lines up to here have counted what the processes did before.
    LEEWAY_ASSIGN_OR_RETURN(const v1::StatusResponse status, QueueStatus());
    meter_.Skip(status);
  }
  return AddInitialLine();
}

absl::Status Trainer::Impl::StartFrom(const Checkpoint& checkpoint) {
  if (checkpoint.seed != options_.seed) {
    return absl::InvalidArgumentError(absl::StrCat("seed = ", options_.seed, ", but the checkpoint of step ",
                                                   checkpoint.step, " was made with seed ", checkpoint.seed,
                                                   "; use that seed, or another run.name"));
  }
  LEEWAY_RETURN_IF_ERROR(leader_->Restore(store_.PathOf(checkpoint.step), checkpoint.optimizer_updates));
  SetFinished(checkpoint.step);
  consumed_ = checkpoint.consumed;
  skipped_steps_ = checkpoint.skipped_steps;
  refused_groups_ = checkpoint.refused_groups;
  wall_seconds_before_ = checkpoint.wall_seconds;
  ledger_to_restore_ = checkpoint.ledger;
  held_to_restore_ = checkpoint.held_lines;
  has_checkpoint_ = true;
  checkpoints_->StartFrom(checkpoint.step);
  return absl::OkStatus();
}

absl::Status Trainer::Impl::StartFresh() {
  LEEWAY_ASSIGN_OR_RETURN(std::vector<float> parameters, InitialWeights(options_));
  if (options_.warm_start.steps == 0) return leader_->Reset(std::move(parameters));
  LEEWAY_ASSIGN_OR_RETURN(const WarmStartResult result, WarmStart(&parameters));
  // The next start begins it again.
  if (result.was_stopped) return absl::OkStatus();
  LEEWAY_LOG_INFO("warm start: loss {:.4f} -> {:.4f}", result.first_loss, result.last_loss);
  LEEWAY_RETURN_IF_ERROR(leader_->Reset(std::move(parameters)));
  // The warm start's own checkpoint: the end of "step 0", with a fresh optimizer and an empty ledger.
  return checkpoints_->Need(0, "without it a restart would repeat the warm start", make_checkpoint_);
}

absl::StatusOr<WarmStartResult> Trainer::Impl::WarmStart(std::vector<float>* parameters) {
  ScopedState busy(environment_.states, "busy:warm_start");
  return RunWarmStart(options_, *environment_.task, *environment_.tokenizer, owner_->stop_requested_,
                      environment_.parallel, parameters);
}

absl::Status Trainer::Impl::AddInitialLine() {
  environment_.states->Enter("busy:publish");
  LEEWAY_ASSIGN_OR_RETURN(
      const PublishFacts publish,
      publication_.Publish(Version(finished_step_ + 1), learner_->parameters(), {}, /*initial=*/true));
  const bool wants_line = finished_step_ == 0 && options_.eval_every > 0 && !records_.metrics().Contains(0);
  if (wants_line) {
    const StepFacts facts = Facts(0, publish);
    records_.metrics().Add(0, 1, FormatMetricsLine(facts), /*awaits_evaluation=*/true);
  } else if (records_.metrics().is_waiting()) {
    LEEWAY_ASSIGN_OR_RETURN(const v1::StatusResponse status, QueueStatus());
    records_.metrics().OnEvaluations(status);
  }
  last_commit_at_ = environment_.clock->Now();
  return records_.metrics().Flush();
}

absl::Status Trainer::Impl::Step(uint64_t step) {
  LeasedBatch leased;
  StepReport report;
  LEEWAY_ASSIGN_OR_RETURN(const LeaseOutcome outcome, TrainBatchOf(step, &leased, &report));
  if (outcome == LeaseOutcome::kStop) return absl::OkStatus();
  if (!report.is_finite) {
    ++skipped_steps_;
    LEEWAY_LOG_ERROR("step {}: loss {} or gradient norm {} is not finite; no weight was changed, the batch is in {}",
                     step, report.sums.loss, report.grad_norm, "failed_steps/");
    LEEWAY_RETURN_IF_ERROR(records_.AddFailedStep(
        step, FormatFailedStep(step, leased, learner_->batch(), learner_->recomputed(), *environment_.tokenizer)));
  }
  std::vector<uint64_t> tickets;
  for (const BatchGroup& group : leased.groups) {
    tickets.push_back(group.ticket);
    if (!consumed_.Add(group.ticket)) {
      return absl::InternalError(absl::StrCat("step ", step, ": ticket ", group.ticket, " was trained before"));
    }
  }
  // What was written meanwhile counts from now on.
  LEEWAY_RETURN_IF_ERROR(checkpoints_->Look());
  environment_.states->Enter("busy:publish");
  LEEWAY_ASSIGN_OR_RETURN(const PublishFacts publish,
                          publication_.Publish(Version(step + 1), learner_->parameters(), tickets, /*initial=*/false));
  SetFinished(step);
  environment_.states->Enter("busy:record");
  LEEWAY_RETURN_IF_ERROR(Record(step, leased, report, publish));
  const bool is_due = options_.checkpoint_every > 0 && step % static_cast<uint64_t>(options_.checkpoint_every) == 0;
  if (is_due || queue_wants_checkpoint_) LEEWAY_RETURN_IF_ERROR(checkpoints_->Save(step, make_checkpoint_));
  // What the queue has no room for, it is to forget soon.
  return queue_wants_checkpoint_ ? checkpoints_->Wait() : absl::OkStatus();
}

absl::StatusOr<Trainer::Impl::LeaseOutcome> Trainer::Impl::TrainBatchOf(uint64_t step, LeasedBatch* leased,
                                                                        StepReport* report) {
  int64_t refused_in_step = 0;
  train_seconds_ = 0;
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const LeaseOutcome outcome, Lease(step, leased));
    if (outcome == LeaseOutcome::kStop) return outcome;
    LEEWAY_RETURN_IF_ERROR(CheckLease(step, *leased));
    environment_.states->Enter("busy:train");
    const MonotonicTime begin = environment_.clock->Now();
    LEEWAY_RETURN_IF_ERROR(leader_->Train(step, *leased, report));
    train_seconds_ += absl::ToDoubleSeconds(environment_.clock->Now() - begin);
    if (report->refused.empty()) return outcome;
    LEEWAY_RETURN_IF_ERROR(Refuse(step, report->refused, &refused_in_step));
  }
}

absl::StatusOr<Trainer::Impl::LeaseOutcome> Trainer::Impl::Lease(uint64_t step, LeasedBatch* leased) {
  environment_.states->Enter("wait:waiting_for_groups");
  while (!stop_requested()) {
    LEEWAY_RETURN_IF_ERROR(leader_->Idle());
    LEEWAY_RETURN_IF_ERROR(checkpoints_->Look());
    LEEWAY_ASSIGN_OR_RETURN(*leased, patience_("LeaseBatch", [&] {
      return environment_.queue->LeaseBatch(lineage_, step, options_.lease_wait);
    }));
    if (!leased->groups.empty()) return LeaseOutcome::kBatch;
    if (leased->cause == "draining" || leased->cause == "run_complete") {
      LEEWAY_LOG_INFO("step {}: no batch, the queue is {}", step, leased->cause);
      is_draining_ = true;
      return LeaseOutcome::kStop;
    }
    // Payloads of trained groups fill the queue until a checkpoint covers them.
    if (leased->cause == "queue_needs_checkpoint") {
      LEEWAY_RETURN_IF_ERROR(checkpoints_->MakeRoom(finished_step_, make_checkpoint_));
    }
    environment_.states->Enter(absl::StrCat("wait:", leased->cause.empty() ? "waiting_for_groups" : leased->cause));
  }
  return LeaseOutcome::kStop;
}

absl::Status Trainer::Impl::CheckLease(uint64_t step, const LeasedBatch& leased) const {
  if (static_cast<int64_t>(leased.groups.size()) != options_.groups_per_step) {
    return absl::InternalError(absl::StrCat("step ", step, ": the queue leased ", leased.groups.size(),
                                            " groups, trainer.groups_per_step is ", options_.groups_per_step));
  }
  for (const BatchGroup& group : leased.groups) {
    if (static_cast<int64_t>(group.members.size()) <= options_.group_size) continue;
    return absl::InternalError(absl::StrCat("step ", step, ": ticket ", group.ticket, " has ", group.members.size(),
                                            " members, trainer.group_size is ", options_.group_size));
  }
  if (leased.lag_limit > options_.staleness_budget) {
    return absl::InternalError(absl::StrCat("step ", step, ": the queue allows a lag of ", leased.lag_limit,
                                            ", staleness.budget is ", options_.staleness_budget));
  }
  return absl::OkStatus();
}

absl::Status Trainer::Impl::Refuse(uint64_t step, const std::vector<RefusedGroup>& refused, int64_t* refused_in_step) {
  for (const RefusedGroup& group : refused) {
    LEEWAY_LOG_ERROR("step {}: ticket {} is refused ({}): {}", step, group.ticket, group.reason, group.detail);
    LEEWAY_RETURN_IF_ERROR(patience_("RetireGroup", [&] {
      return environment_.queue->RetireGroup(lineage_, step, group.ticket, group.reason, options_.queue_timeout);
    }));
    ++refused_groups_;
    ++*refused_in_step;
  }
  const int64_t limit = options_.max_refused_groups > 0 ? options_.max_refused_groups : 4 * options_.groups_per_step;
  if (*refused_in_step <= limit) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("step ", step, ": ", *refused_in_step,
                                          " groups had to be refused, the last (", refused.back().reason, ") because ",
                                          refused.back().detail, "; the retired groups are in the queue's quarantine"));
}

absl::StatusOr<v1::StatusResponse> Trainer::Impl::QueueStatus() {
  return patience_("GetStatus", [&] { return environment_.queue->GetStatus(options_.queue_timeout); });
}

StepFacts Trainer::Impl::Facts(uint64_t step, const PublishFacts& publish) {
  StepFacts facts;
  facts.step = step;
  facts.version = step + 1;
  facts.lineage = lineage_;
  facts.wall_seconds = WallSeconds();
  facts.step_seconds = absl::ToDoubleSeconds(environment_.clock->Now() - last_commit_at_);
  facts.train_seconds = train_seconds_;
  facts.model = options_.model;
  facts.recompute = options_.recompute;
  facts.peak_flops = peak_flops_;
  facts.skipped_steps = skipped_steps_;
  facts.refused_groups = refused_groups_;
  facts.counts = publish.counts;
  facts.publish_seconds = publish.seconds;
  facts.publish_bytes = publish.bytes;
  facts.publish_members = publish.members;
  facts.publish_fenced = publish.fenced;
  const CheckpointTimes checkpoints = checkpoints_->TakeTimes();
  facts.checkpoint_wait_seconds = checkpoints.wait;
  facts.checkpoint_write_seconds = checkpoints.write;
  LookAtQueue(&facts);
  meter_.AddTimes(&facts);
  return facts;
}

void Trainer::Impl::LookAtQueue(StepFacts* facts) {
  const absl::StatusOr<v1::StatusResponse> status = environment_.queue->GetStatus(options_.queue_timeout);
  if (!status.ok()) {
    // The lease that follows has the patience; a line without these numbers is not worth a run.
    LEEWAY_LOG_WARNING("no status of the queue: {}", status.status().ToString());
    return;
  }
  records_.metrics().OnEvaluations(*status);
  meter_.AddQueue(*status, facts);
  queue_wants_checkpoint_ = status->checkpoint_wanted();
}

void Trainer::Impl::ShowGauges(const StepFacts& facts) {
  if (environment_.metrics == nullptr) return;
  for (const auto& [name, value] : MetricValues(facts)) environment_.metrics->SetGauge(name, value);
}

absl::Status Trainer::Impl::Record(uint64_t step, const LeasedBatch& leased, const StepReport& report,
                                   const PublishFacts& publish) {
  StepFacts facts = Facts(step, publish);
  facts.batch = &learner_->batch();
  facts.report = &report;
  last_commit_at_ = environment_.clock->Now();
  LEEWAY_RETURN_IF_ERROR(records_.AddBatch(step, leased));
  records_.metrics().Add(step, step + 1, FormatMetricsLine(facts), IsEvaluated(step + 1));
  ShowGauges(facts);
  return records_.metrics().Flush();
}

absl::StatusOr<Checkpoint> Trainer::Impl::MakeCheckpoint() {
  Checkpoint checkpoint;
  checkpoint.step = finished_step_;
  checkpoint.seed = options_.seed;
  checkpoint.optimizer_updates = learner_->updates();
  checkpoint.consumed = consumed_;
  checkpoint.skipped_steps = skipped_steps_;
  if (finished_step_ > 0) {
    LEEWAY_ASSIGN_OR_RETURN(checkpoint.ledger, patience_("LedgerSnapshot", [&] {
                              return environment_.queue->LedgerSnapshot(lineage_, options_.queue_timeout);
                            }));
  }
  checkpoint.lineage = lineage_;
  checkpoint.wall_seconds = WallSeconds();
  checkpoint.refused_groups = refused_groups_;
  checkpoint.resolved_config = options_.resolved_config;
  checkpoint.held_lines = records_.metrics().held();
  return checkpoint;
}

absl::Status Trainer::Impl::Finish() {
  const bool is_complete = finished_step_ == static_cast<uint64_t>(options_.steps);
  if (lineage_ == 0 || (finished_step_ == 0 && !checkpoints_->saved_step().has_value())) return absl::OkStatus();
  LEEWAY_RETURN_IF_ERROR(checkpoints_->Need(finished_step_, "it is the last one", make_checkpoint_));
  if (is_complete) LEEWAY_RETURN_IF_ERROR(checkpoints_->SettleStep(finished_step_));
  environment_.states->Enter("wait:waiting_for_evaluation");
  while (is_complete && records_.metrics().is_waiting() && !stop_requested()) {
    LEEWAY_ASSIGN_OR_RETURN(const v1::StatusResponse status, QueueStatus());
    records_.metrics().OnEvaluations(status);
    LEEWAY_RETURN_IF_ERROR(records_.metrics().Flush());
    LEEWAY_RETURN_IF_ERROR(leader_->Idle());
    if (records_.metrics().is_waiting()) absl::SleepFor(kEvaluationPoll);
  }
  environment_.states->Enter("busy:end");
  LEEWAY_LOG_INFO("ended after step {} of {}", finished_step_, options_.steps);
  return absl::OkStatus();
}

Trainer::Trainer(TrainerOptions options, const TrainerEnvironment& environment)
    : options_(std::move(options)), environment_(environment) {}

Trainer::~Trainer() = default;

absl::Status Trainer::Run() {
  SetThreadClass("compute");
  const std::vector<ConfigProblem> problems = TrainerProblems(options_);
  if (!problems.empty()) {
    std::string text = "the trainer's options are unusable:";
    for (const ConfigProblem& problem : problems) absl::StrAppend(&text, "\n  ", problem.key, ": ", problem.message);
    return absl::InvalidArgumentError(text);
  }
  if (options_.warm_start.steps > 0 && environment_.task == nullptr) {
    return absl::InvalidArgumentError("trainer.warm_start.steps: a warm start needs a task");
  }
  impl_ = std::make_unique<Impl>(options_, environment_, this);
  const absl::Status ended = impl_->Run();
  // A file of the run that met a full disk, unless what to do is said already.
  constexpr char kRemedy[] = "start the run again";
  if (!absl::IsResourceExhausted(ended) || !absl::StrContains(ended.message(), options_.run_directory) ||
      absl::StrContains(ended.message(), kRemedy)) {
    return ended;
  }
  return absl::ResourceExhaustedError(absl::StrCat(ended.message(), "; make room on the disk of ",
                                                   options_.run_directory, " and ", kRemedy,
                                                   ": it goes on from its newest checkpoint"));
}

}  // namespace leeway
