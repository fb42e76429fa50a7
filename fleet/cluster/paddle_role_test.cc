// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/paddle_role.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/role_fixtures.h"

namespace fleet::cluster {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

TEST(PaddleServers, AWorkerIsReadWhole) {
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromPaddleServers(kPsWorker));
  EXPECT_TRUE(role.is_worker());
  EXPECT_FALSE(role.is_first_worker());
  EXPECT_EQ(role.index, 1);
  EXPECT_EQ(role.worker_num, 2);
  EXPECT_EQ(role.server_num, 2);
  EXPECT_EQ(role.heter_worker_num, 0);
  EXPECT_EQ(role.node_num, 1);
  EXPECT_EQ(ToString(role.worker_endpoints), "127.0.0.1:36101,127.0.0.1:36102");
  EXPECT_EQ(ToString(role.server_endpoints), "127.0.0.1:36001,127.0.0.2:36001");
  EXPECT_THAT(role.current_endpoint, Optional(Endpoint{"127.0.0.1", 36102}));
  EXPECT_THAT(role.local_rank, Optional(1));
  EXPECT_THAT(role.local_size, Optional(2));
  EXPECT_FALSE(role.is_collective);
  EXPECT_FALSE(role.non_distributed);
  EXPECT_EQ(role.source, RoleSource::kPaddle);
}

TEST(PaddleServers, WithoutTheListOfServersTheProcessIsAlone) {
  const Environment env = Without(kPsWorker, "PADDLE_PSERVERS_IP_PORT_LIST");
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromPaddleServers(env));
  EXPECT_TRUE(role.non_distributed);
  EXPECT_TRUE(role.is_first_worker());
  EXPECT_EQ(role.worker_num, 1);
  EXPECT_EQ(role.server_num, 0);
  EXPECT_EQ(role.heter_worker_num, 0);
  EXPECT_EQ(role.node_num, 1);
  EXPECT_THAT(role.worker_endpoints, IsEmpty());
  EXPECT_THAT(role.server_endpoints, IsEmpty());
  EXPECT_EQ(role.source, RoleSource::kAlone);
}

TEST(PaddleServers, EndpointsOfWorkersMayBeAbsentOrEmpty) {
  for (const Environment& env :
       {Without(kPsWorker, "PADDLE_TRAINER_ENDPOINTS"),
        With(kPsWorker, "PADDLE_TRAINER_ENDPOINTS", "")}) {
    ASSERT_OK_AND_ASSIGN(Role role, RoleFromPaddleServers(env));
    EXPECT_THAT(role.worker_endpoints, IsEmpty());
    EXPECT_EQ(role.worker_num, 2);
    EXPECT_EQ(role.index, 1);
    EXPECT_EQ(role.node_num, 0);
    EXPECT_EQ(role.current_endpoint, std::nullopt);
    EXPECT_EQ(role.local_rank, std::nullopt);
  }
}

TEST(PaddleServers, TheNumberOfWorkersIsRequired) {
  EXPECT_THAT(RoleFromPaddleServers(Without(kPsWorker, "PADDLE_TRAINERS_NUM")),
              CanNotFind("PADDLE_TRAINERS_NUM"));
  EXPECT_THAT(
      RoleFromPaddleServers(With(kPsWorker, "PADDLE_TRAINERS_NUM", "two")),
      StatusIs(kInvalid, "PADDLE_TRAINERS_NUM='two' is not a whole number"));
  EXPECT_THAT(
      RoleFromPaddleServers(With(kPsServer, "PADDLE_TRAINERS_NUM", "0")),
      StatusIs(kInvalid, HasSubstr("PADDLE_TRAINERS_NUM=0")));
}

