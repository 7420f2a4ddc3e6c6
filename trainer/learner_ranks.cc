#include "trainer/learner_ranks.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/failpoint.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "leeway/v1/trainer.pb.h"
#include "trainer/checkpoint/checkpoint_manifest.h"
#include "trainer/checkpoint/share_outcomes.h"

namespace leeway {
namespace {

constexpr int kLeader = 0;
constexpr int kBeatsInTimeout = 4;

// The same length, then the same bytes, on all ranks.
absl::Status BroadcastText(Communicator* ranks, std::string* text) {
  int64_t size = static_cast<int64_t>(text->size());
  LEEWAY_RETURN_IF_ERROR(ranks->Broadcast(DType::kI64, &size, 1, kLeader));
  text->resize(static_cast<size_t>(size));
  return ranks->Broadcast(DType::kU8, text->data(), size, kLeader);
}

absl::Status BroadcastParameters(Communicator* ranks, std::vector<float>* parameters) {
  return ranks->Broadcast(DType::kF32, parameters->data(), static_cast<int64_t>(parameters->size()), kLeader);
}

absl::Status RestoreFrom(Learner* own, FileSystem* files, const std::string& folder, int64_t updates) {
  LEEWAY_ASSIGN_OR_RETURN(const PieceReader state, OpenCheckpoint(files, folder, own->layout()));
  return own->Restore(state, updates);
}

LeasedBatch BatchOf(v1::LearnerCommand* command) {
  LeasedBatch leased;
  leased.lag_limit = command->lag_limit();
  for (v1::LearnerGroup& group : *command->mutable_groups()) {
    BatchGroup& to = leased.groups.emplace_back();
    to.ticket = group.ticket();
    to.issue = group.issue();
    to.zero_advantage = group.zero_advantage();
    for (v1::Trajectory& member : *group.mutable_members()) to.members.push_back(std::move(member));
  }
  return leased;
}

}  // namespace

LearnerLeader::LearnerLeader(Learner* own, Communicator* commands, FileSystem* files)
    : own_(own),
      commands_(commands),
      files_(files),
      beat_(commands == nullptr ? absl::InfiniteDuration() : commands->timeout() / kBeatsInTimeout),
      next_beat_(Deadline::After(beat_)),
      writer_(files) {
  if (!is_alone()) beats_ = std::thread([this] { BeatLoop(); });
}

LearnerLeader::~LearnerLeader() {
  {
    MutexLock lock(&mutex_);
    is_over_ = true;
    changed_.NotifyAll();
  }
  if (beats_.joinable()) beats_.join();
}

void LearnerLeader::BeatLoop() {
  SetThreadClass("rpc");
  v1::LearnerCommand idle;
  idle.set_kind(v1::LearnerCommand::IDLE);
  MutexLock lock(&mutex_);
  while (!is_over_) {
    if (!next_beat_.HasPassed()) {
      changed_.WaitUntil(&mutex_, next_beat_);
      continue;
    }
    if (const absl::Status status = Command(idle); !status.ok()) {
      // The next call returns it; who waits for something else meanwhile says it here.
      LEEWAY_LOG_ERROR("between two steps: {}", status.ToString());
      return;
    }
  }
}

absl::Status LearnerLeader::Command(const v1::LearnerCommand& command) {
  if (is_alone()) return absl::OkStatus();
  std::string text;
  if (!command.SerializeToString(&text)) {
    return absl::InvalidArgumentError("a step's batch of 2 GiB or more can not be sent to the other ranks");
  }
  LEEWAY_FAILPOINT("trainer_before_command");
  const absl::Status status = BroadcastText(commands_, &text);
  next_beat_ = Deadline::After(beat_);
  LEEWAY_FAILPOINT("trainer_after_command");
  return status;
}

absl::Status LearnerLeader::Restore(const std::string& folder, int64_t updates) {
  v1::LearnerCommand command;
  command.set_kind(v1::LearnerCommand::RESTORE);
  command.set_folder(folder);
  command.set_optimizer_updates(updates);
  MutexLock lock(&mutex_);
  LEEWAY_RETURN_IF_ERROR(Command(command));
  return Remember(RestoreFrom(own_, files_, folder, updates));
}

absl::Status LearnerLeader::Reset(std::vector<float> parameters) {
  MutexLock lock(&mutex_);
  if (!is_alone()) {
    v1::LearnerCommand command;
    command.set_kind(v1::LearnerCommand::RESET);
    command.set_parameter_count(static_cast<int64_t>(parameters.size()));
    LEEWAY_RETURN_IF_ERROR(Command(command));
    LEEWAY_RETURN_IF_ERROR(BroadcastParameters(commands_, &parameters));
  }
  return Remember(own_->Reset(parameters));
}

absl::Status LearnerLeader::Train(uint64_t step, const LeasedBatch& leased, StepReport* report) {
  MutexLock lock(&mutex_);
  if (!is_alone()) {
    v1::LearnerCommand command;
    command.set_kind(v1::LearnerCommand::TRAIN);
    command.set_step(step);
    command.set_lag_limit(leased.lag_limit);
    for (const BatchGroup& group : leased.groups) {
      v1::LearnerGroup* const to = command.add_groups();
      to->set_ticket(group.ticket);
      to->set_issue(group.issue);
      to->set_zero_advantage(group.zero_advantage);
      for (const v1::Trajectory& member : group.members) *to->add_members() = member;
    }
    LEEWAY_RETURN_IF_ERROR(Command(command));
  }
  return Remember(own_->Train(step, leased, report));
}

absl::Status LearnerLeader::BeginSave(const std::string& folder, std::map<std::string, std::string> texts) {
  v1::LearnerCommand command;
  command.set_kind(v1::LearnerCommand::SAVE);
  command.set_folder(folder);
  MutexLock lock(&mutex_);
  LEEWAY_RETURN_IF_ERROR(Command(command));
  LEEWAY_FAILPOINT("trainer_at_save");
  writer_.Begin(folder, {own_->CopyPieces(), std::move(texts)});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ShareOutcome>> LearnerLeader::SaveOutcomes(absl::Duration wait) {
  v1::LearnerCommand command;
  command.set_kind(v1::LearnerCommand::SAVE_STATUS);
  command.set_wait_milliseconds(absl::ToInt64Milliseconds(wait));
  MutexLock lock(&mutex_);
  LEEWAY_RETURN_IF_ERROR(Command(command));
  const ShareOutcome own = writer_.Outcome(wait);
  if (is_alone()) return std::vector<ShareOutcome>{own};
  absl::StatusOr<std::vector<ShareOutcome>> outcomes = GatherOutcomes(commands_, own);
  LEEWAY_RETURN_IF_ERROR(Remember(outcomes.status()));
  return outcomes;
}

absl::Status LearnerLeader::Remember(const absl::Status& status) {
  if (status.ok() || is_alone()) return status;
  // The others are somewhere in the same call, or done with it: nobody has to find out by waiting.
  has_failed_ = true;
  const std::string reason = absl::StrCat("rank 0 has failed: ", status.ToString());
  own_->Abort(reason);
  commands_->Abort(reason);
  return status;
}

absl::Status LearnerLeader::Idle() {
  v1::LearnerCommand command;
  command.set_kind(v1::LearnerCommand::IDLE);
  MutexLock lock(&mutex_);
  return Command(command);
}

absl::Status LearnerLeader::Stop(const absl::Status& reason) {
  v1::LearnerCommand command;
  command.set_kind(v1::LearnerCommand::STOP);
  if (!reason.ok()) command.set_error(reason.ToString());
  MutexLock lock(&mutex_);
  // Nobody listens any more afterwards.
  is_over_ = true;
  changed_.NotifyAll();
  LEEWAY_FAILPOINT("trainer_at_stop");
  return has_failed_ ? absl::OkStatus() : Command(command);
}

namespace {

absl::Status Follow(Learner* own, Communicator* commands, const std::function<void(uint64_t step)>& on_step,
                    FileSystem* files, ShareWriter* writer) {
  while (true) {
    std::string text;
    LEEWAY_FAILPOINT("trainer_before_command");
    LEEWAY_RETURN_IF_ERROR(BroadcastText(commands, &text));
    LEEWAY_FAILPOINT("trainer_after_command");
    v1::LearnerCommand command;
    if (!command.ParseFromString(text)) return absl::InternalError("a command of rank 0 can not be read");
    switch (command.kind()) {
      case v1::LearnerCommand::IDLE:
        break;
      case v1::LearnerCommand::RESTORE:
        LEEWAY_RETURN_IF_ERROR(RestoreFrom(own, files, command.folder(), command.optimizer_updates()));
        break;
      case v1::LearnerCommand::RESET: {
        std::vector<float> parameters(static_cast<size_t>(command.parameter_count()));
        LEEWAY_RETURN_IF_ERROR(BroadcastParameters(commands, &parameters));
        LEEWAY_RETURN_IF_ERROR(own->Reset(parameters));
        break;
      }
      case v1::LearnerCommand::TRAIN: {
        on_step(command.step());
        const uint64_t step = command.step();
        const LeasedBatch leased = BatchOf(&command);
        StepReport report;
        LEEWAY_RETURN_IF_ERROR(own->Train(step, leased, &report));
        break;
      }
      case v1::LearnerCommand::SAVE:
        LEEWAY_FAILPOINT("trainer_at_save");
        writer->Begin(command.folder(), {own->CopyPieces(), {}});
        break;
      case v1::LearnerCommand::SAVE_STATUS: {
        const ShareOutcome outcome = writer->Outcome(absl::Milliseconds(command.wait_milliseconds()));
        LEEWAY_RETURN_IF_ERROR(GatherOutcomes(commands, outcome).status());
        break;
      }
      case v1::LearnerCommand::STOP:
        LEEWAY_FAILPOINT("trainer_at_stop");
        if (command.error().empty()) return absl::OkStatus();
        return absl::AbortedError(absl::StrCat("rank 0 has ended: ", command.error()));
      default:
        return absl::InternalError(absl::StrCat("rank 0 sent a command of kind ", command.kind()));
    }
  }
}

}  // namespace

absl::Status FollowLeader(Learner* own, Communicator* commands, const std::function<void(uint64_t step)>& on_step,
                          FileSystem* files) {
  ShareWriter writer(files);
  const absl::Status status = Follow(own, commands, on_step, files, &writer);
  if (status.ok()) return status;
  const std::string reason = absl::StrCat("rank ", commands->rank(), " has failed: ", status.ToString());
  own->Abort(reason);
  commands->Abort(reason);
  return status;
}

}  // namespace leeway
