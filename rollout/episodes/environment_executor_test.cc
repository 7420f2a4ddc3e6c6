#include "rollout/episodes/environment_executor.h"

#include <atomic>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/fake_clock.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rollout/doorbell.h"
#include "rollout/episodes/scripted_task.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

// Blocks callers until it is opened.
class Gate {
 public:
  void Pass() {
    MutexLock lock(&mutex_);
    ++waiting_;
    changed_.NotifyAll();
    while (!open_) changed_.WaitFor(&mutex_, absl::Seconds(10));
    --waiting_;
    changed_.NotifyAll();
  }
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void AwaitWaiting(int count) {
    MutexLock lock(&mutex_);
    while (waiting_ != count) changed_.WaitFor(&mutex_, absl::Seconds(10));
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ LEEWAY_GUARDED_BY(mutex_) = false;
  int waiting_ LEEWAY_GUARDED_BY(mutex_) = 0;
};

EnvironmentCall ResetCall(uint64_t id, const Task* task) {
  EnvironmentCall call;
  call.id = id;
  call.slot = std::make_shared<EnvironmentSlot>();
  call.reset_task = task;
  call.key.member = static_cast<uint32_t>(id);
  call.seed = 100 + id;
  call.timeout = absl::Seconds(5);
  return call;
}

EnvironmentCall StepCall(uint64_t id, std::shared_ptr<EnvironmentSlot> slot, const std::string& answer) {
  EnvironmentCall call;
  call.id = id;
  call.slot = std::move(slot);
  call.answer = answer;
  call.timeout = absl::Seconds(5);
  return call;
}

void Post(EnvironmentExecutor* executor, std::vector<EnvironmentCall> calls) {
  executor->Post(&calls);
  EXPECT_TRUE(calls.empty());
}

// Takes until `count` answers are there.
std::vector<EnvironmentAnswer> Await(EnvironmentExecutor* executor, Doorbell* bell, size_t count) {
  std::vector<EnvironmentAnswer> answers;
  while (answers.size() < count) {
    executor->Take(&answers);
    if (answers.size() < count) bell->Wait(absl::Seconds(1));
  }
  return answers;
}

TEST(RunEnvironmentCallTest, ResetMakesAndStepsEnd) {
  ScriptedTask::Script script;
  script.reset = [](const EpisodeKey& key, uint64_t seed) {
    return ScriptedTask::Ask(std::to_string(seed + key.member));
  };
  script.latency = [](const EpisodeKey&, int call) { return absl::Milliseconds(10 + call); };
  const ScriptedTask task(script);
  EnvironmentCall call = ResetCall(3, &task);
  EnvironmentAnswer answer = internal::RunEnvironmentCall(call, RealClock());
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.call, 3u);
  EXPECT_EQ(answer.result.next.text, "106");
  EXPECT_EQ(answer.result.state, EpisodeState::kRunning);
  EXPECT_EQ(answer.simulated_latency, absl::Milliseconds(10));
  ASSERT_NE(call.slot->environment, nullptr);
  answer = internal::RunEnvironmentCall(StepCall(4, call.slot, "x"), RealClock());
  EXPECT_EQ(*answer.result.reward, 1.0);
  EXPECT_EQ(answer.simulated_latency, absl::Milliseconds(11));
  EXPECT_EQ(call.slot->environment, nullptr) << "an ended world is destroyed where it lived";
}

TEST(RunEnvironmentCallTest, ExceptionsAndErrorsBecomeStatus) {
  ScriptedTask::Script script;
  script.step = [](const EpisodeKey&, int, const std::string& answer) -> absl::StatusOr<StepResult> {
    if (answer == "throw") throw std::runtime_error("out of cheese");
    if (answer == "odd") throw 5;
    return absl::UnavailableError("sandbox gone");
  };
  const ScriptedTask task(script);
  for (const auto& [answer, text] :
       std::vector<std::pair<std::string, std::string>>{{"throw", "INTERNAL: threw: out of cheese"},
                                                        {"odd", "INTERNAL: threw something"},
                                                        {"error", "UNAVAILABLE: sandbox gone"}}) {
    EnvironmentCall call = ResetCall(1, &task);
    internal::RunEnvironmentCall(call, RealClock());
    EXPECT_THAT(internal::RunEnvironmentCall(StepCall(2, call.slot, answer), RealClock()).status.ToString(),
                HasSubstr(text));
  }
}

