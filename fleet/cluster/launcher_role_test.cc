// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/launcher_role.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/role_fixtures.h"

namespace fleet::cluster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

TEST(Torchrun, GivesNumbersAndAPlaceToMeet) {
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromTorchrun(kTorchrun));
  EXPECT_TRUE(role.is_worker());
  EXPECT_EQ(role.index, 5);
  EXPECT_EQ(role.worker_num, 8);
  EXPECT_EQ(role.node_num, 2);
  EXPECT_THAT(role.local_rank, Optional(1));
  EXPECT_THAT(role.local_size, Optional(4));
  EXPECT_THAT(role.master, Optional(Endpoint{"node0", 29500}));
  EXPECT_THAT(role.worker_endpoints, IsEmpty());
  EXPECT_EQ(role.current_endpoint, std::nullopt);
  EXPECT_TRUE(role.is_collective);
  EXPECT_FALSE(role.non_distributed);
  EXPECT_EQ(role.source, RoleSource::kTorchrun);
}

TEST(Torchrun, NodesFollowFromRanksPerNode) {
  ASSERT_OK_AND_ASSIGN(
      Role role, RoleFromTorchrun(Without(kTorchrun, "GROUP_WORLD_SIZE")));
  EXPECT_EQ(role.node_num, 2);
}

TEST(Torchrun, RanksAndSizesByHandAreEnough) {
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromTorchrun({{"RANK", "1"},
                                                    {"WORLD_SIZE", "2"},
                                                    {"MASTER_ADDR", "::1"},
                                                    {"MASTER_PORT", "1"}}));
  EXPECT_EQ(role.node_num, 0);
  EXPECT_EQ(role.local_rank, std::nullopt);
  EXPECT_THAT(role.master, Optional(Endpoint{"::1", 1}));
}

