#include "trainer/learner_ranks.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/failpoint.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "leeway/v1/trainer.pb.h"

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

// All arrays of a state, the leader's to the others; sized alike everywhere.
absl::Status BroadcastState(Communicator* ranks, TrainingState* state) {
  LEEWAY_RETURN_IF_ERROR(
      ranks->Broadcast(DType::kF32, state->parameters.data(), static_cast<int64_t>(state->parameters.size()), kLeader));
  for (auto& [name, values] : state->optimizer) {
    LEEWAY_RETURN_IF_ERROR(ranks->Broadcast(DType::kF32, values.data(), static_cast<int64_t>(values.size()), kLeader));
  }
  return absl::OkStatus();
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

LearnerLeader::LearnerLeader(Learner* own, Communicator* commands)
    : own_(own),
      commands_(commands),
      beat_(commands == nullptr ? absl::InfiniteDuration() : commands->timeout() / kBeatsInTimeout),
      next_beat_(Deadline::After(beat_)) {
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

absl::Status LearnerLeader::Restore(const TrainingState& state) {
  MutexLock lock(&mutex_);
  if (!is_alone()) {
    v1::LearnerCommand command;
    command.set_kind(v1::LearnerCommand::RESTORE);
    command.set_optimizer_updates(state.updates);
    command.set_parameter_count(static_cast<int64_t>(state.parameters.size()));
    for (const auto& [name, values] : state.optimizer) {
      v1::LearnerArray* const array = command.add_arrays();
      array->set_name(name);
      array->set_element_count(static_cast<int64_t>(values.size()));
    }
    LEEWAY_RETURN_IF_ERROR(Command(command));
    // A broadcast reads what its root gives.
    LEEWAY_RETURN_IF_ERROR(BroadcastState(commands_, const_cast<TrainingState*>(&state)));
  }
  return Remember(own_->Restore(state));
}

absl::Status LearnerLeader::Reset(std::vector<float> parameters) {
  TrainingState state;
  state.parameters = std::move(parameters);
  return Restore(state);
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

absl::StatusOr<TrainingState> LearnerLeader::GatherState() {
  v1::LearnerCommand command;
  command.set_kind(v1::LearnerCommand::GATHER_STATE);
  MutexLock lock(&mutex_);
  LEEWAY_RETURN_IF_ERROR(Command(command));
  absl::StatusOr<TrainingState> state = own_->GatherState();
  LEEWAY_RETURN_IF_ERROR(Remember(state.status()));
  return state;
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

absl::Status Follow(Learner* own, Communicator* commands, const std::function<void(uint64_t step)>& on_step) {
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
      case v1::LearnerCommand::RESTORE: {
        TrainingState state;
        state.updates = command.optimizer_updates();
        state.parameters.resize(static_cast<size_t>(command.parameter_count()));
        for (const v1::LearnerArray& array : command.arrays()) {
          state.optimizer[array.name()].resize(static_cast<size_t>(array.element_count()));
        }
        LEEWAY_RETURN_IF_ERROR(BroadcastState(commands, &state));
        LEEWAY_RETURN_IF_ERROR(own->Restore(state));
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
      case v1::LearnerCommand::GATHER_STATE:
        LEEWAY_RETURN_IF_ERROR(own->GatherState().status());
        break;
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

absl::Status FollowLeader(Learner* own, Communicator* commands, const std::function<void(uint64_t step)>& on_step) {
  const absl::Status status = Follow(own, commands, on_step);
  if (status.ok()) return status;
  const std::string reason = absl::StrCat("rank ", commands->rank(), " has failed: ", status.ToString());
  own->Abort(reason);
  commands->Abort(reason);
  return status;
}

}  // namespace leeway
