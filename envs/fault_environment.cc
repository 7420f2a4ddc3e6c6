#include "envs/fault_environment.h"

#include <limits>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "envs/call_syntax.h"
#include "envs/task_wrapper.h"

namespace leeway {
namespace {

constexpr char kExample[] = "faults(fail=0.01, hang=0.001)";

enum class Fault { kNone, kFail, kHang, kBlock, kGarbage };

// How an observation is spoilt; drawn uniformly.
void SpoilObservation(uint64_t kind, Observation* observation) {
  switch (kind) {
    case 0:
      observation->text = "\xff\xfe\x01";
      break;
    case 1:
      observation->max_answer_tokens = 0;
      break;
    default:
      observation->legal_characters = "";
      observation->end_of_text_is_legal = false;
  }
}

class FaultEnvironment : public EnvironmentWrapper {
 public:
  FaultEnvironment(std::unique_ptr<Environment> inner, const FaultProbabilities& probabilities, const EpisodeKey& key,
                   std::shared_ptr<HangGate> gate)
      : EnvironmentWrapper(std::move(inner)), probabilities_(probabilities), key_(key), gate_(std::move(gate)) {}

  absl::StatusOr<Observation> Reset(uint64_t seed) override {
    call_ = 0;
    const Fault fault = Draw();
    LEEWAY_RETURN_IF_ERROR(FailOrBlock(fault));
    LEEWAY_ASSIGN_OR_RETURN(Observation observation, inner().Reset(seed));
    if (fault == Fault::kGarbage) SpoilObservation(DrawKind(3), &observation);
    return observation;
  }

  absl::StatusOr<StepResult> Step(const std::string& answer) override {
    ++call_;
    const Fault fault = Draw();
    LEEWAY_RETURN_IF_ERROR(FailOrBlock(fault));
    LEEWAY_ASSIGN_OR_RETURN(StepResult result, inner().Step(answer));
    if (fault == Fault::kGarbage) {
      const uint64_t kind = DrawKind(5);
      // Nobody looks at the observation of an episode that is over: there only the reward can be spoilt.
      if (kind < 3 && result.state == EpisodeState::kRunning) {
        SpoilObservation(kind, &result.next);
      } else {
        result.reward =
            kind % 2 == 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
      }
    }
    return result;
  }

  absl::Duration SimulatedLatency() const override { return is_hanging_ ? kHangLatency : inner().SimulatedLatency(); }

 private:
  Fault Draw() {
    const double draw = RandomUniform(KeyAt(0));
    double limit = probabilities_.fail;
    Fault fault = Fault::kNone;
    if (draw < limit) {
      fault = Fault::kFail;
    } else if (draw < (limit += probabilities_.hang)) {
      fault = Fault::kHang;
    } else if (draw < (limit += probabilities_.block)) {
      fault = Fault::kBlock;
    } else if (draw < limit + probabilities_.garbage) {
      fault = Fault::kGarbage;
    }
    is_hanging_ = fault == Fault::kHang;
    return fault;
  }

  absl::Status FailOrBlock(Fault fault) {
    if (fault == Fault::kFail) return absl::UnavailableError(absl::StrCat("injected failure of call ", call_));
    if (fault != Fault::kBlock) return absl::OkStatus();
    gate_->Wait();
    return absl::CancelledError(absl::StrCat("injected hang of call ", call_, " was released"));
  }

  uint64_t DrawKind(uint64_t kinds) const { return RandomBelow(KeyAt(1), kinds); }

  RandomKey KeyAt(uint64_t what) const {
    return {.seed = key_.run_seed,
            .purpose = RandomPurpose::kFault,
            .ticket = key_.ticket,
            .member = key_.member,
            .interaction = call_,
            .position = uint64_t{key_.attempt} * 2 + what};
  }

  const FaultProbabilities probabilities_;
  const EpisodeKey key_;
  const std::shared_ptr<HangGate> gate_;

  // 0 = Reset, then the steps.
  uint32_t call_ = 0;
  // Whether the last call is deemed never to come back.
  bool is_hanging_ = false;
};

class FaultTask : public TaskWrapper {
 public:
  FaultTask(std::unique_ptr<Task> inner, const FaultProbabilities& probabilities, std::shared_ptr<HangGate> gate)
      : TaskWrapper(std::move(inner)),
        probabilities_(probabilities),
        owns_gate_(gate == nullptr),
        gate_(owns_gate_ ? std::make_shared<HangGate>() : std::move(gate)) {}
  ~FaultTask() override {
    if (owns_gate_) gate_->Open();
  }

  std::unique_ptr<Environment> NewEnvironmentFor(const EpisodeKey& key) const override {
    return std::make_unique<FaultEnvironment>(inner().NewEnvironmentFor(key), probabilities_, key, gate_);
  }

 private:
  const FaultProbabilities probabilities_;
  const bool owns_gate_;
  const std::shared_ptr<HangGate> gate_;
};

}  // namespace

absl::StatusOr<FaultProbabilities> ParseFaults(absl::string_view text) {
  using Arguments = std::map<std::string, std::string>;
  LEEWAY_ASSIGN_OR_RETURN(Arguments arguments,
                          internal::ParseCall(text, "faults", "fail,hang,block,garbage", kExample));
  FaultProbabilities probabilities;
  const std::map<std::string, double*> fields = {{"fail", &probabilities.fail},
                                                 {"hang", &probabilities.hang},
                                                 {"block", &probabilities.block},
                                                 {"garbage", &probabilities.garbage}};
  double sum = 0.0;
  for (const auto& [key, value] : arguments) {
    double* const field = fields.at(key);
    // Written so that NaN fails too.
    if (!absl::SimpleAtod(value, field) || !(*field >= 0.0 && *field <= 1.0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", text, "': ", key, " '", value, "' is not a probability from 0 to 1; expected for example ", kExample));
    }
    sum += *field;
  }
  if (sum > 1.0) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "': the probabilities add up to ", sum,
                                                   ", more than 1; expected for example ", kExample));
  }
  return probabilities;
}

void HangGate::Wait() {
  MutexLock lock(&mutex_);
  ++waiting_;
  while (!is_open_) opened_.WaitFor(&mutex_, absl::InfiniteDuration());
  --waiting_;
}

void HangGate::Open() {
  MutexLock lock(&mutex_);
  is_open_ = true;
  opened_.NotifyAll();
}

int HangGate::waiting() const {
  MutexLock lock(&mutex_);
  return waiting_;
}

std::unique_ptr<Task> WithFaults(std::unique_ptr<Task> task, const FaultProbabilities& probabilities,
                                 std::shared_ptr<HangGate> gate) {
  return std::make_unique<FaultTask>(std::move(task), probabilities, std::move(gate));
}

}  // namespace leeway
