#include "trainer/loss/train_batch.h"

#include <cmath>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void AddGiven(v1::Trajectory* trajectory, const std::vector<int32_t>& ids) {
  trajectory->add_spans()->mutable_ids()->Add(ids.begin(), ids.end());
}

// One version run for all ids.
v1::Span* AddSampled(v1::Trajectory* trajectory, const std::vector<int32_t>& ids, uint64_t version) {
  v1::Span* span = trajectory->add_spans();
  span->set_sampled(true);
  span->set_temperature(0.5f);
  for (size_t i = 0; i < ids.size(); ++i) {
    span->add_ids(ids[i]);
    span->add_logprobs(-0.25f * static_cast<float>(i + 1));
  }
  v1::VersionRun* run = span->add_versions();
  run->mutable_weights()->set_lineage(1);
  run->mutable_weights()->set_version(version);
  run->set_count(static_cast<uint32_t>(ids.size()));
  return span;
}

// [1 5 6] (7 8) [9] (10) [11]: seven ids before the end of what matters; sampled at places 3, 4 and 6.
v1::Trajectory Episode(uint64_t ticket, uint32_t member, double reward, uint64_t version = 10) {
  v1::Trajectory trajectory;
  trajectory.mutable_key()->set_ticket(ticket);
  trajectory.mutable_key()->set_member(member);
  trajectory.set_outcome(v1::COMPLETED);
  trajectory.set_kv_cache_consistent(true);
  trajectory.mutable_score()->set_status(v1::Score::SCORED);
  trajectory.mutable_score()->set_reward(reward);
  AddGiven(&trajectory, {1, 5, 6});
  AddSampled(&trajectory, {7, 8}, version)->mutable_legal_ids()->Add(7);
  trajectory.mutable_spans(1)->add_legal_ids(8);
  AddGiven(&trajectory, {9});
  AddSampled(&trajectory, {10}, version);
  AddGiven(&trajectory, {11});
  return trajectory;
}

BatchGroup Group(uint64_t ticket, std::vector<v1::Trajectory> members) {
  BatchGroup group;
  group.ticket = ticket;
  group.members = std::move(members);
  return group;
}

TrainBatchOptions Options() {
  TrainBatchOptions options;
  options.step = 10;
  options.lag_limit = 2;
  options.advantage = AdvantageKind::kDrGrpo;
  options.vocabulary = 20;
  options.max_positions = 64;
  options.micro_batch_tokens = 1000;
  return options;
}

