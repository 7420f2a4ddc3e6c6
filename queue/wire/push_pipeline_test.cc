#include "queue/wire/push_pipeline.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rpc/chunks.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::WorkerIdentity Identity() {
  v1::WorkerIdentity identity;
  identity.set_producer_id(4);
  identity.set_epoch(2);
  return identity;
}

// Fills `request` with what the pipeline's next message says.
bool NextRequest(PushPipeline* pipeline, MonotonicTime now, v1::PushRequest* request) {
  PayloadMessage message;
  if (!pipeline->NextMessage(now, &message)) return false;
  EXPECT_TRUE(request->ParseFromString(message.ToString()));
  return true;
}

class PushPipelineTest : public ::testing::Test {
 protected:
  // Each payload is named by its answers: "1:ACCEPTED" or "1!ABORTED".
  void Add(const std::string& payload) {
    const int number = ++added_;
    pipeline_.Add(payload, [this, number](absl::StatusOr<v1::PushAnswer> answer) {
      done_.push_back(answer.ok() ? absl::StrCat(number, ":", v1::PushResult_Name(answer->result()))
                                  : absl::StrCat(number, "!", absl::StatusCodeToString(answer.status().code())));
    });
  }
  // All messages that can go out now, as "sequence=bytes" per chunk ('.' at the end of a trajectory), messages apart by
  // '|'.
  std::string Send() {
    std::string text;
    v1::PushRequest request;
    while (NextRequest(&pipeline_, now_, &request)) {
      EXPECT_EQ(request.identity().producer_id(), 4u);
      if (!text.empty()) text += "|";
      for (const v1::PushChunk& chunk : request.chunks()) {
        absl::StrAppend(&text, chunk.sequence(), "=", chunk.data(), chunk.last() ? "." : "");
      }
    }
    return text;
  }
  absl::Status Answer(uint64_t sequence, v1::PushResult result, uint64_t retry_after_ms = 0) {
    v1::PushResponse response;
    v1::PushAnswer* answer = response.add_answers();
    answer->set_sequence(sequence);
    answer->set_result(result);
    answer->set_retry_after_ms(retry_after_ms);
    PushPipeline::Callbacks callbacks;
    const absl::Status status = pipeline_.OnAnswers(&response, now_, &callbacks);
    for (PushPipeline::Answered& answered : callbacks) answered.Tell();
    return status;
  }

  PushPipeline pipeline_{Identity(), /*max_chunk_bytes=*/10};
  MonotonicTime now_{absl::Seconds(100)};
  int added_ = 0;
  std::vector<std::string> done_;
};

TEST_F(PushPipelineTest, SmallOnesShareAMessageLargeOnesTakeSeveral) {
  EXPECT_EQ(Send(), "");
  EXPECT_EQ(pipeline_.NextSend(now_), MonotonicTime::InfiniteFuture());
  Add("aaa");
  Add("bbbb");
  Add("cccc");  // 11 bytes with the others: would be cut for one byte
  Add(std::string(25, 'd'));
  Add("e");
  EXPECT_EQ(pipeline_.unsent_bytes(), 37u);
  EXPECT_LE(pipeline_.NextSend(now_), now_);
  EXPECT_EQ(Send(), "1=aaa.2=bbbb.|3=cccc.|4=dddddddddd|4=dddddddddd|4=ddddd.5=e.");
  EXPECT_EQ(pipeline_.unsent_bytes(), 0u);
  EXPECT_EQ(pipeline_.unanswered(), 5);
}

TEST_F(PushPipelineTest, AnswersReachTheirPushesInOrder) {
  Add("a");
  Add("b");
  Send();
  EXPECT_TRUE(Answer(1, v1::ACCEPTED).ok());
  EXPECT_TRUE(Answer(2, v1::DUPLICATE).ok());
  EXPECT_THAT(done_, ElementsAre("1:ACCEPTED", "2:DUPLICATE"));
  EXPECT_EQ(pipeline_.unanswered(), 0);
  Add("c");
  EXPECT_EQ(Send(), "3=c.");
}

TEST_F(PushPipelineTest, AnswersToWhatWasNotAskedAreErrors) {
  EXPECT_TRUE(absl::IsInternal(Answer(1, v1::ACCEPTED)));
  Add("a");
  EXPECT_TRUE(absl::IsInternal(Answer(1, v1::ACCEPTED)));  // not sent yet
  Send();
  const absl::Status wrong = Answer(2, v1::ACCEPTED);
  EXPECT_TRUE(absl::IsInternal(wrong));
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("answered push 2 with ACCEPTED while push 1 of 1 sent"));
  EXPECT_TRUE(done_.empty());
}

