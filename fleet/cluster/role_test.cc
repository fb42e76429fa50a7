// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/role.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/cluster/launcher_role.h"
#include "fleet/cluster/paddle_role.h"
#include "fleet/testing/role_fixtures.h"

namespace fleet::cluster {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

TEST(UserRole, AServerNeedsNoEndpointsOfWorkers) {
  ASSERT_OK_AND_ASSIGN(Role role,
                       MakeUserRole({.kind = RoleKind::kServer,
                                     .current_id = 1,
                                     .worker_num = 2,
                                     .server_endpoints = {"127.0.0.1:36001",
                                                          "127.0.0.1:36002"}}));
  EXPECT_TRUE(role.is_server());
  EXPECT_EQ(role.index, 1);
  EXPECT_EQ(role.worker_num, 2);
  EXPECT_EQ(role.server_num, 2);
  EXPECT_EQ(role.node_num, 0);
  EXPECT_THAT(role.worker_endpoints, IsEmpty());
  EXPECT_THAT(role.current_endpoint, Optional(Endpoint{"127.0.0.1", 36002}));
  EXPECT_EQ(role.local_rank, std::nullopt);
  EXPECT_EQ(role.source, RoleSource::kUser);
}

TEST(UserRole, WorkersAreCountedInTheirListUnlessTold) {
  UserRoleOptions options = {.current_id = 1,
                             .worker_endpoints = {"a:1", "b:1"},
                             .server_endpoints = {"a:2"}};
  ASSERT_OK_AND_ASSIGN(Role role, MakeUserRole(options));
  EXPECT_EQ(role.worker_num, 2);
  EXPECT_EQ(role.node_num, 2);
  EXPECT_THAT(role.current_endpoint, Optional(Endpoint{"b", 1}));
  EXPECT_THAT(role.local_rank, Optional(0));
  EXPECT_THAT(role.local_size, Optional(1));
  options.worker_num = 3;
  options.current_id = 2;
  ASSERT_OK_AND_ASSIGN(role, MakeUserRole(options));
  EXPECT_EQ(role.worker_num, 3);
  EXPECT_EQ(role.current_endpoint, std::nullopt);
}

TEST(UserRole, ACollectiveJobHasWorkersOnly) {
  ASSERT_OK_AND_ASSIGN(Role role,
                       MakeUserRole({.is_collective = true,
                                     .kind = RoleKind::kServer,
                                     .current_id = 1,
                                     .worker_endpoints = {"a:1", "a:2"},
                                     .server_endpoints = {"a:3"}}));
  EXPECT_TRUE(role.is_worker());
  EXPECT_TRUE(role.is_collective);
  EXPECT_EQ(role.worker_num, 2);
  EXPECT_EQ(role.server_num, 0);
  EXPECT_THAT(role.local_rank, Optional(1));
}

TEST(UserRole, AHeterWorkerIsInItsOwnList) {
  ASSERT_OK_AND_ASSIGN(Role role,
                       MakeUserRole({.kind = RoleKind::kHeterWorker,
                                     .worker_num = 1,
                                     .heter_worker_endpoints = {"a:1"}}));
  EXPECT_THAT(role.current_endpoint, Optional(Endpoint{"a", 1}));
  EXPECT_EQ(ToString(role), "heter worker 0 of 1 at a:1, from the user");
}

TEST(UserRole, RefusesWhatDoesNotFit) {
  EXPECT_THAT(MakeUserRole({.server_endpoints = {"a:1"}}),
              StatusIs(kInvalid, HasSubstr("worker_num or worker_endpoints")));
  EXPECT_THAT(MakeUserRole({.is_collective = true, .worker_num = 2}),
              StatusIs(kInvalid, HasSubstr("give worker_endpoints")));
  EXPECT_THAT(MakeUserRole({.current_id = 2, .worker_num = 2}),
              StatusIs(kInvalid, HasSubstr("current_id=2")));
  EXPECT_THAT(MakeUserRole({.kind = RoleKind::kServer, .worker_num = 2}),
              StatusIs(kInvalid, HasSubstr("server, of which there are 0")));
  EXPECT_THAT(MakeUserRole({.worker_endpoints = {"a"}}),
              StatusIs(kInvalid, HasSubstr("worker_endpoints: 'a'")));
}

TEST(RoleFromEnvironment, NothingSetIsAloneInBothModes) {
  for (bool is_collective : {false, true}) {
    ASSERT_OK_AND_ASSIGN(Role role, RoleFromEnvironment({}, is_collective));
    EXPECT_TRUE(role.non_distributed);
    EXPECT_EQ(role.worker_num, 1);
    EXPECT_EQ(role.is_collective, is_collective);
    EXPECT_EQ(ToString(role), "alone");
  }
}

TEST(RoleFromEnvironment, TakesTheFirstLauncherThatApplies) {
  // From the last to the first; each one goes before those already there.
  Environment env = {{"JOB_COMPLETION_INDEX", "0"}, {"FLEET_WORLD_SIZE", "9"}};
  const auto source = [&] {
    return RoleFromEnvironment(env, true).value().source;
  };
  EXPECT_EQ(source(), RoleSource::kKubernetes);
  env.insert(kCloud.begin(), kCloud.end());
  EXPECT_EQ(source(), RoleSource::kPaddleCloud);
  env.insert(kSlurm.begin(), kSlurm.end());
  EXPECT_EQ(source(), RoleSource::kSlurm);
  env.insert({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}});
  EXPECT_EQ(source(), RoleSource::kPmi);
  env.insert({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "3"}});
  EXPECT_EQ(source(), RoleSource::kOpenMpi);
  env.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(source(), RoleSource::kTorchrun);
  env["PADDLE_TRAINER_ENDPOINTS"] = "a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8";
  env["PADDLE_TRAINER_ID"] = "5";
  EXPECT_EQ(source(), RoleSource::kPaddle);
}