TEST(TrainBatchTest, PositionsPointAtTheRowBeforeTheirToken) {
  TrainBatch batch;
  std::vector<RefusedGroup> refused;
  ASSERT_TRUE(BuildTrainBatch(Options(), {Group(3, {Episode(3, 0, 1), Episode(3, 1, 0)})}, &batch, &refused).ok());
  EXPECT_TRUE(refused.empty());
  ASSERT_EQ(batch.micro_batches.size(), 1u);
  const MicroBatch& micro = batch.micro_batches[0];
  // Without the last sampled id and what follows it.
  EXPECT_THAT(micro.sequences.tokens, ElementsAre(1, 5, 6, 7, 8, 9, 1, 5, 6, 7, 8, 9));
  EXPECT_THAT(micro.sequences.starts, ElementsAre(0, 6, 12));
  std::vector<int64_t> rows;
  std::vector<int32_t> targets, sets;
  for (const ScoredPosition& position : micro.positions) {
    rows.push_back(position.row);
    targets.push_back(position.target);
    sets.push_back(position.legal_set);
    EXPECT_EQ(position.temperature, 0.5f);
  }
  EXPECT_THAT(rows, ElementsAre(2, 3, 5, 8, 9, 11));
  EXPECT_THAT(targets, ElementsAre(7, 8, 10, 7, 8, 10));
  EXPECT_THAT(sets, ElementsAre(0, 0, -1, 0, 0, -1));
  EXPECT_THAT(batch.legal_sets, ElementsAre(ElementsAre(7, 8)));
  EXPECT_THAT(batch.mu, ElementsAre(-0.25, -0.5, -0.25, -0.25, -0.5, -0.25));
  EXPECT_THAT(batch.lag, ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_EQ(batch.sequences[0].advantage, 0.5);
  EXPECT_EQ(batch.sequences[1].advantage, -0.5);
  EXPECT_EQ(batch.trained_tokens, 6);
  EXPECT_EQ(batch.updates[0].normaliser.tokens, 6);
  EXPECT_EQ(batch.updates[0].normaliser.sequences, 2);
}

TEST(TrainBatchTest, TheOrderIsTicketThenMemberWhateverOrderTheyCameIn) {
  TrainBatch batch;
  std::vector<RefusedGroup> refused;
  const std::vector<BatchGroup> groups = {Group(9, {Episode(9, 1, 0), Episode(9, 0, 1)}),
                                          Group(2, {Episode(2, 1, 1), Episode(2, 0, 0)})};
  ASSERT_TRUE(BuildTrainBatch(Options(), groups, &batch, &refused).ok());
  std::vector<std::pair<uint64_t, uint32_t>> order;
  for (const TrainSequence& sequence : batch.sequences) order.emplace_back(sequence.ticket, sequence.member);
  EXPECT_THAT(order, ElementsAre(std::pair(2, 0), std::pair(2, 1), std::pair(9, 0), std::pair(9, 1)));
  EXPECT_THAT(batch.rewards, ElementsAre(0, 1, 1, 0));
}

TEST(TrainBatchTest, MicroBatchesHoldWholeSequencesUpToTheBudgetAndUpdatesWholeGroups) {
  TrainBatchOptions options = Options();
  options.micro_batch_tokens = 13;  // two sequences of six
  std::vector<BatchGroup> groups;
  for (uint64_t ticket : {1, 2, 3}) {
    groups.push_back(Group(ticket, {Episode(ticket, 0, 1), Episode(ticket, 1, 0), Episode(ticket, 2, 0)}));
  }
  TrainBatch batch;
  std::vector<RefusedGroup> refused;
  ASSERT_TRUE(BuildTrainBatch(options, groups, &batch, &refused).ok());
  EXPECT_EQ(batch.micro_batches.size(), 5u);  // 9 sequences by twos
  options.updates = 2;
  ASSERT_TRUE(BuildTrainBatch(options, groups, &batch, &refused).ok());
  // Groups 1, 2 and group 3: six and three sequences.
  ASSERT_EQ(batch.updates.size(), 2u);
  EXPECT_EQ(batch.updates[0].micro_end, 3);
  EXPECT_EQ(batch.updates[1].micro_begin, 3);
  EXPECT_EQ(batch.updates[1].micro_end, 5);
  EXPECT_EQ(batch.updates[0].normaliser.sequences, 6);
  EXPECT_EQ(batch.updates[1].normaliser.tokens, 9);
  options.micro_batch_tokens = 1;  // a sequence longer than the budget goes alone
  ASSERT_TRUE(BuildTrainBatch(options, groups, &batch, &refused).ok());
  EXPECT_EQ(batch.micro_batches.size(), 9u);
}

TEST(TrainBatchTest, DataRanksShareTheSequencesOfEachUpdateAndAgreeOnTheRest) {
  TrainBatchOptions options = Options();
  options.micro_batch_tokens = 13;
  options.updates = 2;
  std::vector<BatchGroup> groups;
  for (uint64_t ticket : {1, 2, 3}) {
    groups.push_back(Group(ticket, {Episode(ticket, 0, 1), Episode(ticket, 1, 0), Episode(ticket, 2, 0)}));
  }
  TrainBatch whole;
  std::vector<RefusedGroup> refused;
  ASSERT_TRUE(BuildTrainBatch(options, groups, &whole, &refused).ok());
  options.data_ranks = 4;
  constexpr int64_t kRows[] = {2, 3, 5};
  std::vector<int> trained(whole.sequences.size(), 0);
  for (options.data_rank = 0; options.data_rank < 4; ++options.data_rank) {
    TrainBatch batch;
    ASSERT_TRUE(BuildTrainBatch(options, groups, &batch, &refused).ok());
    EXPECT_EQ(batch.mu, whole.mu);
    EXPECT_EQ(batch.rewards, whole.rewards);
    ASSERT_EQ(batch.updates.size(), 2u);
    EXPECT_EQ(batch.updates[0].normaliser.tokens, 18);  // the update's, not the rank's
    EXPECT_EQ(batch.updates[1].normaliser.sequences, 3);
    // Six sequences over four ranks: two at most; then three: one rank has an empty micro-batch.
    EXPECT_EQ(batch.updates[0].micro_end - batch.updates[0].micro_begin, 1);
    EXPECT_EQ(batch.updates[1].micro_end - batch.updates[1].micro_begin, 1);
    for (const UpdateRange& update : batch.updates) {
      for (int64_t m = update.micro_begin; m < update.micro_end; ++m) {
        const MicroBatch& micro = batch.micro_batches[m];
        ASSERT_EQ(micro.sequences.sequence_count(), static_cast<int64_t>(micro.members.size()));
        size_t position = 0;
        for (size_t i = 0; i < micro.members.size(); ++i) {
          ++trained[micro.members[i]];
          EXPECT_EQ(micro.members[i] >= 6, &update == &batch.updates[1]);
          const TrainSequence& sequence = batch.sequences[micro.members[i]];
          for (int64_t p = sequence.begin; p < sequence.end; ++p, ++position) {
            // Each sequence's positions as they are alone: kRows of six.
            EXPECT_EQ(micro.positions[position].row, micro.sequences.starts[i] + kRows[p % 3]);
          }
        }
        EXPECT_EQ(position, micro.positions.size());
      }
    }
  }
  EXPECT_THAT(trained, ::testing::Each(1));
}

TEST(TrainBatchTest, MembersWithoutRewardAreLeftOutOfBaselineAndBatch) {
  v1::Trajectory unscored = Episode(1, 1, 0);
  unscored.mutable_score()->set_status(v1::Score::UNSCORED);
  unscored.mutable_score()->clear_reward();
  v1::Trajectory failed = Episode(1, 2, 0);
  failed.mutable_score()->set_status(v1::Score::SCORING_FAILED);
  failed.mutable_score()->clear_reward();
  v1::Trajectory broken = Episode(1, 3, 0);
  broken.set_outcome(v1::FAILED);
  broken.clear_spans();
  TrainBatch batch;
  std::vector<RefusedGroup> refused;
  ASSERT_TRUE(BuildTrainBatch(Options(), {Group(1, {Episode(1, 0, 1), unscored, failed, broken, Episode(1, 4, 0)})},
                              &batch, &refused)
                  .ok());
  ASSERT_EQ(batch.sequences.size(), 2u);
  EXPECT_EQ(batch.sequences[0].advantage, 0.5);
  EXPECT_EQ(batch.sequences[1].member, 4u);
  EXPECT_EQ(batch.unscored, 3);
}

TEST(TrainBatchTest, ATokenBeyondTheBoundIsAnErrorNamingIt) {
  TrainBatch batch;
  std::vector<RefusedGroup> refused;
  const absl::Status status =
      BuildTrainBatch(Options(), {Group(4, {Episode(4, 0, 1), Episode(4, 1, 0, /*version=*/7)})}, &batch, &refused);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("ticket 4 member 1"), HasSubstr("version 7"),
                                                   HasSubstr("step 10"), HasSubstr("bound is 2")));
}

