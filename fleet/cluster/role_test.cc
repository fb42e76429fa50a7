// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/role.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/cluster/launcher_role.h"
#include "fleet/cluster/paddle_role.h"

namespace fleet::cluster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;

// `env` without `name`, and with `name` changed.
Environment Without(Environment env, const char* name) {
  env.erase(name);
  return env;
}
Environment With(Environment env, const char* name, const char* value) {
  env[name] = value;
  return env;
}

auto CanNotFind(const std::string& name) {
  return StatusIs(kInvalid,
                  "Can not find " + name + ", please check your environment.");
}

// Paddle, parameter servers.

const Environment kPsWorker = {
    {"PADDLE_PSERVERS_IP_PORT_LIST", "127.0.0.1:36001,127.0.0.2:36001"},
    {"PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:36101,127.0.0.1:36102"},
    {"PADDLE_TRAINERS_NUM", "2"},
    {"TRAINING_ROLE", "TRAINER"},
    {"PADDLE_TRAINER_ID", "1"}};

const Environment kPsServer = {
    {"PADDLE_PSERVERS_IP_PORT_LIST", "127.0.0.1:36001,127.0.0.2:36001"},
    {"PADDLE_TRAINERS_NUM", "2"},
    {"TRAINING_ROLE", "PSERVER"},
    {"POD_IP", "127.0.0.2"},
    {"PADDLE_PORT", "36001"}};

const Environment kPsHeter = {
    {"PADDLE_PSERVERS_IP_PORT_LIST", "127.0.0.1:36001"},
    {"PADDLE_HETER_TRAINER_IP_PORT_LIST", "127.0.0.1:36201,127.0.0.1:36202"},
    {"PADDLE_TRAINERS_NUM", "2"},
    {"TRAINING_ROLE", "HETER_TRAINER"},
    {"POD_IP", "127.0.0.1"},
    {"PADDLE_PORT", "36202"}};

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

// Paddle, collective.

const Environment kCollective = {
    {"PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:6170,10.0.0.1:6171,10.0.0.2:6170"},
    {"PADDLE_CURRENT_ENDPOINT", "10.0.0.1:6171"},
    {"PADDLE_TRAINER_ID", "1"},
    {"PADDLE_TRAINERS_NUM", "3"}};

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

const Environment kCloud = {{"PADDLE_TRAINERS", "10.0.0.1,10.0.0.2"},
                            {"POD_IP", "10.0.0.2"},
                            {"PADDLE_TRAINER_ID", "1"},
                            {"TRAINER_PORTS_NUM", "2"}};

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

// User-defined.

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

// torchrun.

const Environment kTorchrun = {{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"GROUP_RANK", "1"},
                               {"GROUP_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "node0"},
                               {"MASTER_PORT", "29500"}};

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

// MPI.

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

// Slurm.

const Environment kSlurm = {{"SLURM_JOB_ID", "77"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_PROCID", "4"},
                            {"SLURM_NTASKS", "5"},
                            {"SLURM_LOCALID", "0"},
                            {"SLURM_NODEID", "2"},
                            {"SLURM_TASKS_PER_NODE", "2(x2),1"},
                            {"SLURM_NODELIST", "gpu[08-10]"}};

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

// Kubernetes.

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

// Choosing.

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