TEST_F(PushPipelineTest, FullHoldsEverythingBackAndSendsItAgainInOrder) {
  for (const char* payload : {"a", "b", "c"}) Add(payload);
  Send();
  EXPECT_TRUE(Answer(1, v1::ACCEPTED).ok());
  EXPECT_TRUE(Answer(2, v1::FULL, 50).ok());
  Add("d");
  // The answer to 3 is still on its way: it is FULL too, and until then nothing may be sent.
  EXPECT_EQ(Send(), "");
  EXPECT_TRUE(Answer(3, v1::FULL, 50).ok());
  EXPECT_EQ(Send(), "");
  EXPECT_EQ(pipeline_.NextSend(now_), now_ + absl::Milliseconds(50));
  now_ = now_ + absl::Milliseconds(50);
  EXPECT_EQ(Send(), "2=b.3=c.4=d.");
  for (uint64_t sequence : {2, 3, 4}) EXPECT_TRUE(Answer(sequence, v1::ACCEPTED).ok());
  EXPECT_THAT(done_, ElementsAre("1:ACCEPTED", "2:ACCEPTED", "3:ACCEPTED", "4:ACCEPTED"));
}

TEST_F(PushPipelineTest, AfterFullOnlyFullIsBelieved) {
  for (const char* payload : {"a", "b"}) Add(payload);
  Send();
  EXPECT_TRUE(Answer(1, v1::FULL).ok());
  EXPECT_TRUE(absl::IsInternal(Answer(2, v1::ACCEPTED)));
}

TEST_F(PushPipelineTest, AHalfSentOneIsFinishedWhenFullComes) {
  Add("a");
  Add(std::string(15, 'b'));
  v1::PushRequest request;
  ASSERT_TRUE(NextRequest(&pipeline_, now_, &request));  // a
  ASSERT_TRUE(NextRequest(&pipeline_, now_, &request));  // ten of b
  EXPECT_TRUE(Answer(1, v1::FULL, 50).ok());
  EXPECT_LE(pipeline_.NextSend(now_), now_);
  EXPECT_EQ(Send(), "2=bbbbb.");
  EXPECT_TRUE(Answer(2, v1::FULL, 50).ok());
  EXPECT_EQ(Send(), "");
  now_ = now_ + absl::Milliseconds(50);
  EXPECT_EQ(Send(), "1=a.|2=bbbbbbbbbb|2=bbbbb.");
}

TEST_F(PushPipelineTest, ABreakSendsTheUnansweredAgain) {
  for (const char* payload : {"a", "b", "c"}) Add(payload);
  Send();
  EXPECT_TRUE(Answer(1, v1::ACCEPTED).ok());
  Add(std::string(15, 'd'));
  v1::PushRequest request;
  ASSERT_TRUE(NextRequest(&pipeline_, now_, &request));
  pipeline_.OnDisconnected();
  EXPECT_EQ(pipeline_.unsent_bytes(), 17u);
  EXPECT_EQ(Send(), "2=b.3=c.|4=dddddddddd|4=ddddd.");
}

TEST_F(PushPipelineTest, FailAllAnswersEverythingOnce) {
  for (const char* payload : {"a", "b"}) Add(payload);
  Send();
  Answer(1, v1::ACCEPTED).IgnoreError();
  PushPipeline::Callbacks callbacks;
  pipeline_.FailAll(absl::AbortedError("fenced"), &callbacks);
  pipeline_.FailAll(absl::AbortedError("fenced"), &callbacks);
  for (PushPipeline::Answered& answered : callbacks) answered.Tell();
  EXPECT_THAT(done_, ElementsAre("1:ACCEPTED", "2!ABORTED"));
  EXPECT_EQ(pipeline_.unsent_bytes(), 0u);
}

TEST_F(PushPipelineTest, NoMoreIsUnansweredThanTheCreditsAllow) {
  pipeline_.~PushPipeline();
  new (&pipeline_) PushPipeline(Identity(), /*max_chunk_bytes=*/10, {.pushes = 3, .bytes = 8});
  Add("aa");
  Add("bb");
  EXPECT_FALSE(pipeline_.fills_message());
  Add("cc");
  EXPECT_TRUE(pipeline_.fills_message());  // the credits are used up by what is there
  Add("dd");
  Add("eeeeeee");
  EXPECT_EQ(Send(), "1=aa.2=bb.3=cc.");
  EXPECT_EQ(pipeline_.NextSend(now_), MonotonicTime::InfiniteFuture());
  EXPECT_TRUE(Answer(1, v1::ACCEPTED).ok());
  EXPECT_LE(pipeline_.NextSend(now_), now_);
  EXPECT_EQ(Send(), "4=dd.");
  for (uint64_t sequence : {2, 3}) EXPECT_TRUE(Answer(sequence, v1::ACCEPTED).ok());
  // Two bytes are open, seven more would be too many.
  EXPECT_EQ(Send(), "");
  Add(std::string(25, 'f'));
  EXPECT_TRUE(Answer(4, v1::ACCEPTED).ok());
  EXPECT_EQ(Send(), "5=eeeeeee.");
  EXPECT_TRUE(Answer(5, v1::ACCEPTED).ok());
  // One always may, however large.
  EXPECT_EQ(Send(), "6=ffffffffff|6=ffffffffff|6=fffff.");
  // After a break all credits are back.
  pipeline_.OnDisconnected();
  EXPECT_EQ(Send(), "6=ffffffffff|6=ffffffffff|6=fffff.");
}