TEST(PaddleServers, TheRoleIsRequiredAndOneOfThree) {
  EXPECT_THAT(RoleFromPaddleServers(Without(kPsWorker, "TRAINING_ROLE")),
              CanNotFind("TRAINING_ROLE"));
  EXPECT_THAT(
      RoleFromPaddleServers(With(kPsWorker, "TRAINING_ROLE", "WORKER")),
      StatusIs(kInvalid,
               "TRAINING_ROLE must be PSERVER or TRAINER or HETER_TRAINER, but "
               "get WORKER, please check your environment."));
}

TEST(PaddleServers, AWorkerNeedsItsNumber) {
  EXPECT_THAT(RoleFromPaddleServers(Without(kPsWorker, "PADDLE_TRAINER_ID")),
              CanNotFind("PADDLE_TRAINER_ID"));
  for (const char* id : {"2", "-1"}) {
    EXPECT_THAT(RoleFromPaddleServers(With(kPsWorker, "PADDLE_TRAINER_ID", id)),
                StatusIs(kInvalid, std::string("PADDLE_TRAINER_ID=") + id +
                                       ", but the number of workers is 2 by "
                                       "PADDLE_TRAINERS_NUM"));
  }
}

TEST(PaddleServers, AWorkerBeyondTheEndpointsIsAnError) {
  EXPECT_THAT(RoleFromPaddleServers(
                  With(kPsWorker, "PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:1")),
              StatusIs(kInvalid, HasSubstr("PADDLE_TRAINER_ENDPOINTS")));
}

TEST(PaddleServers, AServerFindsItselfInTheList) {
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromPaddleServers(kPsServer));
  EXPECT_TRUE(role.is_server());
  EXPECT_FALSE(role.is_worker());
  EXPECT_EQ(role.index, 1);
  EXPECT_EQ(role.server_num, 2);
  EXPECT_EQ(role.worker_num, 2);
  EXPECT_THAT(role.current_endpoint, Optional(Endpoint{"127.0.0.2", 36001}));
}

TEST(PaddleServers, AServerNeedsItsPortAndAddress) {
  EXPECT_THAT(RoleFromPaddleServers(Without(kPsServer, "PADDLE_PORT")),
              CanNotFind("PADDLE_PORT"));
  EXPECT_THAT(RoleFromPaddleServers(Without(kPsServer, "POD_IP")),
              CanNotFind("POD_IP"));
}

TEST(PaddleServers, AServerThatIsNotInTheListIsAnErrorThatShowsBoth) {
  EXPECT_THAT(RoleFromPaddleServers(With(kPsServer, "PADDLE_PORT", "36003")),
              StatusIs(kInvalid,
                       "POD_IP:PADDLE_PORT: '127.0.0.2:36003' is not in list "
                       "PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:36001,"
                       "127.0.0.2:36001"));
}

TEST(PaddleServers, AServerMayHaveAnIpv6Address) {
  Environment env = With(kPsServer, "PADDLE_PSERVERS_IP_PORT_LIST",
                         "[fe80::1]:36001,[fe80::2]:36001");
  for (const char* ip : {"fe80::2", "[fe80::2]"}) {
    ASSERT_OK_AND_ASSIGN(Role role,
                         RoleFromPaddleServers(With(env, "POD_IP", ip)));
    EXPECT_EQ(role.index, 1);
  }
}

TEST(PaddleServers, AHeterWorkerFindsItselfInItsOwnList) {
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromPaddleServers(kPsHeter));
  EXPECT_TRUE(role.is_heter_worker());
  EXPECT_EQ(role.index, 1);
  EXPECT_EQ(role.heter_worker_num, 2);
  EXPECT_THAT(role.current_endpoint, Optional(Endpoint{"127.0.0.1", 36202}));
  EXPECT_THAT(RoleFromPaddleServers(Without(kPsHeter, "PADDLE_PORT")),
              CanNotFind("PADDLE_PORT"));
  EXPECT_THAT(RoleFromPaddleServers(Without(kPsHeter, "POD_IP")),
              CanNotFind("POD_IP"));
  EXPECT_THAT(
      RoleFromPaddleServers(With(kPsHeter, "PADDLE_PORT", "1")),
      StatusIs(kInvalid, HasSubstr("PADDLE_HETER_TRAINER_IP_PORT_LIST")));
}