TEST(InlineEnvironmentExecutorTest, JudgesTimeAfterwards) {
  FakeClock clock;
  ScriptedTask::Script script;
  script.reset = [&](const EpisodeKey& key, uint64_t) {
    clock.Advance(absl::Seconds(key.member));
    return ScriptedTask::Ask("");
  };
  const ScriptedTask task(script);
  InlineEnvironmentExecutor executor(&clock);
  Post(&executor, {ResetCall(4, &task), ResetCall(6, &task)});
  std::vector<EnvironmentAnswer> answers;
  executor.Take(&answers);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_FALSE(answers[0].timed_out);
  EXPECT_EQ(answers[0].took, absl::Seconds(4));
  EXPECT_TRUE(answers[1].timed_out);
  EXPECT_TRUE(absl::IsDeadlineExceeded(answers[1].status));
}

TEST(ThreadedEnvironmentExecutorTest, AnswersEveryCallOnce) {
  const ScriptedTask task({});
  Doorbell bell;
  ThreadedEnvironmentExecutor executor(3, [&] { bell.Ring(); });
  std::vector<EnvironmentCall> calls;
  for (uint64_t id = 1; id <= 500; ++id) calls.push_back(ResetCall(id, &task));
  Post(&executor, std::move(calls));
  std::set<uint64_t> seen;
  for (const EnvironmentAnswer& answer : Await(&executor, &bell, 500)) {
    EXPECT_TRUE(answer.status.ok());
    EXPECT_TRUE(seen.insert(answer.call).second);
  }
  EXPECT_EQ(executor.NextDeadline(), MonotonicTime::InfiniteFuture());
}

TEST(ThreadedEnvironmentExecutorTest, HungCallIsGivenUpAndItsThreadReplaced) {
  FakeClock clock;
  auto gate = std::make_shared<Gate>();
  ScriptedTask::Script script;
  script.reset = [gate](const EpisodeKey& key, uint64_t) {
    if (key.member <= 2) gate->Pass();
    return ScriptedTask::Ask("");
  };
  const ScriptedTask task(script);
  Doorbell bell;
  ThreadedEnvironmentExecutor executor(
      2, [&] { bell.Ring(); }, &clock);
  // Both threads hang; the third call waits behind them.
  Post(&executor, {ResetCall(1, &task), ResetCall(2, &task), ResetCall(3, &task)});
  gate->AwaitWaiting(2);
  std::vector<EnvironmentAnswer> answers;
  clock.Advance(absl::Seconds(4));
  executor.Take(&answers);
  EXPECT_TRUE(answers.empty());
  EXPECT_EQ(executor.NextDeadline(), clock.Now() + absl::Seconds(1));
  clock.Advance(absl::Seconds(1));
  executor.Take(&answers);
  ASSERT_EQ(answers.size(), 2u);
  for (const EnvironmentAnswer& answer : answers) {
    EXPECT_TRUE(answer.timed_out);
    EXPECT_THAT(answer.status.ToString(), HasSubstr("no answer within 5s"));
  }
  EXPECT_EQ(executor.abandoned_threads(), 2);
  // The new threads serve the third.
  EXPECT_EQ(Await(&executor, &bell, 1)[0].call, 3u);
  // The hung calls come back: nobody hears of them.
  gate->Open();
  gate->AwaitWaiting(0);
  while (executor.abandoned_threads() > 0) std::this_thread::yield();
  answers.clear();
  executor.Take(&answers);
  EXPECT_TRUE(answers.empty());
}

TEST(ThreadedEnvironmentExecutorTest, DestructorLeavesAHungThreadBehind) {
  auto gate = std::make_shared<Gate>();
  ScriptedTask::Script script;
  script.reset = [gate](const EpisodeKey&, uint64_t) {
    gate->Pass();
    return ScriptedTask::Ask("");
  };
  // A thread left behind goes on using its environment and task: they must live as long as the process.
  static const ScriptedTask task(script);
  {
    ThreadedEnvironmentExecutor executor(2, [] {});
    Post(&executor, {ResetCall(1, &task)});
    gate->AwaitWaiting(1);
  }
  gate->Open();
  gate->AwaitWaiting(0);
}

}  // namespace
}  // namespace leeway