TEST_F(PushPipelineTest, LargePayloadsArePointedAt) {
  pipeline_.~PushPipeline();
  new (&pipeline_) PushPipeline(Identity(), /*max_chunk_bytes=*/1 << 20);
  const std::string large(100'000, 'x');
  pipeline_.Add(large, [](absl::StatusOr<v1::PushAnswer>) {});
  pipeline_.Add("small", [](absl::StatusOr<v1::PushAnswer>) {});
  PayloadMessage message;
  ASSERT_TRUE(pipeline_.NextMessage(now_, &message));
  ASSERT_EQ(message.pieces().size(), 3u);
  EXPECT_TRUE(message.pieces()[1].bytes() == large);
  // Also when it was answered meanwhile.
  PushPipeline::Callbacks callbacks;
  pipeline_.FailAll(absl::AbortedError("fenced"), &callbacks);
  EXPECT_TRUE(message.pieces()[1].bytes() == large);
}

// A queue that is now and then full, behind a connection that now and then breaks: every push is consumed exactly once,
// in order, with its own bytes.
TEST_F(PushPipelineTest, NothingIsLostDoubledOrReordered) {
  RandomStream random({.seed = 11, .purpose = RandomPurpose::kFault});
  std::vector<std::string> payloads, consumed;
  uint64_t full_from = 0;
  std::deque<v1::PushAnswer> on_the_way;
  ChunkAssembler assembler(1000, 10);
  for (int round = 0; round < 20'000 || pipeline_.unanswered() > 0; ++round) {
    ASSERT_LT(round, 200'000);
    now_ = now_ + absl::Milliseconds(1);
    const uint64_t action = random.NextBelow(100);
    if (action < 30 && round < 20'000) {
      payloads.push_back(absl::StrCat(payloads.size(), std::string(random.NextBelow(30), 'x')));
      Add(payloads.back());
    } else if (action < 70) {
      v1::PushRequest request;
      if (!NextRequest(&pipeline_, now_, &request)) continue;
      for (v1::PushChunk& chunk : *request.mutable_chunks()) {
        const absl::StatusOr<bool> whole =
            assembler.Add(chunk.sequence(), chunk.total_bytes(), chunk.data(), chunk.last());
        ASSERT_TRUE(whole.ok()) << whole.status();
        if (!*whole) continue;
        const std::string payload = assembler.Take(chunk.mutable_data());
        v1::PushAnswer answer;
        answer.set_sequence(chunk.sequence());
        answer.set_result(v1::ACCEPTED);
        if (full_from != 0 && chunk.sequence() > full_from) {
          answer.set_result(v1::FULL);
        } else if (chunk.sequence() == consumed.size() + 1 && random.NextBelow(10) == 0) {
          full_from = chunk.sequence();
          answer.set_result(v1::FULL);
        } else {
          full_from = 0;
          // A sequence number that was consumed before is answered again, not consumed again.
          ASSERT_LE(chunk.sequence(), consumed.size() + 1) << "a gap";
          if (chunk.sequence() == consumed.size() + 1) consumed.push_back(payload);
        }
        answer.set_retry_after_ms(answer.result() == v1::FULL ? random.NextBelow(5) : 0);
        on_the_way.push_back(answer);
      }
    } else if (action < 99) {
      if (on_the_way.empty()) continue;
      const v1::PushAnswer answer = on_the_way.front();
      on_the_way.pop_front();
      const absl::Status status = Answer(answer.sequence(), answer.result(), answer.retry_after_ms());
      ASSERT_TRUE(status.ok()) << status;
    } else {
      on_the_way.clear();
      full_from = 0;
      assembler.~ChunkAssembler();
      new (&assembler) ChunkAssembler(1000, 10);
      pipeline_.OnDisconnected();
    }
  }
  EXPECT_GT(payloads.size(), 4000u);
  EXPECT_EQ(consumed, payloads);
  EXPECT_EQ(done_.size(), payloads.size());
  for (size_t i = 0; i < done_.size(); ++i) ASSERT_EQ(done_[i], absl::StrCat(i + 1, ":ACCEPTED"));
}

}  // namespace
}  // namespace leeway
