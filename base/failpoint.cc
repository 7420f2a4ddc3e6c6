#include "base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

enum class Action { kKill, kHang, kDelay, kWaitFor, kError };

struct Armed {
  Action action = Action::kKill;
  int delay_ms = 0;
  std::string file;
  // 0 = every hit.
  int at_hit = 0;
};

struct Registry {
  Mutex mutex;
  std::multimap<std::string, Armed> armed LEEWAY_GUARDED_BY(mutex);
  std::map<std::string, int> hits LEEWAY_GUARDED_BY(mutex);
};

absl::Status ArmIn(Registry* registry, absl::string_view specification);

Registry* TheRegistry() {
  static Registry* registry = [] {
    auto* made = new Registry;
    if (const char* specification = std::getenv("LEEWAY_FAILPOINTS")) {
      const absl::Status status = ArmIn(made, specification);
      LEEWAY_CHECK(status.ok()) << "LEEWAY_FAILPOINTS: " << status;
    }
    return made;
  }();
  return registry;
}

absl::StatusOr<std::pair<std::string, Armed>> ParseOne(absl::string_view item) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("failpoint \"", item,
                     "\": expected name=kill|hang|error|delay:MILLISECONDS|wait_for:FILE with an optional @hit"));
  };
  const std::pair<absl::string_view, absl::string_view> name_and_action = absl::StrSplit(item, absl::MaxSplits('=', 1));
  const std::vector<absl::string_view> action_and_hit = absl::StrSplit(name_and_action.second, '@');
  Armed armed;
  if (name_and_action.first.empty() || action_and_hit.empty() || action_and_hit.size() > 2) return bad();
  if (action_and_hit.size() == 2 && (!absl::SimpleAtoi(action_and_hit[1], &armed.at_hit) || armed.at_hit < 1))
    return bad();
  const std::pair<absl::string_view, absl::string_view> action =
      absl::StrSplit(action_and_hit[0], absl::MaxSplits(':', 1));
  if (action.first == "delay") {
    armed.action = Action::kDelay;
    if (!absl::SimpleAtoi(action.second, &armed.delay_ms) || armed.delay_ms < 0) return bad();
  } else if (action.first == "wait_for") {
    armed.action = Action::kWaitFor;
    armed.file = std::string(action.second);
    if (armed.file.empty()) return bad();
  } else if (action.first == "kill") {
    armed.action = Action::kKill;
  } else if (action.first == "hang") {
    armed.action = Action::kHang;
  } else if (action.first == "error") {
    armed.action = Action::kError;
  } else {
    return bad();
  }
  return std::make_pair(std::string(name_and_action.first), armed);
}

absl::StatusOr<std::multimap<std::string, Armed>> Parse(absl::string_view specification) {
  std::multimap<std::string, Armed> armed;
  for (absl::string_view item : absl::StrSplit(specification, ',', absl::SkipEmpty())) {
    LEEWAY_ASSIGN_OR_RETURN(auto parsed, ParseOne(item));
    armed.insert(std::move(parsed));
  }
  return armed;
}

absl::Status ArmIn(Registry* registry, absl::string_view specification) {
  LEEWAY_ASSIGN_OR_RETURN(auto armed, Parse(specification));
  MutexLock lock(&registry->mutex);
  registry->armed = std::move(armed);
  registry->hits.clear();
  return absl::OkStatus();
}

absl::Status Act(const char* name, const Armed& armed) {
  switch (armed.action) {
    case Action::kKill:
      kill(getpid(), SIGKILL);
      while (true) pause();
    case Action::kHang:
      while (true) pause();
    case Action::kDelay:
      std::this_thread::sleep_for(std::chrono::milliseconds(armed.delay_ms));
      return absl::OkStatus();
    case Action::kWaitFor:
      while (access(armed.file.c_str(), F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return absl::OkStatus();
    case Action::kError:
      return absl::InternalError(absl::StrCat("failpoint ", name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FailpointCheck(absl::string_view specification) { return Parse(specification).status(); }

absl::Status FailpointArm(absl::string_view specification) { return ArmIn(TheRegistry(), specification); }

void FailpointDisarmAll() { static_cast<void>(ArmIn(TheRegistry(), "")); }

int FailpointHits(absl::string_view name) {
  Registry* registry = TheRegistry();
  MutexLock lock(&registry->mutex);
  const auto found = registry->hits.find(std::string(name));
  return found == registry->hits.end() ? 0 : found->second;
}

namespace internal {

absl::Status FailpointReached(const char* name) {
  Registry* registry = TheRegistry();
  std::vector<Armed> due;
  {
    MutexLock lock(&registry->mutex);
    if (registry->armed.empty()) return absl::OkStatus();
    const int hit = ++registry->hits[name];
    const auto [begin, end] = registry->armed.equal_range(name);
    for (auto armed = begin; armed != end; ++armed) {
      if (armed->second.at_hit == 0 || armed->second.at_hit == hit) due.push_back(armed->second);
    }
  }
  for (const Armed& armed : due) LEEWAY_RETURN_IF_ERROR(Act(name, armed));
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace leeway
