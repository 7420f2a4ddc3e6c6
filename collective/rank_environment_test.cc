#include "collective/rank_environment.h"

#include <stdlib.h>

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using Variables = std::map<std::string, std::string>;

struct Good {
  const char* name;
  Variables variables;
  RankEnvironment expected;
};

class RankEnvironmentTest : public ::testing::TestWithParam<Good> {};

TEST_P(RankEnvironmentTest, IsFound) {
  const auto found = FindRankEnvironment(GetParam().variables);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->launcher, GetParam().expected.launcher);
  EXPECT_EQ(found->rank, GetParam().expected.rank);
  EXPECT_EQ(found->size, GetParam().expected.size);
  EXPECT_EQ(found->local_rank, GetParam().expected.local_rank);
  EXPECT_EQ(found->address, GetParam().expected.address);
  EXPECT_EQ(found->port, GetParam().expected.port);
  EXPECT_EQ(found->attempt, GetParam().expected.attempt);
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, RankEnvironmentTest,
    ::testing::Values(
        Good{"Alone", {{"PATH", "/bin"}, {"MASTER_ADDR", "a"}}, {}},
        Good{"Torchrun",
             {{"RANK", "5"},
              {"WORLD_SIZE", "8"},
              {"LOCAL_RANK", "1"},
              {"LOCAL_WORLD_SIZE", "4"},
              {"MASTER_ADDR", "node0"},
              {"MASTER_PORT", "29500"},
              {"TORCHELASTIC_RUN_ID", "run7"},
              {"TORCHELASTIC_RESTART_COUNT", "2"}},
             {"torchrun", 5, 8, 1, "node0", 29500, "run7.2"}},
        // Kubernetes: one process a pod.
        Good{"WithoutLocalRank",
             {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}},
             {"torchrun", 1, 2, 0, "job-master-0", 23456, ""}},
        // srun torchrun …: one task a node, with several ranks each.
        Good{"TorchrunUnderSlurm",
             {{"RANK", "3"},
              {"WORLD_SIZE", "4"},
              {"LOCAL_RANK", "1"},
              {"MASTER_ADDR", "n1"},
              {"MASTER_PORT", "1"},
              {"SLURM_PROCID", "1"},
              {"SLURM_STEP_NUM_TASKS", "2"},
              {"SLURM_LOCALID", "0"},
              {"SLURM_JOB_ID", "77"}},
             {"torchrun", 3, 4, 1, "n1", 1, ""}},
        Good{"OpenMpi",
             {{"OMPI_COMM_WORLD_RANK", "2"},
              {"OMPI_COMM_WORLD_SIZE", "3"},
              {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
              {"PMIX_NAMESPACE", "prterun-n1-77@1"},
              {"PMIX_RANK", "2"}},
             {"MPI", 2, 3, 2, "", 0, "prterun-n1-77@1"}},
        Good{"Mpich",
             {{"PMI_RANK", "0"},
              {"PMI_SIZE", "2"},
              {"MPI_LOCALRANKID", "0"},
              {"MASTER_ADDR", "h"},
              {"MASTER_PORT", "9"}},
             {"MPI", 0, 2, 0, "h", 9, ""}},
        // mpirun in a batch script: the script's own rank is no rank.
        Good{"MpiUnderSlurm",
             {{"OMPI_COMM_WORLD_RANK", "1"},
              {"OMPI_COMM_WORLD_SIZE", "2"},
              {"SLURM_PROCID", "0"},
              {"SLURM_NTASKS", "2"},
              {"SLURM_JOB_ID", "5"}},
             {"MPI", 1, 2, 0, "", 0, ""}},
        Good{"Slurm",
             {{"SLURM_PROCID", "9"},
              {"SLURM_LOCALID", "1"},
              {"SLURM_NTASKS", "16"},
              {"SLURM_STEP_NUM_TASKS", "16"},
              {"SLURM_STEP_NODELIST", "gpu[007-009,12]"},
              {"SLURM_JOB_NODELIST", "gpu[001-020]"},
              {"SLURM_JOB_ID", "123456"},
              {"SLURM_STEP_ID", "0"}},
             {"Slurm", 9, 16, 1, "gpu007", 23456, "123456.0"}},
        Good{"SlurmRequeued",
             {{"SLURM_PROCID", "0"},
              {"SLURM_STEP_NUM_TASKS", "1"},
              {"SLURM_JOB_NODELIST", "a1"},
              {"SLURM_JOB_ID", "7"},
              {"SLURM_STEP_ID", "2"},
              {"SLURM_RESTART_COUNT", "3"},
              {"MASTER_ADDR", "b"},
              {"MASTER_PORT", "10"}},
             {"Slurm", 0, 1, 0, "b", 10, "7.2.3"}},
        // A batch script that starts leeway itself, without srun.
        Good{"SlurmBatchScript",
             {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}},
             {}},
        Good{"EmptyIsAbsent", {{"RANK", ""}, {"WORLD_SIZE", ""}}, {}}),
    [](const auto& info) { return std::string(info.param.name); });