TEST(Torchrun, OneRankNeedsNoPlaceToMeet) {
  ASSERT_OK_AND_ASSIGN(Role role,
                       RoleFromTorchrun({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_EQ(role.master, std::nullopt);
  EXPECT_FALSE(role.non_distributed);
}

TEST(Torchrun, MissingVariablesAreNamed) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_THAT(RoleFromTorchrun(Without(kTorchrun, name)), CanNotFind(name));
  }
  EXPECT_THAT(RoleFromTorchrun({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              CanNotFind("MASTER_ADDR"));
}

TEST(Torchrun, NumbersThatDoNotFitAreShown) {
  EXPECT_THAT(RoleFromTorchrun(With(kTorchrun, "RANK", "8")),
              StatusIs(kInvalid, HasSubstr("RANK=8 and WORLD_SIZE=8")));
  EXPECT_THAT(RoleFromTorchrun(With(kTorchrun, "LOCAL_RANK", "4")),
              StatusIs(kInvalid, HasSubstr("LOCAL_RANK=4")));
  EXPECT_THAT(RoleFromTorchrun(With(kTorchrun, "LOCAL_WORLD_SIZE", "9")),
              StatusIs(kInvalid, HasSubstr("LOCAL_WORLD_SIZE=9")));
  EXPECT_THAT(RoleFromTorchrun(With(kTorchrun, "LOCAL_WORLD_SIZE", "0")),
              StatusIs(kInvalid, HasSubstr("LOCAL_WORLD_SIZE=0")));
  EXPECT_THAT(RoleFromTorchrun(With(kTorchrun, "GROUP_WORLD_SIZE", "9")),
              StatusIs(kInvalid, HasSubstr("GROUP_WORLD_SIZE=9")));
  EXPECT_THAT(RoleFromTorchrun(With(kTorchrun, "MASTER_PORT", "0")),
              StatusIs(kInvalid, HasSubstr("MASTER_PORT: 'node0:0'")));
}

TEST(OpenMpi, GivesRanksInTheWorldAndOnTheHost) {
  const Environment env = {{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromOpenMpi(env));
  EXPECT_EQ(role.index, 3);
  EXPECT_EQ(role.worker_num, 4);
  EXPECT_EQ(role.node_num, 2);
  EXPECT_THAT(role.local_rank, Optional(1));
  EXPECT_THAT(role.local_size, Optional(2));
  EXPECT_EQ(role.master, std::nullopt);
  EXPECT_EQ(role.source, RoleSource::kOpenMpi);
  EXPECT_THAT(RoleFromOpenMpi(Without(env, "OMPI_COMM_WORLD_SIZE")),
              CanNotFind("OMPI_COMM_WORLD_SIZE"));
  EXPECT_THAT(RoleFromOpenMpi(With(env, "OMPI_COMM_WORLD_LOCAL_SIZE", "5")),
              StatusIs(kInvalid, HasSubstr("OMPI_COMM_WORLD_LOCAL_SIZE=5")));
}

TEST(OpenMpi, HostsWithDifferentNumbersOfRanksAreNotCounted) {
  ASSERT_OK_AND_ASSIGN(Role role,
                       RoleFromOpenMpi({{"OMPI_COMM_WORLD_RANK", "0"},
                                        {"OMPI_COMM_WORLD_SIZE", "3"},
                                        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  EXPECT_EQ(role.node_num, 0);
}

TEST(Pmi, GivesRankAndSize) {
  const Environment env = {
      {"PMI_RANK", "1"},           {"PMI_SIZE", "2"},
      {"MPI_LOCALRANKID", "1"},    {"MPI_LOCALNRANKS", "2"},
      {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "7000"}};
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromPmi(env));
  EXPECT_EQ(role.index, 1);
  EXPECT_EQ(role.worker_num, 2);
  EXPECT_EQ(role.node_num, 1);
  EXPECT_THAT(role.local_rank, Optional(1));
  EXPECT_THAT(role.master, Optional(Endpoint{"10.0.0.1", 7000}));
  EXPECT_EQ(role.source, RoleSource::kPmi);
  EXPECT_THAT(RoleFromPmi(Without(env, "PMI_SIZE")), CanNotFind("PMI_SIZE"));
  EXPECT_THAT(RoleFromPmi(Without(env, "MASTER_PORT")),
              CanNotFind("MASTER_PORT"));
}

TEST(Slurm, GivesRanksAndTheNamesOfNodes) {
  ASSERT_TRUE(IsSlurm(kSlurm));
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromSlurm(kSlurm));
  EXPECT_EQ(role.index, 4);
  EXPECT_EQ(role.worker_num, 5);
  EXPECT_EQ(role.node_num, 3);
  EXPECT_THAT(role.node_names, ElementsAre("gpu08", "gpu09", "gpu10"));
  EXPECT_THAT(role.local_rank, Optional(0));
  EXPECT_THAT(role.local_size, Optional(1));
  EXPECT_EQ(role.source, RoleSource::kSlurm);
}

TEST(Slurm, TheStepGoesBeforeTheAllocation) {
  Environment env = kSlurm;
  env["SLURM_PROCID"] = "1";
  env["SLURM_NODEID"] = "0";
  env["SLURM_LOCALID"] = "1";
  env["SLURM_STEP_NUM_TASKS"] = "2";
  env["SLURM_STEP_NODELIST"] = "gpu09";
  env["SLURM_STEP_TASKS_PER_NODE"] = "2";
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromSlurm(env));
  EXPECT_EQ(role.worker_num, 2);
  EXPECT_THAT(role.node_names, ElementsAre("gpu09"));
  EXPECT_THAT(role.local_size, Optional(2));
}

TEST(Slurm, RankAndSizeAreEnough) {
  const Environment env = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}};
  EXPECT_TRUE(IsSlurm(env));
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromSlurm(env));
  EXPECT_EQ(role.index, 1);
  EXPECT_EQ(role.node_num, 0);
}

TEST(Slurm, TheShellOfAnAllocationIsNoTask) {
  EXPECT_FALSE(IsSlurm(Without(kSlurm, "SLURM_STEP_ID")));
  EXPECT_FALSE(IsSlurm(With(kSlurm, "SLURM_STEP_ID", "4294967290")));
  EXPECT_FALSE(IsSlurm(With(kSlurm, "SLURM_STEP_ID", "4294967291")));
  EXPECT_TRUE(IsSlurm(With(kSlurm, "SLURM_STEP_ID", "12")));
  EXPECT_FALSE(IsSlurm({}));
}

TEST(Slurm, WhatDoesNotFitIsShown) {
  EXPECT_THAT(RoleFromSlurm(Without(kSlurm, "SLURM_NTASKS")),
              CanNotFind("SLURM_NTASKS"));
  EXPECT_THAT(RoleFromSlurm(With(kSlurm, "SLURM_PROCID", "5")),
              StatusIs(kInvalid, HasSubstr("SLURM_PROCID=5")));
  EXPECT_THAT(RoleFromSlurm(With(kSlurm, "SLURM_NODELIST", "gpu[8-")),
              StatusIs(kInvalid, HasSubstr("SLURM_NODELIST: 'gpu[8-'")));
  EXPECT_THAT(RoleFromSlurm(With(kSlurm, "SLURM_NODEID", "3")),
              StatusIs(kInvalid, HasSubstr("SLURM_NODEID=3")));
  EXPECT_THAT(RoleFromSlurm(With(kSlurm, "SLURM_LOCALID", "1")),
              StatusIs(kInvalid, HasSubstr("SLURM_LOCALID=1")));
}

TEST(KubernetesJob, TakesItsSizeFromTheCallerOrTheManifest) {
  const Environment env = {{"JOB_COMPLETION_INDEX", "1"},
                           {"FLEET_WORLD_SIZE", "3"},
                           {"MASTER_ADDR", "train-0.train"},
                           {"MASTER_PORT", "6170"}};
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromKubernetesJob(env));
  EXPECT_EQ(role.index, 1);
  EXPECT_EQ(role.worker_num, 3);
  EXPECT_EQ(role.node_num, 3);
  EXPECT_THAT(role.local_rank, Optional(0));
  EXPECT_THAT(role.local_size, Optional(1));
  EXPECT_THAT(role.master, Optional(Endpoint{"train-0.train", 6170}));
  EXPECT_EQ(role.source, RoleSource::kKubernetes);
  ASSERT_OK_AND_ASSIGN(role, RoleFromKubernetesJob(env, 2));
  EXPECT_EQ(role.worker_num, 2);
}

TEST(KubernetesJob, WithoutASizeTheErrorSaysHowToGiveOne) {
  EXPECT_THAT(RoleFromKubernetesJob({{"JOB_COMPLETION_INDEX", "1"}}),
              StatusIs(kInvalid, AllOf(HasSubstr("JOB_COMPLETION_INDEX=1"),
                                       HasSubstr("FLEET_WORLD_SIZE"))));
  EXPECT_THAT(RoleFromKubernetesJob({{"JOB_COMPLETION_INDEX", "1"}}, 1),
              StatusIs(kInvalid, HasSubstr("JOB_COMPLETION_INDEX=1")));
  EXPECT_THAT(RoleFromKubernetesJob({}), CanNotFind("JOB_COMPLETION_INDEX"));
}

}  // namespace
}  // namespace fleet::cluster