TEST(TrainBatchTest, UnderMaskTokensBeyondTheBoundKeepTheirRewardButAreNotTrained) {
  TrainBatchOptions options = Options();
  options.breach_masks = true;
  v1::Trajectory mixed = Episode(4, 1, 0, /*version=*/8);
  // The first turn: one token of version 7 (lag 3), one of version 8 (lag 2).
  mixed.mutable_spans(1)->clear_versions();
  for (uint64_t version : {7, 8}) {
    v1::VersionRun* run = mixed.mutable_spans(1)->add_versions();
    run->mutable_weights()->set_lineage(1);
    run->mutable_weights()->set_version(version);
    run->set_count(1);
  }
  TrainBatch batch;
  std::vector<RefusedGroup> refused;
  ASSERT_TRUE(BuildTrainBatch(options, {Group(4, {Episode(4, 0, 1, 1), mixed})}, &batch, &refused).ok());
  EXPECT_THAT(batch.mask, ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(batch.lag, ElementsAre(9, 9, 9, 3, 2, 2));
  EXPECT_EQ(batch.sequences[1].advantage, -0.5);
  EXPECT_EQ(batch.masked_tokens, 4);
  EXPECT_EQ(batch.trained_tokens, 2);
  EXPECT_EQ(batch.updates[0].normaliser.sequences, 1);
  EXPECT_TRUE(CheckStalenessBound(batch, 2).ok());
  EXPECT_EQ(CheckStalenessBound(batch, 1).code(), absl::StatusCode::kInternal);
}

TEST(TrainBatchTest, AVersionOfTheFutureIsAnErrorAlsoUnderMask) {
  TrainBatchOptions options = Options();
  options.breach_masks = true;
  TrainBatch batch;
  std::vector<RefusedGroup> refused;
  EXPECT_EQ(BuildTrainBatch(options, {Group(4, {Episode(4, 0, 1, 11)})}, &batch, &refused).code(),
            absl::StatusCode::kInternal);
}

TEST(TrainBatchTest, AGroupThatStandsTwiceIsAnError) {
  TrainBatch batch;
  std::vector<RefusedGroup> refused;
  EXPECT_EQ(
      BuildTrainBatch(Options(), {Group(4, {Episode(4, 0, 1)}), Group(4, {Episode(4, 0, 1)})}, &batch, &refused).code(),
      absl::StatusCode::kInternal);
}

struct Damage {
  const char* what;
  std::function<void(v1::Trajectory*)> apply;
};

TEST(TrainBatchTest, EveryKindOfMalformedTrajectoryRefusesItsGroupOnly) {
  const std::vector<Damage> damages = {
      {"2 ids but 1 log-prob", [](v1::Trajectory* t) { t->mutable_spans(1)->mutable_logprobs()->RemoveLast(); }},
      {"2 ids but versions for 1", [](v1::Trajectory* t) { t->mutable_spans(1)->mutable_versions(0)->set_count(1); }},
      {"without lineage",
       [](v1::Trajectory* t) { t->mutable_spans(1)->mutable_versions(0)->mutable_weights()->Clear(); }},
      {"temperature 0", [](v1::Trajectory* t) { t->mutable_spans(1)->set_temperature(0); }},
      {"log-probability 0.5", [](v1::Trajectory* t) { t->mutable_spans(1)->set_logprobs(0, 0.5f); }},
      {"log-probability nan", [](v1::Trajectory* t) { t->mutable_spans(1)->set_logprobs(0, NAN); }},
      {"is not legal", [](v1::Trajectory* t) { t->mutable_spans(1)->set_ids(0, 9); }},
      {"strictly ascending", [](v1::Trajectory* t) { t->mutable_spans(1)->set_legal_ids(1, 7); }},
      {"outside the vocabulary", [](v1::Trajectory* t) { t->mutable_spans(0)->set_ids(1, 20); }},
      {"a given span", [](v1::Trajectory* t) { t->mutable_spans(0)->add_logprobs(-1); }},
      {"reward inf", [](v1::Trajectory* t) { t->mutable_score()->set_reward(INFINITY); }},
      {"no sampled token", [](v1::Trajectory* t) { t->mutable_spans()->DeleteSubrange(1, 4); }},
      {"first id is a sampled one", [](v1::Trajectory* t) { t->mutable_spans()->DeleteSubrange(0, 1); }},
      {"stands twice", [](v1::Trajectory* t) { t->mutable_key()->set_member(0); }},
      {"of ticket 8", [](v1::Trajectory* t) { t->mutable_key()->set_ticket(8); }},
  };
  for (const Damage& damage : damages) {
    v1::Trajectory damaged = Episode(5, 1, 0);
    damage.apply(&damaged);
    TrainBatch batch;
    std::vector<RefusedGroup> refused;
    ASSERT_TRUE(BuildTrainBatch(Options(), {Group(4, {Episode(4, 0, 1)}), Group(5, {Episode(5, 0, 1), damaged})},
                                &batch, &refused)
                    .ok());
    ASSERT_EQ(refused.size(), 1u) << damage.what;
    EXPECT_EQ(refused[0].ticket, 5u);
    EXPECT_EQ(refused[0].reason, "malformed_trajectory");
    EXPECT_THAT(refused[0].detail, HasSubstr(damage.what));
  }
}

TEST(TrainBatchTest, AZeroLogprobIsLegalAndALongEpisodeIsNot) {
  v1::Trajectory certain = Episode(4, 0, 1);
  certain.mutable_spans(1)->set_logprobs(0, 0.0f);
  TrainBatchOptions options = Options();
  TrainBatch batch;
  std::vector<RefusedGroup> refused;
  ASSERT_TRUE(BuildTrainBatch(options, {Group(4, {certain})}, &batch, &refused).ok());
  EXPECT_TRUE(refused.empty());
  options.max_positions = 5;
  ASSERT_TRUE(BuildTrainBatch(options, {Group(4, {certain})}, &batch, &refused).ok());
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_THAT(refused[0].detail, HasSubstr("5 positions"));
}

}  // namespace
}  // namespace leeway