TEST(RoleFromEnvironment, WithoutCollectiveOnlyPaddleKnowsOfServers) {
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromEnvironment(kPsServer, false));
  EXPECT_TRUE(role.is_server());
  ASSERT_OK_AND_ASSIGN(role, RoleFromEnvironment(kTorchrun, false));
  EXPECT_TRUE(role.non_distributed);
}

TEST(RoleFromEnvironment, PaddleAndTorchrunSideBySideMayAgree) {
  Environment env = kCollective;
  env["RANK"] = "1";
  env["WORLD_SIZE"] = "3";
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromEnvironment(env, true));
  EXPECT_EQ(role.source, RoleSource::kPaddle);
  EXPECT_EQ(role.index, 1);
}

TEST(RoleFromEnvironment, PaddleAndTorchrunThatDifferAreShown) {
  Environment env = kCollective;
  env["RANK"] = "0";
  env["WORLD_SIZE"] = "2";
  EXPECT_THAT(
      RoleFromEnvironment(env, true),
      StatusIs(kInvalid,
               AllOf(HasSubstr("worker 1 of 3 (PADDLE_TRAINER_ID=1, "
                               "PADDLE_TRAINERS_NUM=3, "
                               "PADDLE_TRAINER_ENDPOINTS=10.0.0.1:6170,"),
                     HasSubstr("worker 0 of 2 (RANK=0, WORLD_SIZE=2)"))));
  EXPECT_THAT(RoleFromEnvironment(With(env, "WORLD_SIZE", "3"), true),
              StatusIs(kInvalid, HasSubstr("two things")));
  EXPECT_THAT(RoleFromEnvironment(With(env, "RANK", "1"), true),
              StatusIs(kInvalid, HasSubstr("two things")));
}

TEST(RoleFromEnvironment, ARankOfPaddleLeftOverUnderTorchrunIsShown) {
  EXPECT_THAT(
      RoleFromEnvironment(With(kTorchrun, "PADDLE_TRAINER_ID", "1"), true),
      StatusIs(kInvalid, AllOf(HasSubstr("(PADDLE_TRAINER_ID=1)"),
                               HasSubstr("(RANK=5, WORLD_SIZE=8)"))));
  EXPECT_THAT(
      RoleFromEnvironment(With(kTorchrun, "PADDLE_TRAINERS_NUM", "4"), true),
      StatusIs(kInvalid, HasSubstr("PADDLE_TRAINERS_NUM=4")));
}

TEST(RoleFromEnvironment, AWorkerOfServersMayNotDifferFromTorchrun) {
  Environment env = kPsWorker;
  env["RANK"] = "0";
  env["WORLD_SIZE"] = "2";
  EXPECT_THAT(RoleFromEnvironment(env, false),
              StatusIs(kInvalid, HasSubstr("two things")));
  EXPECT_OK(RoleFromEnvironment(With(env, "RANK", "1"), false));
}

TEST(RoleFromEnvironment, LaunchersInsideOfLaunchersMayDiffer) {
  // srun torchrun, and torchrun in a pod of PaddleCloud.
  Environment env = kTorchrun;
  env.insert(kSlurm.begin(), kSlurm.end());
  env.insert(kCloud.begin(), kCloud.end());
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromEnvironment(env, true));
  EXPECT_EQ(role.index, 5);
}

TEST(RoleFromEnvironment, TheShellOfSbatchIsAlone) {
  ASSERT_OK_AND_ASSIGN(
      Role role, RoleFromEnvironment(Without(kSlurm, "SLURM_STEP_ID"), true));
  EXPECT_TRUE(role.non_distributed);
}

TEST(Role, IsWrittenAsASentence) {
  EXPECT_EQ(ToString(RoleFromPaddleCollective(kCollective).value()),
            "worker 1 of 3 on 2 nodes at 10.0.0.1:6171, from Paddle's "
            "environment");
  EXPECT_EQ(ToString(RoleFromPaddleServers(kPsServer).value()),
            "server 1 of 2 at 127.0.0.2:36001, from Paddle's environment");
  EXPECT_EQ(ToString(RoleFromTorchrun(kTorchrun).value()),
            "worker 5 of 8 on 2 nodes, from torchrun");
}

TEST(Role, HasPaddlesNumbers) {
  EXPECT_EQ(static_cast<int>(RoleKind::kWorker), 1);
  EXPECT_EQ(static_cast<int>(RoleKind::kServer), 2);
  EXPECT_EQ(static_cast<int>(RoleKind::kHeterWorker), 3);
}

}  // namespace
}  // namespace fleet::cluster