TEST(PaddleServers, AHeterWorkerWithoutAListOfThemIsAnError) {
  EXPECT_THAT(
      RoleFromPaddleServers(
          Without(kPsHeter, "PADDLE_HETER_TRAINER_IP_PORT_LIST")),
      StatusIs(kInvalid, HasSubstr("PADDLE_HETER_TRAINER_IP_PORT_LIST")));
}

TEST(PaddleServers, WorkersKnowTheHeterWorkers) {
  ASSERT_OK_AND_ASSIGN(
      Role role, RoleFromPaddleServers(With(
                     kPsWorker, "PADDLE_HETER_TRAINER_IP_PORT_LIST", "h:1")));
  EXPECT_EQ(role.heter_worker_num, 1);
  ASSERT_OK_AND_ASSIGN(
      role, RoleFromPaddleServers(
                With(kPsWorker, "PADDLE_HETER_TRAINER_IP_PORT_LIST", "")));
  EXPECT_EQ(role.heter_worker_num, 0);
}

TEST(PaddleServers, TheFirstThingMissingIsTold) {
  Environment env = {{"PADDLE_PSERVERS_IP_PORT_LIST", "127.0.0.1:1"}};
  EXPECT_THAT(RoleFromPaddleServers(env), CanNotFind("PADDLE_TRAINERS_NUM"));
  env["PADDLE_TRAINERS_NUM"] = "1";
  EXPECT_THAT(RoleFromPaddleServers(env), CanNotFind("TRAINING_ROLE"));
  env["TRAINING_ROLE"] = "PSERVER";
  EXPECT_THAT(RoleFromPaddleServers(env), CanNotFind("PADDLE_PORT"));
  env["PADDLE_PORT"] = "1";
  EXPECT_THAT(RoleFromPaddleServers(env), CanNotFind("POD_IP"));
  env["POD_IP"] = "127.0.0.1";
  EXPECT_OK(RoleFromPaddleServers(env));
}

TEST(PaddleServers, BadListsNameTheirVariable) {
  for (const char* name :
       {"PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_ENDPOINTS",
        "PADDLE_HETER_TRAINER_IP_PORT_LIST"}) {
    for (const char* list : {"127.0.0.1", "a:1,a:1", "a:1,"}) {
      EXPECT_THAT(RoleFromPaddleServers(With(kPsWorker, name, list)),
                  StatusIs(kInvalid, HasSubstr(name)))
          << list;
    }
  }
}

TEST(PaddleCollective, AWorkerIsReadWhole) {
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromPaddleCollective(kCollective));
  EXPECT_TRUE(role.is_worker());
  EXPECT_EQ(role.index, 1);
  EXPECT_EQ(role.worker_num, 3);
  EXPECT_EQ(role.server_num, 0);
  EXPECT_EQ(role.node_num, 2);
  EXPECT_THAT(role.current_endpoint, Optional(Endpoint{"10.0.0.1", 6171}));
  EXPECT_THAT(role.local_rank, Optional(1));
  EXPECT_THAT(role.local_size, Optional(2));
  EXPECT_TRUE(role.is_collective);
  EXPECT_FALSE(role.non_distributed);
  EXPECT_EQ(role.source, RoleSource::kPaddle);
}

TEST(PaddleCollective, AnEmptyEnvironmentIsAloneAt6170) {
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromPaddleCollective({}));
  EXPECT_TRUE(role.non_distributed);
  EXPECT_TRUE(role.is_first_worker());
  EXPECT_EQ(role.worker_num, 1);
  EXPECT_EQ(role.node_num, 1);
  EXPECT_EQ(ToString(role.worker_endpoints), "127.0.0.1:6170");
  EXPECT_THAT(role.current_endpoint, Optional(Endpoint{"127.0.0.1", 6170}));
  EXPECT_EQ(role.source, RoleSource::kAlone);
}

