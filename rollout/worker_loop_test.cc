#include "rollout/worker_loop.h"

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fake_clock.h"
#include "base/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rollout/engine/naive_generator.h"
#include "rollout/episodes/scripted_task.h"
#include "tokenizer/character_tokenizer.h"
#include "weightsync/fake_weight_subscriber.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Script = ScriptedTask::Script;

v1::WeightsVersion Weights(uint64_t lineage, uint64_t version) {
  v1::WeightsVersion weights;
  weights.set_lineage(lineage);
  weights.set_version(version);
  return weights;
}

v1::Ticket MakeTicket(uint64_t id, uint32_t members, const v1::WeightsVersion& weights, bool evaluation = false) {
  v1::Ticket ticket;
  ticket.set_id(id);
  ticket.set_issue(1);
  ticket.set_task("scripted");
  ticket.set_seed(id);
  ticket.set_member_count(members);
  for (uint32_t member = 0; member < members; ++member) ticket.add_members(member);
  *ticket.mutable_weights() = weights;
  ticket.set_deadline_ms(60'000);
  ticket.set_evaluation(evaluation);
  return ticket;
}

RolloutOptions Options(UpdateMode mode = UpdateMode::kFinish) {
  RolloutOptions options;
  options.seed = 5;
  options.shape = TinyShape();
  options.update_mode = mode;
  options.max_episodes = 16;
  return options;
}

// A loop with everything around it faked; time moves by hand.
class Stage {
 public:
  explicit Stage(Script script = {}, const RolloutOptions& options = Options())
      : task(std::move(script)),
        executor(&clock),
        parallel(1),
        transformer(options.shape, &parallel),
        state_clock(&clock) {
    WorkerLoop::Dependencies dependencies;
    dependencies.task = &task;
    dependencies.tokenizer = &tokenizer;
    dependencies.weights = &subscriber;
    dependencies.executor = &executor;
    dependencies.transformer = &transformer;
    dependencies.parallel = &parallel;
    dependencies.state_clock = &state_clock;
    dependencies.clock = &clock;
    dependencies.push = [this](v1::Trajectory trajectory) { pushed.push_back(std::move(trajectory)); };
    loop = std::make_unique<WorkerLoop>(options, dependencies);
  }

  void Deliver(uint64_t version, uint64_t lineage = 1) {
    subscriber.Deliver(Weights(lineage, version), TinyWeights(version));
  }
  void Add(std::vector<v1::Ticket> tickets) {
    v1::AcquireTicketsResponse response;
    for (v1::Ticket& ticket : tickets) *response.add_tickets() = std::move(ticket);
    loop->AddTickets(response, loop->weights());
  }
  // Asks the queue, which has nothing.
  void AskInVain(const std::string& cause = "waiting_for_version") {
    v1::AcquireTicketsResponse empty;
    empty.set_cause(cause);
    loop->AddTickets(empty, loop->weights());
  }
  // One iteration, as the worker does it: a swap that waits for the queue's answer gets it.
  bool Once() {
    if (answers_asks && loop->may_have_evaluations() && loop->wanted_members() > 0) AskInVain();
    absl::StatusOr<bool> worked = loop->Iterate();
    EXPECT_TRUE(worked.ok()) << worked.status();
    return worked.value_or(false);
  }
  void Settle() {
    for (int i = 0; i < 10'000 && Once(); ++i) {
    }
  }
  void AnswerAll(v1::PushResult result = v1::ACCEPTED) {
    for (; answered < pushed.size(); ++answered) Answer(answered, result);
  }
  void Answer(size_t index, v1::PushResult result) {
    v1::PushAnswer answer;
    answer.set_result(result);
    loop->OnPushAnswered(pushed[index].key(), pushed[index].evaluation(), answer);
  }
  // Versions of all tokens of a pushed trajectory.
  std::set<uint64_t> VersionsOf(const v1::Trajectory& trajectory) {
    std::set<uint64_t> versions;
    for (const v1::Span& span : trajectory.spans()) {
      for (const v1::VersionRun& run : span.versions()) versions.insert(run.weights().version());
    }
    return versions;
  }

  FakeClock clock;
  CharacterTokenizer tokenizer;
  ScriptedTask task;
  FakeWeightSubscriber subscriber;
  InlineEnvironmentExecutor executor;
  ParallelFor parallel;
  Transformer<float> transformer;
  StateClock state_clock;
  std::unique_ptr<WorkerLoop> loop;
  std::vector<v1::Trajectory> pushed;
  size_t answered = 0;
  bool answers_asks = true;
};

Script TwoTurns() {
  Script script;
  script.step = [](const EpisodeKey&, int call, const std::string&) {
    return call == 1 ? ScriptedTask::Continue("2") : ScriptedTask::End(1.0);
  };
  return script;
}

TEST(WorkerLoopTest, StartsATicketWhenItsVersionIsThere) {
  Stage stage;
  stage.Add({MakeTicket(1, 2, Weights(1, 2))});
  stage.Settle();
  EXPECT_THAT(stage.pushed, IsEmpty());
  EXPECT_EQ(stage.loop->wait().cause, "waiting_for_version");
  EXPECT_THAT(stage.loop->wait().detail, HasSubstr("ticket 1 needs weights (1, 2), held are (0, 0)"));
  stage.Deliver(1);
  stage.Settle();
  EXPECT_THAT(stage.pushed, IsEmpty());
  stage.Deliver(2);
  stage.Settle();
  ASSERT_EQ(stage.pushed.size(), 2u);
  for (const v1::Trajectory& trajectory : stage.pushed) EXPECT_THAT(stage.VersionsOf(trajectory), ElementsAre(2));
  // A later version serves an older ticket; a newer lineage too.
  stage.Add({MakeTicket(2, 1, Weights(1, 1))});
  stage.Settle();
  EXPECT_EQ(stage.pushed.size(), 3u);
  stage.Deliver(2, /*lineage=*/2);
  stage.Settle();
  stage.Add({MakeTicket(3, 1, Weights(1, 2)), MakeTicket(4, 1, Weights(3, 1))});
  stage.Settle();
  EXPECT_EQ(stage.pushed.size(), 4u);
  EXPECT_EQ(stage.pushed.back().key().ticket(), 3u);
}

TEST(WorkerLoopTest, EvaluationIsPinnedAndDelaysTheSwap) {
  for (UpdateMode mode : {UpdateMode::kFinish, UpdateMode::kKeep, UpdateMode::kRecompute, UpdateMode::kRestart}) {
    Stage stage(TwoTurns(), Options(mode));
    stage.Deliver(1);
    stage.Once();
    // More evaluation episodes than slots: those not started yet hold the weights as well.
    std::vector<v1::Ticket> tickets = {MakeTicket(1, 4, Weights(1, 1))};
    for (uint64_t id = 1; id <= 40; ++id) tickets.push_back(MakeTicket(id, 1, Weights(1, 1), /*evaluation=*/true));
    stage.Add(tickets);
    stage.Once();
    stage.Deliver(2);
    stage.Settle();
    ASSERT_EQ(stage.pushed.size(), 44u);
    int evaluations = 0;
    for (size_t i = 0; i < stage.pushed.size(); ++i) {
      if (!stage.pushed[i].evaluation()) continue;
      ++evaluations;
      EXPECT_THAT(stage.VersionsOf(stage.pushed[i]), ElementsAre(1));
    }
    EXPECT_EQ(evaluations, 40);
    EXPECT_EQ(stage.loop->weights(), (WeightsId{1, 2}));
    EXPECT_EQ(stage.subscriber.swaps().size(), 2u);
  }
}

TEST(WorkerLoopTest, EvaluationOfTheHeldVersionTakesASwapRequestBack) {
  // Mode finish, a long turn drains towards version 2; then an evaluation of version 1 arrives. It must run, on
  // version 1.
  Script script;
  script.reset = [](const EpisodeKey&, uint64_t) {
    Observation observation = ScriptedTask::Ask("1", 30);
    observation.legal_characters = "ab";
    observation.end_of_text_is_legal = false;
    return observation;
  };
  Stage stage(script);
  stage.Deliver(1);
  stage.Add({MakeTicket(1, 1, Weights(1, 1))});
  stage.Once();
  stage.Once();
  stage.Deliver(2);
  stage.Once();
  EXPECT_EQ(stage.loop->weights().version, 1u);
  stage.Add({MakeTicket(7, 1, Weights(1, 1), true)});
  stage.Settle();
  ASSERT_EQ(stage.pushed.size(), 2u);
  for (const v1::Trajectory& trajectory : stage.pushed) EXPECT_THAT(stage.VersionsOf(trajectory), ElementsAre(1));
  EXPECT_EQ(stage.loop->weights().version, 2u);
}

TEST(WorkerLoopTest, EvaluationOfAPastVersionIsRefused) {
  Stage stage;
  stage.Deliver(3);
  stage.Once();
  stage.Add({MakeTicket(1, 1, Weights(1, 2), true), MakeTicket(2, 1, Weights(1, 4), true)});
  stage.Settle();
  ASSERT_EQ(stage.pushed.size(), 1u);
  EXPECT_EQ(stage.pushed[0].outcome(), v1::FAILED);
  EXPECT_EQ(stage.pushed[0].failure().code(), "version_gone");
  EXPECT_TRUE(stage.pushed[0].evaluation());
  stage.Deliver(4);
  stage.Settle();
  ASSERT_EQ(stage.pushed.size(), 2u);
  EXPECT_THAT(stage.VersionsOf(stage.pushed[1]), ElementsAre(4));
}

TEST(WorkerLoopTest, DeadlinesFailMembersAndReleaseThePin) {
  Script script;
  script.latency = [](const EpisodeKey&, int) { return absl::Hours(1); };
  RolloutOptions options = Options();
  options.limits.reset_timeout = options.limits.episode_timeout = absl::Hours(2);
  options.max_episodes = 3;
  Stage stage(script, options);
  stage.Deliver(1);
  stage.Add({MakeTicket(1, 1, Weights(1, 1), true), MakeTicket(1, 5, Weights(1, 1))});
  stage.Settle();
  stage.Deliver(2);
  stage.Settle();
  EXPECT_EQ(stage.loop->weights().version, 1u) << "the evaluation still runs";
  EXPECT_EQ(stage.loop->wait().cause, "env_step");
  EXPECT_EQ(stage.loop->wait().wake_at, stage.clock.Now() + absl::Seconds(60));
  stage.clock.Advance(absl::Seconds(60));
  stage.Settle();
  ASSERT_EQ(stage.pushed.size(), 6u) << "running and unstarted members alike";
  for (const v1::Trajectory& trajectory : stage.pushed) {
    EXPECT_EQ(trajectory.failure().fault(), v1::Failure::TIMEOUT);
    EXPECT_EQ(trajectory.failure().code(), "deadline");
    EXPECT_THAT(trajectory.failure().message(), HasSubstr("the ticket's 1m are over"));
  }
  EXPECT_EQ(stage.loop->weights().version, 2u);
  stage.AnswerAll(v1::DUPLICATE);
  EXPECT_THAT(stage.loop->training_tickets(), IsEmpty());
  EXPECT_EQ(stage.loop->wanted_members(), 3);
}

TEST(WorkerLoopTest, TicketsAreListedUntilEveryPushIsAnswered) {
  Stage stage;
  stage.Deliver(1);
  stage.Add({MakeTicket(8, 2, Weights(1, 1)), MakeTicket(9, 1, Weights(1, 1)), MakeTicket(3, 1, Weights(1, 1), true)});
  stage.Settle();
  ASSERT_EQ(stage.pushed.size(), 4u);
  EXPECT_THAT(stage.loop->training_tickets(), ElementsAre(8, 9)) << "evaluation ids are another space";
  EXPECT_EQ(stage.loop->unanswered_pushes(), 4);
  for (size_t i = 0; i < 4; ++i) {
    if (stage.pushed[i].key().ticket() != 8 || stage.pushed[i].key().member() != 0) stage.Answer(i, v1::ACCEPTED);
  }
  EXPECT_THAT(stage.loop->training_tickets(), ElementsAre(8));
  EXPECT_EQ(stage.loop->Gauges().at("rollout/answers/accepted"), 3);
}

TEST(WorkerLoopTest, AClosedGroupIsNotGeneratedFurther) {
  RolloutOptions options = Options();
  options.max_episodes = 1;  // one member after the other
  Stage stage({}, options);
  stage.Deliver(1);
  stage.Add({MakeTicket(1, 4, Weights(1, 1)), MakeTicket(2, 1, Weights(1, 1))});
  while (stage.pushed.empty()) stage.Once();
  stage.Answer(0, v1::GROUP_CLOSED);
  stage.Settle();
  ASSERT_EQ(stage.pushed.size(), 2u);
  EXPECT_EQ(stage.pushed[1].key().ticket(), 2u);
}

TEST(WorkerLoopTest, AbandonsWhatTheQueueNames) {
  Script script;
  script.latency = [](const EpisodeKey&, int) { return absl::Seconds(5); };
  Stage stage(script);
  stage.Deliver(1);
  stage.Add({MakeTicket(1, 3, Weights(1, 1)), MakeTicket(2, 1, Weights(1, 1)), MakeTicket(1, 1, Weights(1, 1), true),
             MakeTicket(5, 2, Weights(1, 9))});
  stage.Settle();
  // A heartbeat that was sent before ticket 1 came was about an older issue of it.
  stage.loop->AbandonTickets({1, 2}, stage.clock.Now() - absl::Nanoseconds(1));
  EXPECT_THAT(stage.loop->training_tickets(), ElementsAre(1, 2, 5));
  stage.loop->AbandonTickets({1, 5, 77}, stage.clock.Now());
  EXPECT_THAT(stage.loop->training_tickets(), ElementsAre(2));
  EXPECT_EQ(stage.loop->wanted_members(), 14);
  stage.clock.Advance(absl::Seconds(5));
  stage.Settle();
  stage.clock.Advance(absl::Seconds(5));
  stage.Settle();
  ASSERT_EQ(stage.pushed.size(), 2u);
  EXPECT_TRUE(stage.pushed[0].evaluation() != stage.pushed[1].evaluation())
      << "the evaluation of the same number is left alone";
}

TEST(WorkerLoopTest, UnansweredPushesHoldBackNewEpisodes) {
  RolloutOptions options = Options();
  options.max_unanswered_pushes = 4;
  options.max_episodes = 4;
  Stage stage({}, options);
  stage.Deliver(1);
  stage.Add({MakeTicket(1, 4, Weights(1, 1)), MakeTicket(2, 4, Weights(1, 1))});
  stage.Settle();
  EXPECT_EQ(stage.pushed.size(), 4u);
  EXPECT_EQ(stage.loop->wanted_members(), 0);
  EXPECT_EQ(stage.loop->wait().cause, "queue_full");
  EXPECT_THAT(stage.loop->wait().detail, HasSubstr("answers to 4 pushed trajectories"));
  // Evaluation is not held back.
  stage.Add({MakeTicket(1, 1, Weights(1, 1), true)});
  stage.Settle();
  EXPECT_EQ(stage.pushed.size(), 5u);
  stage.AnswerAll();
  stage.Settle();
  EXPECT_EQ(stage.pushed.size(), 9u);
}

TEST(WorkerLoopTest, DroppingEverythingForgetsTheOldIdentity) {
  Script script;
  script.latency = [](const EpisodeKey&, int) { return absl::Seconds(5); };
  Stage stage(script);
  stage.Deliver(1);
  stage.Add({MakeTicket(1, 2, Weights(1, 1)), MakeTicket(2, 2, Weights(1, 7)), MakeTicket(1, 1, Weights(1, 1), true)});
  stage.Settle();
  stage.loop->DropEverything();
  EXPECT_THAT(stage.loop->training_tickets(), IsEmpty());
  EXPECT_EQ(stage.loop->wanted_members(), 16);
  EXPECT_EQ(stage.loop->weights().version, 1u) << "verified weights stay";
  stage.clock.Advance(absl::Minutes(5));
  stage.Settle();
  EXPECT_THAT(stage.pushed, IsEmpty());
  EXPECT_EQ(stage.loop->wait().wake_at, MonotonicTime::InfiniteFuture());
  // The same ticket again, under a new issue.
  v1::Ticket again = MakeTicket(1, 2, Weights(1, 1));
  again.set_issue(2);
  stage.Add({again});
  for (int i = 0; i < 3; ++i) {
    stage.Settle();
    stage.clock.Advance(absl::Seconds(5));
  }
  EXPECT_EQ(stage.pushed.size(), 2u);
}

TEST(WorkerLoopTest, RelabelIsASwapWithoutBytes) {
  Stage stage;
  stage.Deliver(1);
  stage.Once();
  stage.subscriber.Relabel(Weights(1, 2));
  EXPECT_TRUE(stage.Once());
  EXPECT_EQ(stage.loop->weights(), (WeightsId{1, 2}));
  ASSERT_EQ(stage.subscriber.swaps().size(), 2u);
  stage.Add({MakeTicket(1, 1, Weights(1, 2))});
  stage.Settle();
  ASSERT_EQ(stage.pushed.size(), 1u);
  EXPECT_THAT(stage.VersionsOf(stage.pushed[0]), ElementsAre(2));
}

TEST(WorkerLoopTest, ALowerVersionNeedsAHigherLineage) {
  Stage stage;
  stage.Deliver(5);
  stage.Once();
  stage.Deliver(4);
  stage.Settle();
  EXPECT_EQ(stage.loop->weights(), (WeightsId{1, 5}));
  stage.Deliver(3, /*lineage=*/2);
  stage.Settle();
  EXPECT_EQ(stage.loop->weights(), (WeightsId{2, 3}));
}

TEST(WorkerLoopTest, WeightsOfAnotherShapeEndTheWorker) {
  Stage stage;
  stage.subscriber.Deliver(Weights(1, 1), std::vector<float>(17, 0.0f));
  const absl::StatusOr<bool> result = stage.loop->Iterate();
  EXPECT_TRUE(absl::IsInvalidArgument(result.status()));
  EXPECT_THAT(result.status().ToString(), HasSubstr("have 17 parameters, the configured model has"));
}

TEST(WorkerLoopTest, CausesOfWaits) {
  Stage stage;
  EXPECT_EQ(stage.loop->wait().cause, "waiting_for_tickets");
  const MonotonicTime since = stage.clock.Now();
  stage.AskInVain("waiting_for_trainer");
  stage.clock.Advance(absl::Seconds(3));
  stage.AskInVain("waiting_for_trainer");
  EXPECT_EQ(stage.loop->wait().cause, "waiting_for_trainer");
  EXPECT_EQ(stage.loop->wait().since, since) << "the same cause again does not start anew";
}

TEST(WorkerLoopTest, WeightsAreNotSwappedOutBeforeTheQueueWasAskedForTheirEvaluations) {
  Script slow;
  slow.latency = [](const EpisodeKey&, int) { return absl::Seconds(5); };
  RolloutOptions options = Options();
  options.max_episodes = 2;
  Stage stage(slow, options);
  stage.answers_asks = false;
  stage.Deliver(1);
  stage.Once();
  EXPECT_EQ(stage.loop->weights().version, 1u) << "the first weights replace nothing";
  EXPECT_TRUE(stage.loop->may_have_evaluations());
  // Every slot is taken when version 2 arrives.
  v1::AcquireTicketsResponse response;
  *response.add_tickets() = MakeTicket(1, 2, Weights(1, 1));
  stage.loop->AddTickets(response, WeightsId{});  // asked before version 1 was held: says nothing about its evaluations
  stage.Settle();
  EXPECT_EQ(stage.loop->wanted_members(), 0);
  stage.Deliver(2);
  stage.Settle();
  EXPECT_EQ(stage.loop->weights().version, 1u);
  EXPECT_EQ(stage.loop->wanted_members(), 1) << "asks for the sake of the swap";
  // There is an evaluation: it is run first, and the queue is asked again.
  response.clear_tickets();
  *response.add_tickets() = MakeTicket(1, 1, Weights(1, 1), true);
  stage.loop->AddTickets(response, stage.loop->weights());
  for (int i = 0; i < 4; ++i) {
    stage.clock.Advance(absl::Seconds(5));
    stage.Settle();
  }
  ASSERT_EQ(stage.pushed.size(), 3u);
  EXPECT_EQ(stage.loop->weights().version, 1u);
  stage.AskInVain();
  stage.Settle();
  EXPECT_EQ(stage.loop->weights().version, 2u);
  EXPECT_TRUE(stage.loop->may_have_evaluations());
}

// Key of a trajectory -> its ids and logprobs.
std::map<std::string, std::string> Contents(const std::vector<v1::Trajectory>& trajectories) {
  std::map<std::string, std::string> contents;
  for (v1::Trajectory trajectory : trajectories) {
    const std::string key = absl::StrCat(trajectory.key().ticket(), "/", trajectory.key().member());
    trajectory.clear_key();
    contents[key] = trajectory.SerializeAsString();
  }
  return contents;
}

TEST(WorkerLoopTest, WhoeverGeneratesATicketTheBytesAreTheSame) {
  std::vector<v1::Ticket> tickets;
  for (uint64_t id = 1; id <= 12; ++id) tickets.push_back(MakeTicket(id, 4, Weights(1, 1)));
  Stage one(TwoTurns());
  one.Deliver(1);
  one.Add(tickets);
  one.Settle();
  ASSERT_EQ(one.pushed.size(), 48u);

  // Two workers of other sizes share them, one loses its work half way and the tickets are issued again to the other.
  RolloutOptions small = Options();
  small.max_episodes = 3;
  small.token_budget = 5;
  Stage left(TwoTurns(), small);
  Stage right(TwoTurns());
  left.Deliver(1);
  right.Deliver(1);
  for (uint64_t id = 1; id <= 6; ++id) left.Add({tickets[id - 1]});
  for (uint64_t id = 12; id >= 7; --id) right.Add({tickets[id - 1]});
  for (int i = 0; i < 20; ++i) left.Once();
  right.Once();
  left.loop->DropEverything();
  for (uint64_t id = 1; id <= 6; ++id) {
    tickets[id - 1].set_issue(2);
    right.Add({tickets[id - 1]});
  }
  right.Settle();
  EXPECT_EQ(Contents(right.pushed), Contents(one.pushed));
  for (const auto& [key, bytes] : Contents(left.pushed)) EXPECT_EQ(Contents(one.pushed).at(key), bytes);
}

TEST(RolloutOptionsTest, ValidateListsEveryFault) {
  EXPECT_TRUE(Options().Validate().ok()) << Options().Validate();
  RolloutOptions options = Options();
  options.name = "";
  options.temperature = -1;
  options.evaluation_sampling.top_p = 0;
  options.max_episodes = 0;
  options.token_budget = 0;
  options.limits.max_attempts = 0;
  options.limits.step_timeout = absl::ZeroDuration();
  const std::string message(options.Validate().message());
  for (const char* part :
       {"needs a name", "rollout sampling: temperature", "evaluation sampling: top_p", "rollout.max_episodes",
        "rollout.token_budget", "rollout.max_attempts", "rollout.step_timeout"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

}  // namespace
}  // namespace leeway
