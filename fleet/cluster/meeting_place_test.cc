// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/meeting_place.h"

#include <set>
#include <unistd.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/membership_fixtures.h"

namespace fleet::cluster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Role Read(const Environment& env) {
  return RoleFromEnvironment(env, /*is_collective=*/true).value();
}

std::vector<std::string> Addresses(const Environment& env) {
  const MeetingPlace place = FindMeetingPlace(Read(env)).value();
  std::vector<std::string> addresses;
  for (const channel::Address& address : place.addresses) {
    addresses.push_back(address.ToString());
  }
  return addresses;
}

// A job of two ranks on one host, under Slurm.
Environment Slurm() {
  return {{"SLURM_PROCID", "0"},         {"SLURM_STEP_ID", "3"},
          {"SLURM_JOB_ID", "77"},        {"SLURM_STEP_NUM_TASKS", "2"},
          {"SLURM_STEP_NODELIST", "n1"}, {"SLURM_STEP_TASKS_PER_NODE", "2"},
          {"SLURM_NODEID", "0"},         {"SLURM_LOCALID", "0"}};
}

TEST(MeetingPlace, IsTheFirstWorkersEndpoint) {
  EXPECT_THAT(
      Addresses({{"PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:6170,10.0.0.2:6170"},
                 {"PADDLE_TRAINER_ID", "1"}}),
      ElementsAre("10.0.0.1:6170"));
}

TEST(MeetingPlace, OfTorchrunIsTheMasterOrAPortThatItsNameGives) {
  Environment env = {{"RANK", "0"},
                     {"WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "host"},
                     {"MASTER_PORT", "29500"},
                     {"TORCHELASTIC_RUN_ID", "a"}};
  const std::vector<std::string> first = Addresses(env);
  EXPECT_EQ(first.size(), 9);
  EXPECT_EQ(first[0], "host:29500");
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 9);
  for (const std::string& address : first) {
    EXPECT_THAT(address, testing::StartsWith("host:"));
  }
  env["RANK"] = "1";
  EXPECT_EQ(Addresses(env), first);
  env["TORCHELASTIC_RUN_ID"] = "b";
  EXPECT_NE(Addresses(env), first);
  // The agent's own store is there.
  env["TORCHELASTIC_RUN_ID"] = "a";
  env["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(Addresses(env),
            std::vector<std::string>(first.begin() + 1, first.end()));
}

std::string OfThisUser(const std::string& name) {
  return base::Concat("@fleet-", geteuid(), "-", name);
}

TEST(MeetingPlace, OnOneHostIsTheNameOfTheJob) {
  Environment mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                     {"OMPI_MCA_ess_base_jobid", "674955265"}};
  EXPECT_THAT(Addresses(mpi), ElementsAre(OfThisUser("mpi-674955265")));
  EXPECT_THAT(Addresses(Slurm()), ElementsAre(OfThisUser("slurm-77.3")));
  // A random key of the launcher makes a name that nobody else can guess, and
  // that does not show the key.
  mpi["OMPI_MCA_orte_precondition_transports"] = "c41c92497b2da240-f035b774";
  const std::vector<std::string> with_key = Addresses(mpi);
  ASSERT_EQ(with_key.size(), 1);
  EXPECT_THAT(with_key[0],
              AllOf(testing::StartsWith(OfThisUser("mpi-674955265-")),
                    Not(HasSubstr("c41c92497b2da240"))));
  mpi["OMPI_MCA_orte_precondition_transports"] = "d41c92497b2da240-f035b774";
  EXPECT_NE(Addresses(mpi), with_key);
  // A name that does not fit becomes a number.
  const std::vector<std::string> folded =
      Addresses({{"PMI_RANK", "1"},
                 {"PMI_SIZE", "2"},
                 {"MPI_LOCALRANKID", "1"},
                 {"MPI_LOCALNRANKS", "2"},
                 {"PMI_JOBID", std::string(200, 'x')}});
  ASSERT_EQ(folded.size(), 1);
  EXPECT_EQ(folded[0].size(), std::string("@fleet-").size() + 16);
}