TEST(PaddleCollective, TheIdIs0WhenNotSet) {
  const Environment env = Without(kCollective, "PADDLE_TRAINER_ID");
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromPaddleCollective(
                                      Without(env, "PADDLE_CURRENT_ENDPOINT")));
  EXPECT_EQ(role.index, 0);
  EXPECT_THAT(role.current_endpoint, Optional(Endpoint{"10.0.0.1", 6170}));
}

TEST(PaddleCollective, TheNumberOfWorkersIsTheLengthOfTheList) {
  ASSERT_OK_AND_ASSIGN(
      Role role,
      RoleFromPaddleCollective(With(kCollective, "PADDLE_TRAINERS_NUM", "8")));
  EXPECT_EQ(role.worker_num, 3);
}

TEST(PaddleCollective, OnlyTrainersAreAllowed) {
  EXPECT_OK(RoleFromPaddleCollective(
      With(kCollective, "PADDLE_TRAINING_ROLE", "TRAINER")));
  EXPECT_THAT(RoleFromPaddleCollective(
                  With(kCollective, "PADDLE_TRAINING_ROLE", "PSERVER")),
              StatusIs(kInvalid, HasSubstr("PADDLE_TRAINING_ROLE=PSERVER")));
}

TEST(PaddleCollective, AnIdOutsideOfTheListIsAnError) {
  for (const char* id : {"3", "-1", "x", ""}) {
    EXPECT_THAT(
        RoleFromPaddleCollective(With(kCollective, "PADDLE_TRAINER_ID", id)),
        StatusIs(kInvalid, HasSubstr("PADDLE_TRAINER_ID=")))
        << id;
  }
  EXPECT_THAT(
      RoleFromPaddleCollective({{"PADDLE_TRAINER_ID", "1"}}),
      StatusIs(kInvalid, HasSubstr("PADDLE_TRAINER_ENDPOINTS (not set)")));
}

TEST(PaddleCollective, AnotherCurrentEndpointThanTheListsIsAnError) {
  EXPECT_THAT(RoleFromPaddleCollective(With(
                  kCollective, "PADDLE_CURRENT_ENDPOINT", "10.0.0.1:6170")),
              StatusIs(kInvalid,
                       AllOf(HasSubstr("PADDLE_CURRENT_ENDPOINT=10.0.0.1:6170"),
                             HasSubstr("PADDLE_TRAINER_ID=1 is 10.0.0.1:6171"),
                             HasSubstr("10.0.0.2:6170"))));
}

TEST(PaddleCollective, TheRankInTheNodeGoesBeforeCounting) {
  ASSERT_OK_AND_ASSIGN(
      Role role,
      RoleFromPaddleCollective(With(kCollective, "PADDLE_RANK_IN_NODE", "0")));
  EXPECT_THAT(role.local_rank, Optional(0));
  EXPECT_THAT(
      RoleFromPaddleCollective(With(kCollective, "PADDLE_RANK_IN_NODE", "9")),
      StatusIs(kInvalid, HasSubstr("PADDLE_RANK_IN_NODE=9")));
}

TEST(PaddleCollective, AnEmptyListIsAnError) {
  EXPECT_THAT(RoleFromPaddleCollective({{"PADDLE_TRAINER_ENDPOINTS", ""}}),
              StatusIs(kInvalid, HasSubstr("PADDLE_TRAINER_ENDPOINTS: the list "
                                           "is empty")));
}

// PaddleCloud.