struct Bad {
  const char* name;
  Variables variables;
  const char* message;
};

class RankEnvironmentErrorTest : public ::testing::TestWithParam<Bad> {};

TEST_P(RankEnvironmentErrorTest, IsNamed) {
  EXPECT_EQ(FindRankEnvironment(GetParam().variables).status(), absl::InvalidArgumentError(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Faults, RankEnvironmentErrorTest,
    ::testing::Values(
        Bad{"NoSize",
            {{"RANK", "3"}},
            "the environment looks like torchrun's, but WORLD_SIZE is missing beside RANK=3"},
        Bad{"NoRank",
            {{"WORLD_SIZE", "2"}},
            "the environment looks like torchrun's, but RANK is missing beside WORLD_SIZE=2"},
        Bad{"NoMpiSize",
            {{"PMI_RANK", "3"}},
            "the environment looks like MPI's, but PMI_SIZE is missing beside PMI_RANK=3"},
        Bad{"NoSlurmRank",
            {{"SLURM_STEP_NUM_TASKS", "3"}},
            "the environment looks like Slurm's, but SLURM_PROCID is missing beside SLURM_STEP_NUM_TASKS=3"},
        Bad{"RankTooLarge",
            {{"RANK", "2"}, {"WORLD_SIZE", "2"}},
            "the environment looks like torchrun's, but RANK=2 is not below WORLD_SIZE=2"},
        Bad{"NoRanks",
            {{"RANK", "0"}, {"WORLD_SIZE", "0"}},
            "the environment looks like torchrun's, but WORLD_SIZE=0: there is at least one rank"},
        Bad{"LocalRankTooLarge",
            {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "4"}},
            "the environment looks like torchrun's, but LOCAL_RANK=4 is not below WORLD_SIZE=4"},
        Bad{"NoPort",
            {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
            "the environment looks like torchrun's, but MASTER_PORT is missing beside MASTER_ADDR=a"},
        Bad{"NoAddress",
            {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}},
            "the environment looks like torchrun's, but MASTER_ADDR is missing beside MASTER_PORT=1"},
        Bad{"NotAPort",
            {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}},
            "the environment looks like torchrun's, but MASTER_PORT=70000 is not a port (1 to 65535)"},
        Bad{"AllAtOnce",
            {{"RANK", "x"}, {"WORLD_SIZE", "-1"}, {"LOCAL_RANK", "1.5"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "p"}},
            "the environment looks like torchrun's, but RANK=x is not a number from 0; WORLD_SIZE=-1 is not a number "
            "from "
            "0; LOCAL_RANK=1.5 is not a number from 0; MASTER_PORT=p is not a number from 0"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(FirstSlurmHostTest, ExpandsTheFirstEntryOnly) {
  EXPECT_EQ(FirstSlurmHost(""), "");
  EXPECT_EQ(FirstSlurmHost("n1"), "n1");
  EXPECT_EQ(FirstSlurmHost("n1,n2"), "n1");
  EXPECT_EQ(FirstSlurmHost("n[3-5]"), "n3");
  EXPECT_EQ(FirstSlurmHost("n[03]"), "n03");
  EXPECT_EQ(FirstSlurmHost("n[07,09-11],m2"), "n07");
  EXPECT_EQ(FirstSlurmHost("rack-a-[1-2]"), "rack-a-1");
}

TEST(ProcessVariablesTest, AreThoseOfThisProcess) {
  ASSERT_EQ(setenv("LEEWAY_RANK_ENVIRONMENT_TEST", "a=b", 1), 0);
  EXPECT_EQ(ProcessVariables()["LEEWAY_RANK_ENVIRONMENT_TEST"], "a=b");
}

}  // namespace
}  // namespace leeway