TEST(MeetingPlace, OfSlurmOnTwoHostsIsAPortOfTheFirst) {
  Environment env = Slurm();
  env["SLURM_STEP_NODELIST"] = "n[1-2]";
  env["SLURM_STEP_TASKS_PER_NODE"] = "1(x2)";
  const std::vector<std::string> first = Addresses(env);
  EXPECT_EQ(first.size(), 8);
  EXPECT_THAT(first, testing::Each(testing::StartsWith("n1:")));
  env["SLURM_STEP_ID"] = "4";
  EXPECT_NE(Addresses(env), first);
}

TEST(MeetingPlace, OfPmiUnderSlurmIsSlurms) {
  Environment env = Slurm();
  env["PMI_RANK"] = "0";
  env["PMI_SIZE"] = "2";
  EXPECT_THAT(Addresses(env), ElementsAre(OfThisUser("slurm-77.3")));
}

TEST(MeetingPlace, MayBeSaidForAnyLauncher) {
  Environment env = Slurm();
  env["MASTER_ADDR"] = "10.0.0.9";
  env["MASTER_PORT"] = "7000";
  EXPECT_THAT(Addresses(env), ElementsAre("10.0.0.9:7000"));
}

TEST(MeetingPlace, HasToBeSaidWhereTheLauncherDoesNot) {
  // Two hosts, whose names Open MPI does not tell.
  const Role role = Read({{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                          {"PMIX_NAMESPACE", "1"}});
  EXPECT_THAT(FindMeetingPlace(role),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("worker 1 of 2"),
                             HasSubstr("set MASTER_ADDR"))));
}

MeetingPlace PlaceAt(std::initializer_list<const char*> addresses) {
  MeetingPlace place;
  for (const char* text : addresses) {
    place.addresses.push_back(channel::Address::Parse(text).value());
  }
  return place;
}

std::string ListenedAt(const MeetingPlace& place) {
  const auto listener = ListenAt(place, {}, Soon());
  return listener.ok() ? (*listener)->address().host : "";
}

TEST(ListenAt, TakesTheAddressThatIsSaid) {
  EXPECT_EQ(ListenedAt(PlaceAt({"127.0.0.2:0"})), "127.0.0.2");
}

TEST(ListenAt, TakesAllAddressesForTheNameOfAHost) {
  char name[256] = "";
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  // A machine may not know its own name, and then it cannot be met by it.
  const bool is_known =
      channel::Resolve({.host = name, .port = 80, .local_name = ""}).ok();
  EXPECT_THAT(
      ListenedAt(PlaceAt({(std::string(name) + ":0").c_str()})),
      is_known ? testing::AnyOf("0.0.0.0", "::") : testing::AnyOf("", ""));
}

TEST(ListenAt, TakesTheNextGuessWhenOneIsTaken) {
  const Port taken;
  const auto listener = ListenAt(
      PlaceAt({ToString(taken.endpoint()).c_str(), "127.0.0.3:0"}), {}, Soon());
  ASSERT_OK(listener);
  EXPECT_EQ((*listener)->address().host, "127.0.0.3");
}

TEST(ListenAt, SaysWhichAddressIsTaken) {
  const Port taken;
  EXPECT_THAT(ListenAt(PlaceAt({ToString(taken.endpoint()).c_str()}), {},
                       base::Deadline::After({})),
              StatusIs(StatusCode::kUnavailable,
                       AllOf(HasSubstr(ToString(taken.endpoint())),
                             HasSubstr("in use"))));
}

TEST(ListenAt, SaysThatAnAddressIsNotOfThisHost) {
  // An address for documentation, which no host has.
  EXPECT_THAT(ListenAt(PlaceAt({"198.51.100.1:7000"}), {}, Soon()),
              StatusIs(StatusCode::kUnavailable,
                       HasSubstr("listen at 198.51.100.1:7000")));
}

}  // namespace
}  // namespace fleet::cluster
