#include "trainer/parallel/mesh.h"

#include <string>

#include "base/status_macros.h"
#include "collective/in_process/run_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

ModelShape Shape() {
  return {.vocabulary = 11,
          .hidden = 8,
          .layers = 1,
          .heads = 4,
          .key_value_heads = 2,
          .head_dim = 2,
          .intermediate = 12,
          .max_positions = 8};
}

// The sum of the members' world ranks + 1 in base 10 positions tells who is in a group.
absl::StatusOr<int64_t> Members(Communicator* group, int world_rank) {
  int64_t members = 1;
  for (int i = 0; i < world_rank; ++i) members *= 10;
  LEEWAY_RETURN_IF_ERROR(group->AllReduce(ReduceOp::kSum, DType::kI64, &members, 1));
  return members;
}

TEST(MeshTest, GroupsOfTwoByTwo) {
  const absl::Status status = RunRanksToStatus(4, absl::Seconds(20), [](int rank, Communicator* world) -> absl::Status {
    LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Mesh> mesh, Mesh::Create({.data = 2, .tensor = 2}, world));
    EXPECT_EQ(mesh->data_rank(), rank / 2);
    EXPECT_EQ(mesh->tensor_rank(), rank % 2);
    EXPECT_EQ(mesh->tensor()->rank(), rank % 2);
    EXPECT_EQ(mesh->data()->rank(), rank / 2);
    EXPECT_EQ(mesh->data_gather()->rank(), rank / 2);
    EXPECT_EQ(mesh->tensor()->name(), "tensor_parallel");
    LEEWAY_ASSIGN_OR_RETURN(const int64_t tensor, Members(mesh->tensor(), rank));
    EXPECT_EQ(tensor, rank < 2 ? 11 : 1100);
    LEEWAY_ASSIGN_OR_RETURN(const int64_t data, Members(mesh->data(), rank));
    EXPECT_EQ(data, rank % 2 == 0 ? 101 : 1010);
    LEEWAY_ASSIGN_OR_RETURN(const int64_t gather, Members(mesh->data_gather(), rank));
    EXPECT_EQ(gather, data);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(MeshTest, SizesThatDoNotMultiplyToTheWorldAreRefused) {
  const absl::Status status = RunRanksToStatus(3, absl::Seconds(20), [](int rank, Communicator* world) -> absl::Status {
    return Mesh::Create({.data = 2, .tensor = 2}, world).status();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("2 (data) x 2 (tensor) ranks over a world of 3"));
}

TEST(MeshProblemsTest, NameKeyAndRemedy) {
  EXPECT_THAT(MeshProblems({.data = 2, .tensor = 2}, 4, Shape()), SizeIs(0));
  EXPECT_THAT(MeshProblems({.data = 1, .tensor = 1}, 1, Shape()), SizeIs(0));
  const std::vector<ConfigProblem> heads = MeshProblems({.data = 1, .tensor = 4}, 4, Shape());
  ASSERT_THAT(heads, SizeIs(1));
  EXPECT_EQ(heads[0].key, "trainer.tensor_parallel");
  EXPECT_THAT(heads[0].message, HasSubstr("model.key_value_heads = 2"));
  const std::vector<ConfigProblem> odd = MeshProblems({.data = 1, .tensor = 2}, 3, Shape());
  ASSERT_THAT(odd, SizeIs(1));
  EXPECT_EQ(odd[0].key, "trainer.ranks");
  EXPECT_THAT(odd[0].message, HasSubstr("use 2 or 4"));
  EXPECT_THAT(MeshProblems({.data = 3, .tensor = 1}, 2, Shape()), SizeIs(1));
  EXPECT_THAT(MeshProblems({.data = 0, .tensor = 1}, 0, Shape()), SizeIs(1));
}

}  // namespace
}  // namespace leeway
