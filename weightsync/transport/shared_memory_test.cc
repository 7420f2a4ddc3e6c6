#include "weightsync/transport/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "base/failpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weightsync/transport/fake_receiver_transport.h"

namespace leeway {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

const auto kWanted = [] { return true; };

bool IsThere(const std::string& name) {
  const int fd = shm_open(name.c_str(), O_RDONLY, 0);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

std::unique_ptr<SharedMemorySegment> Segment(const std::string& content) {
  auto segment = SharedMemorySegment::Create("unit test", content.size());
  EXPECT_TRUE(segment.ok()) << segment.status();
  std::memcpy((*segment)->bytes().data(), content.data(), content.size());
  return *std::move(segment);
}

TransferRequest Request(const std::string& name, uint64_t total_bytes, uint64_t bucket_bytes) {
  TransferRequest request;
  request.shared_memory_name = name;
  request.total_bytes = total_bytes;
  request.bucket_bytes = bucket_bytes;
  return request;
}

absl::Status Receive(ReceiverTransport* transport, const TransferRequest& request, std::string* received) {
  received->assign(request.total_bytes, '?');
  auto reader = transport->Open(request);
  if (!reader.ok()) return reader.status();
  return ReadAllBuckets(reader->get(), request,
                        absl::MakeSpan(reinterpret_cast<std::byte*>(received->data()), received->size()), kWanted);
}

TEST(SharedMemoryTest, NamesCarryRunAndProcess) {
  const auto segment = Segment("x");
  EXPECT_THAT(segment->name(), MatchesRegex("/leeway-unit_test-[0-9]+-[0-9a-f]{16}"));
  EXPECT_THAT(segment->name(), HasSubstr(std::to_string(getpid())));
}

TEST(SharedMemoryTest, BytesArriveWhateverTheBucketSize) {
  std::mt19937 random(7);
  SharedMemoryTransport transport;
  for (int round = 0; round < 200; ++round) {
    std::string content(random() % 300, '\0');
    for (char& byte : content) byte = static_cast<char>(random());
    const auto segment = Segment(content);
    std::string received;
    const uint64_t bucket_bytes = 1 + random() % 350;
    ASSERT_TRUE(Receive(&transport, Request(segment->name(), content.size(), bucket_bytes), &received).ok());
    EXPECT_EQ(received, content);
  }
}

TEST(SharedMemoryTest, AMappedObjectOutlivesItsNameAndSeesNewBytes) {
  const auto segment = Segment("first");
  SharedMemoryTransport transport;
  std::string received;
  ASSERT_TRUE(Receive(&transport, Request(segment->name(), 5, 2), &received).ok());
  segment->Unlink();
  EXPECT_FALSE(IsThere(segment->name()));
  std::memcpy(segment->bytes().data(), "again", 5);
  ASSERT_TRUE(Receive(&transport, Request(segment->name(), 5, 2), &received).ok());
  EXPECT_EQ(received, "again");
}

TEST(SharedMemoryTest, TwoObjectsStayMappedTheOldestIsForgotten) {
  SharedMemoryTransport transport;
  std::vector<std::unique_ptr<SharedMemorySegment>> segments;
  std::string received;
  for (int i = 0; i < 3; ++i) {
    segments.push_back(Segment("bytes"));
    ASSERT_TRUE(Receive(&transport, Request(segments[i]->name(), 5, 5), &received).ok());
    segments[i]->Unlink();
  }
  EXPECT_TRUE(Receive(&transport, Request(segments[2]->name(), 5, 5), &received).ok());
  EXPECT_TRUE(Receive(&transport, Request(segments[1]->name(), 5, 5), &received).ok());
  const absl::Status gone = Receive(&transport, Request(segments[0]->name(), 5, 5), &received);
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("weights.transport = \"grpc\""));
}

TEST(SharedMemoryTest, BothSidesForgetTheSameNames) {
  std::vector<std::string> names;
  for (const char* name : {"a", "b", "a", "c"}) RememberSegment(name, &names);
  EXPECT_THAT(names, ElementsAre("a", "c"));
}

TEST(SharedMemoryTest, AnObjectThatIsTooSmallIsRefused) {
  const auto segment = Segment("short");
  SharedMemoryTransport transport;
  std::string received;
  EXPECT_EQ(Receive(&transport, Request(segment->name(), 6, 6), &received).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SharedMemoryTest, ADestroyedSegmentLeavesNoName) {
  auto segment = Segment("x");
  const std::string name = segment->name();
  EXPECT_TRUE(IsThere(name));
  segment.reset();
  EXPECT_FALSE(IsThere(name));
}

TEST(SharedMemoryTest, MoreThanThereIsAnErrorWithTheRemedy) {
  const auto segment = SharedMemorySegment::Create("test", uint64_t{1} << 50);
  EXPECT_FALSE(segment.ok());
  EXPECT_THAT(std::string(segment.status().message()), HasSubstr("weights.transport = \"grpc\""));
}

// A child process makes a segment and dies at once, as by SIGKILL.
TEST(SharedMemoryTest, ObjectsOfDeadProcessesAreRemovedLivingOnesAreNot) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto segment = SharedMemorySegment::Create("dead", 100);
    const std::string& name = (*segment)->name();
    static_cast<void>(!write(pipe_ends[1], name.data(), name.size()));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  char buffer[200];
  const ssize_t length = read(pipe_ends[0], buffer, sizeof(buffer));
  ASSERT_GT(length, 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  const std::string stale(buffer, length);
  EXPECT_TRUE(IsThere(stale));

  const auto living = Segment("x");
  const std::vector<std::string> removed = RemoveStaleSegments();
  EXPECT_THAT(removed, Contains(stale));
  EXPECT_THAT(removed, Not(Contains(living->name())));
  EXPECT_FALSE(IsThere(stale));
  EXPECT_TRUE(IsThere(living->name()));
}

// ---- reading buckets, over the transport of the tests ---------------------------------------------------------------

TEST(ReadAllBucketsTest, ReadsEveryByteOnceInBucketsOfTheSizeAsked) {
  FakeReceiverTransport transport(std::string("0123456789"));
  std::string received;
  ASSERT_TRUE(Receive(&transport, Request("", 10, 4), &received).ok());
  EXPECT_EQ(received, "0123456789");
  EXPECT_THAT(transport.read_sizes(), ElementsAre(4, 4, 2));
  ASSERT_TRUE(Receive(&transport, Request("", 0, 4), &received).ok());
  EXPECT_EQ(transport.buckets(), 3u);
}

TEST(ReadAllBucketsTest, StopsWhenTheLoadIsNoLongerWantedOrTooLate) {
  FakeReceiverTransport transport(std::string("0123456789"));
  TransferRequest request = Request("", 10, 1);
  auto reader = *transport.Open(request);
  std::string received(10, '?');
  const auto span = absl::MakeSpan(reinterpret_cast<std::byte*>(received.data()), received.size());
  int left = 3;
  EXPECT_EQ(ReadAllBuckets(reader.get(), request, span, [&] { return left-- > 0; }).code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(received, "012???????");
  request.deadline = Deadline::After(absl::ZeroDuration());
  EXPECT_EQ(ReadAllBuckets(reader.get(), request, span, kWanted).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ReadAllBucketsTest, TheFailpointDamagesOneBitOfOneBucketAndReportsNothing) {
  FakeReceiverTransport transport(std::string("0123456789"));
  ASSERT_TRUE(FailpointArm("weights_receiver_corrupted_bucket=error@2").ok());
  std::string received;
  EXPECT_TRUE(Receive(&transport, Request("", 10, 4), &received).ok());
  FailpointDisarmAll();
  EXPECT_EQ(received.substr(0, 6), "012345");
  EXPECT_EQ(received[6], '6' ^ 0x10);
  EXPECT_EQ(received.substr(7), "789");
}

TEST(ReadAllBucketsTest, InjectedFaultsAreOneBitOrAnErrorOrSilence) {
  FakeReceiverTransport transport(std::string("0123456789"));
  transport.SetFaults({.corrupt = {1}, .fail = {5}, .stall = {}});
  std::string received;
  ASSERT_TRUE(Receive(&transport, Request("", 10, 4), &received).ok());
  EXPECT_EQ(received.substr(0, 7), "0123456");
  EXPECT_EQ(received[7], '7' ^ 0x10);
  EXPECT_EQ(received.substr(8), "89");
  EXPECT_EQ(Receive(&transport, Request("", 10, 4), &received).code(), absl::StatusCode::kUnavailable);

  auto reader = *transport.Open(Request("", 10, 4));
  reader->Cancel();
  EXPECT_EQ(reader->Read(0, {}).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace leeway