TEST(PaddleCloud, GivesEveryHostPortsFrom6170On) {
  ASSERT_TRUE(IsPaddleCloud(kCloud));
  ASSERT_OK_AND_ASSIGN(
      Role role,
      RoleFromPaddleCloud(kCloud, {.ranks_per_node = 2, .local_rank = 1}));
  EXPECT_EQ(ToString(role.worker_endpoints),
            "10.0.0.1:6170,10.0.0.1:6171,10.0.0.2:6170,10.0.0.2:6171");
  EXPECT_EQ(role.index, 3);
  EXPECT_EQ(role.worker_num, 4);
  EXPECT_EQ(role.node_num, 2);
  EXPECT_THAT(role.current_endpoint, Optional(Endpoint{"10.0.0.2", 6171}));
  EXPECT_THAT(role.local_rank, Optional(1));
  EXPECT_THAT(role.local_size, Optional(2));
  EXPECT_TRUE(role.is_collective);
  EXPECT_EQ(role.source, RoleSource::kPaddleCloud);
}

TEST(PaddleCloud, APodOfItsOwnIsOneRank) {
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromPaddleCloud(kCloud));
  EXPECT_EQ(role.index, 1);
  EXPECT_EQ(ToString(role.worker_endpoints), "10.0.0.1:6170,10.0.0.2:6170");
}

TEST(PaddleCloud, HonoursItsPort) {
  ASSERT_OK_AND_ASSIGN(
      Role role, RoleFromPaddleCloud(With(kCloud, "PADDLE_PORT", "9000")));
  EXPECT_EQ(ToString(role.worker_endpoints), "10.0.0.1:9000,10.0.0.2:9000");
  for (const char* port : {"0", "65536", "x"}) {
    EXPECT_THAT(RoleFromPaddleCloud(With(kCloud, "PADDLE_PORT", port)),
                StatusIs(kInvalid, HasSubstr("PADDLE_PORT")));
  }
}

TEST(PaddleCloud, HonoursItsListOfEndpoints) {
  const Environment env = With(kCloud, "DISTRIBUTED_TRAINER_ENDPOINTS",
                               "10.0.0.1:1,10.0.0.1:2,10.0.0.2:3,10.0.0.2:4");
  ASSERT_OK_AND_ASSIGN(Role role, RoleFromPaddleCloud(env));
  EXPECT_EQ(ToString(role.worker_endpoints), "10.0.0.1:1,10.0.0.2:3");
  ASSERT_OK_AND_ASSIGN(role, RoleFromPaddleCloud(env, {.ranks_per_node = 2}));
  EXPECT_EQ(role.worker_num, 4);
  EXPECT_THAT(role.current_endpoint, Optional(Endpoint{"10.0.0.2", 3}));
  EXPECT_THAT(RoleFromPaddleCloud(With(env, "TRAINER_PORTS_NUM", "3")),
              StatusIs(kInvalid, HasSubstr("4 endpoints for 2 hosts")));
}

TEST(PaddleCloud, IsKnownByFourVariables) {
  for (const auto& [name, value] : kCloud) {
    const Environment env = Without(kCloud, name.c_str());
    EXPECT_FALSE(IsPaddleCloud(env)) << name;
    EXPECT_THAT(RoleFromPaddleCloud(env), CanNotFind(name));
  }
}

TEST(PaddleCloud, RefusesWhatDoesNotFit) {
  EXPECT_THAT(RoleFromPaddleCloud(With(kCloud, "POD_IP", "10.0.0.3")),
              StatusIs(kInvalid, HasSubstr("POD_IP=10.0.0.3")));
  EXPECT_THAT(RoleFromPaddleCloud(With(kCloud, "PADDLE_TRAINER_ID", "2")),
              StatusIs(kInvalid, HasSubstr("PADDLE_TRAINER_ID=2")));
  EXPECT_THAT(RoleFromPaddleCloud(kCloud, {.ranks_per_node = 4}),
              StatusIs(kInvalid, HasSubstr("TRAINER_PORTS_NUM=2")));
  EXPECT_THAT(RoleFromPaddleCloud(kCloud, {.local_rank = 1}),
              HasCode(kInvalid));
}

}  // namespace
}  // namespace fleet::cluster
