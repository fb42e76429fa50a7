// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/meeting.h"

#include <chrono>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/channel/meet.h"
#include "fleet/channel/message.h"
#include "fleet/launch/ports.h"

namespace fleet::launch {
namespace {

using base::Deadline;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

MeetingOptions Options(milliseconds patience = std::chrono::seconds(30)) {
  return {.trust = {"s"}, .deadline = Deadline::After(patience)};
}

// A host of a plan by list, with its ports bound.
struct ListHost {
  LaunchPlan plan;
  ReservedPorts ports;

  Status Meet(MeetingOptions options) {
    return MeetByList(plan, ports.listeners.front().get(), options).status();
  }
};

// Hosts 127.0.0.2, 127.0.0.3, ... with a rank each, at ports that are free.
std::vector<ListHost> MakeListHosts(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    names.push_back("127.0.0." + std::to_string(i + 2));
  }
  std::vector<cluster::Endpoint> workers;
  std::vector<ListHost> hosts;
  for (int i = 0; i < count; ++i) {
    ListHost host;
    host.plan = PlanCollective(names, i, 0, {""}, {});
    host.ports = ReservePorts(host.plan).value();
    workers.push_back(host.plan.workers[i]);
    hosts.push_back(std::move(host));
  }
  for (ListHost& host : hosts) host.plan.workers = workers;
  return hosts;
}

std::vector<Status> MeetAll(std::vector<ListHost>& hosts) {
  std::vector<std::future<Status>> meetings;
  for (ListHost& host : hosts) {
    meetings.push_back(
        std::async(std::launch::async, [&] { return host.Meet(Options()); }));
  }
  std::vector<Status> outcomes;
  for (auto& meeting : meetings) outcomes.push_back(meeting.get());
  return outcomes;
}

TEST(MeetByList, HostsWithOnePlanMeet) {
  std::vector<ListHost> hosts = MakeListHosts(3);
  for (const Status& status : MeetAll(hosts)) EXPECT_OK(status);
}

TEST(MeetByList, ShowsBothPlansWhereTheyDiffer) {
  std::vector<ListHost> hosts = MakeListHosts(2);
  hosts[1].plan.workers.push_back({"127.0.0.3", 1});
  for (const Status& status : MeetAll(hosts)) {
    EXPECT_THAT(
        status,
        StatusIs(StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr("differ; workers are"),
                       HasSubstr(ToString(hosts[0].plan.workers) + " on "),
                       HasSubstr(ToString(hosts[1].plan.workers) + " on "))));
  }
}

TEST(MeetByList, NamesTheHostThatNeverCame) {
  std::vector<ListHost> hosts = MakeListHosts(2);
  hosts[1].ports.listeners.clear();
  EXPECT_THAT(hosts[0].Meet(Options(milliseconds(200))),
              StatusIs(StatusCode::kDeadlineExceeded,
                       HasSubstr("did not come: 127.0.0.3 (rank 1)")));
}

TEST(MeetByList, DoesNotWaitForOneThatIsNotOfThePlan) {
  std::vector<ListHost> hosts = MakeListHosts(2);
  const cluster::Endpoint door = MeetingEndpoint(hosts[0].plan, 0);
  auto first =
      std::async(std::launch::async, [&] { return hosts[0].Meet(Options()); });
  // It knows the plan, and has another name.
  ASSERT_OK_AND_ASSIGN(
      channel::Connection stranger,
      channel::Connect(
          {.host = door.host, .port = door.port},
          {.self = {channel::ProcessKind::kLauncher, 1}, .trust = {"s"}},
          Options().deadline));
  const std::string view = channel::MessageWriter()
                               .Text("workers")
                               .Text(ToString(hosts[0].plan.workers))
                               .Take();
  const std::string greeting =
      channel::MessageWriter().Text("127.0.0.9").Text(view).Take();
  ASSERT_OK(stranger.channel->Send(std::as_bytes(std::span(greeting)),
                                   Options().deadline));
  // The plan, and nothing more.
  ASSERT_OK(stranger.channel->RecvMessage(1000, Options().deadline).status());
  EXPECT_THAT(stranger.channel->NextSize(Options().deadline),
              StatusIs(StatusCode::kUnavailable, HasSubstr("")));
  EXPECT_OK(hosts[1].Meet(Options()));
  EXPECT_OK(first.get());
}

// A free port of 127.0.0.1.
cluster::Endpoint FreePlace() {
  LaunchPlan plan = PlanCollective({"127.0.0.1"}, 0, 0, {""}, {});
  ReservePorts(plan).value();
  return plan.workers.front();
}

std::vector<Result<Roster>> MeetAtMaster(std::vector<MasterOptions> masters) {
  std::vector<std::future<Result<Roster>>> meetings;
  for (size_t i = 0; i < masters.size(); ++i) {
    meetings.push_back(std::async(std::launch::async, [&masters, i] {
      const uint16_t port = static_cast<uint16_t>(100 + i);
      return launch::MeetAtMaster(
          masters[i], {"host" + std::to_string(i), {port}, 7}, Options());
    }));
  }
  std::vector<Result<Roster>> outcomes;
  for (auto& meeting : meetings) outcomes.push_back(meeting.get());
  return outcomes;
}

TEST(MeetAtMaster, GivesAllTheSameRoster) {
  const cluster::Endpoint place = FreePlace();
  const auto rosters = MeetAtMaster({{place, 3, 2}, {place, 3}, {place, 3, 0}});
  for (size_t i = 0; i < rosters.size(); ++i) {
    ASSERT_OK(rosters[i].status());
    std::vector<std::string> names;
    for (const HostShare& share : rosters[i]->hosts) {
      names.push_back(share.host);
    }
    EXPECT_THAT(names, ElementsAre("host2", "host1", "host0"));
    EXPECT_EQ(rosters[i]->hosts[0].ports.front(), 102);
    EXPECT_EQ(rosters[i]->own_host, 2 - static_cast<int>(i));
  }
}

std::vector<Result<Roster>> MeetWithShares(std::vector<HostShare> shares) {
  const cluster::Endpoint place = FreePlace();
  const int count = static_cast<int>(shares.size());
  std::vector<std::future<Result<Roster>>> meetings;
  for (int i = 0; i < count; ++i) {
    meetings.push_back(std::async(std::launch::async, [&, i] {
      return launch::MeetAtMaster({place, count, i}, shares[i], Options());
    }));
  }
  std::vector<Result<Roster>> outcomes;
  for (auto& meeting : meetings) outcomes.push_back(meeting.get());
  return outcomes;
}

TEST(MeetAtMaster, TakesHostsOfServersAndHostsOfWorkers) {
  for (const auto& roster : MeetWithShares(
           {{"a", {}, 0, true, {1, 2}}, {"b", {3, 4, 5}, 0, true, {}}})) {
    ASSERT_OK(roster.status());
    EXPECT_THAT(roster->hosts[0].server_ports, ElementsAre(1, 2));
    EXPECT_THAT(roster->hosts[1].ports, ElementsAre(3, 4, 5));
    EXPECT_TRUE(roster->hosts[1].server_ports.empty());
  }
}

TEST(MeetAtMaster, SaysWhichKindOfProcessIsMissing) {
  for (const auto& roster :
       MeetWithShares({{"a", {1}, 0, true}, {"b", {2}, 0, true}})) {
    EXPECT_THAT(roster, StatusIs(StatusCode::kFailedPrecondition,
                                 HasSubstr("no host of the job has a server")));
  }
  for (const auto& roster :
       MeetWithShares({{"a", {1}, 0, true}, {"b", {2}, 0, false}})) {
    EXPECT_THAT(roster, StatusIs(StatusCode::kFailedPrecondition,
                                 HasSubstr("hosts a and b differ")));
  }
}

TEST(MeetAtMaster, RefusesARankThatIsGivenTwice) {
  const cluster::Endpoint place = FreePlace();
  for (const auto& roster :
       MeetAtMaster({{place, 3, 0}, {place, 3, 1}, {place, 3, 1}})) {
    EXPECT_THAT(roster, StatusIs(StatusCode::kFailedPrecondition,
                                 HasSubstr("both given --rank=1")));
  }
}

// At the master's door, as one that speaks for itself.
Result<std::unique_ptr<channel::Channel>> Apply(const cluster::Endpoint& place,
                                                channel::ProcessKind kind,
                                                const std::string& host,
                                                uint16_t port, int num_hosts) {
  ASSIGN_OR_RETURN(channel::Connection connection,
                   channel::Connect({.host = place.host, .port = place.port},
                                    {.self = {kind, 0}, .trust = {"s"}},
                                    Options().deadline));
  const std::string application = channel::MessageWriter()
                                      .U32(num_hosts)
                                      .U32(0)
                                      .Text(host)
                                      .U32(1)
                                      .U32(port)
                                      .U32(0)
                                      .U32(0)
                                      .U32(7)
                                      .U8(0)
                                      .Take();
  RETURN_IF_ERROR(connection.channel->Send(
      std::as_bytes(std::span(application)), Options().deadline));
  return std::move(connection.channel);
}

std::vector<std::string> NamesIn(const Result<Roster>& roster) {
  if (!roster.ok()) return {roster.status().message()};
  std::vector<std::string> names;
  for (const HostShare& share : roster->hosts) {
    names.push_back(base::Concat(share.host, ":", share.ports.front()));
  }
  return names;
}

// A master that waits for two more.
std::future<Result<Roster>> StartMaster(const cluster::Endpoint& place) {
  return std::async(std::launch::async, [place] {
    return launch::MeetAtMaster({place, 3, 0}, {"host0", {100}, 7}, Options());
  });
}

TEST(MeetAtMaster, CountsALauncherThatStartsAnewOnce) {
  using channel::ProcessKind;
  const cluster::Endpoint place = FreePlace();
  auto master = StartMaster(place);
  // One whose end is seen, and which gets another port the next time; and one
  // whose end is not seen.
  ASSERT_OK(Apply(place, ProcessKind::kLauncher, "host1", 101, 3));
  ASSERT_OK_AND_ASSIGN(const auto silent,
                       Apply(place, ProcessKind::kLauncher, "host1", 102, 3));
  ASSERT_OK_AND_ASSIGN(const auto again,
                       Apply(place, ProcessKind::kLauncher, "host1", 102, 3));
  ASSERT_OK_AND_ASSIGN(const auto other,
                       Apply(place, ProcessKind::kLauncher, "host2", 103, 3));
  EXPECT_THAT(NamesIn(master.get()),
              ElementsAre("host0:100", "host1:102", "host2:103"));
  EXPECT_OK(again->NextSize(Options().deadline));
  EXPECT_THAT(silent->NextSize(Options().deadline),
              StatusIs(StatusCode::kUnavailable, HasSubstr("")));
}

TEST(MeetAtMaster, LaunchersOfOneHostAreDifferentOnes) {
  using channel::ProcessKind;
  const cluster::Endpoint place = FreePlace();
  auto master = StartMaster(place);
  ASSERT_OK_AND_ASSIGN(const auto one,
                       Apply(place, ProcessKind::kLauncher, "host0", 101, 3));
  ASSERT_OK_AND_ASSIGN(const auto other,
                       Apply(place, ProcessKind::kLauncher, "host0", 102, 3));
  EXPECT_THAT(NamesIn(master.get()),
              ElementsAre("host0:100", "host0:101", "host0:102"));
}

TEST(MeetAtMaster, RefusesWhoIsNoLauncher) {
  using channel::ProcessKind;
  const cluster::Endpoint place = FreePlace();
  auto master = StartMaster(place);
  ASSERT_OK_AND_ASSIGN(const auto rank,
                       Apply(place, ProcessKind::kWorker, "rank", 101, 3));
  EXPECT_THAT(rank->NextSize(Options().deadline),
              StatusIs(StatusCode::kUnavailable, HasSubstr("")));
  ASSERT_OK_AND_ASSIGN(const auto one,
                       Apply(place, ProcessKind::kLauncher, "host1", 101, 3));
  ASSERT_OK_AND_ASSIGN(const auto other,
                       Apply(place, ProcessKind::kLauncher, "host2", 102, 3));
  EXPECT_THAT(NamesIn(master.get()),
              ElementsAre("host0:100", "host1:101", "host2:102"));
}

TEST(MeetAtMaster, IsNotTheMasterWhereItsAddressIsElsewhere) {
  // A name that nobody has: without --rank nobody listens for it.
  EXPECT_THAT(
      launch::MeetAtMaster({{"nobody.invalid", FreePlace().port}, 2},
                           {"host0", {1}, 2}, Options(milliseconds(100))),
      testing::Not(
          StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("hosts came"))));
}

TEST(MeetAtMaster, SaysWhoCame) {
  EXPECT_THAT(
      launch::MeetAtMaster({FreePlace(), 2, 0}, {"host0", {1}, 2},
                           Options(milliseconds(100))),
      StatusIs(StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("1 of 2 hosts came"), HasSubstr("host0"))));
}

TEST(JoinPlan, PutsTheHostsBehindEachOther) {
  const LaunchPlan own =
      PlanCollective({"b"}, 0, 0, {"0", "1"}, {.num_cores = 4});
  Roster roster;
  roster.own_host = 1;
  roster.hosts = {{"a", {1, 2}, 3}, {"b", {4, 5}, 6}};
  const LaunchPlan plan = JoinPlan(own, roster);
  EXPECT_EQ(ToString(plan.workers), "a:1,a:2,b:4,b:5");
  EXPECT_EQ(plan.own_host, 1);
  EXPECT_EQ(plan.torch_master, (cluster::Endpoint{"a", 3}));
  EXPECT_EQ(plan.processes[0].index, 2);
  EXPECT_EQ(plan.processes[1].index, 3);
  EXPECT_EQ(plan.processes[1].local_index, 1);
  EXPECT_EQ(ToString(plan.endpoint_of(plan.processes[1])), "b:5");
}

TEST(JoinPlan, CountsServersAndWorkersEachForThemselves) {
  const LaunchPlan own =
      PlanServersHere("c", {.servers = 1, .workers = 2}, 0, {}, {});
  EXPECT_EQ(ShareOf(own).ports.size(), 2u);
  EXPECT_EQ(ShareOf(own).server_ports.size(), 1u);
  Roster roster;
  roster.own_host = 2;
  roster.hosts = {{"a", {}, 0, true, {1, 2}},
                  {"b", {3}, 0, true},
                  {"c", {5, 6}, 0, true, {4}}};
  const LaunchPlan plan = JoinPlan(own, roster);
  EXPECT_EQ(ToString(plan.servers), "a:1,a:2,c:4");
  EXPECT_EQ(ToString(plan.workers), "b:3,c:5,c:6");
  EXPECT_EQ(ToString(plan.endpoint_of(plan.processes[0])), "c:4");
  EXPECT_EQ(plan.processes[0].index, 2);
  EXPECT_EQ(plan.processes[1].index, 1);
  EXPECT_EQ(plan.processes[2].index, 2);
}

TEST(ReadMaster, IsForJobsWithServersToo) {
  LaunchOptions options;
  options.master = "10.0.0.1:7000";
  options.nnodes = 2;
  options.server_num = 1;
  ASSERT_OK_AND_ASSIGN(const std::optional<MasterOptions> master,
                       ReadMaster(options, {}));
  EXPECT_TRUE(master.has_value());
}

TEST(ReadMaster, IsForSeveralHosts) {
  LaunchOptions options;
  EXPECT_EQ(ReadMaster(options, {}).value(), std::nullopt);
  options.master = "10.0.0.1:7000";
  EXPECT_EQ(ReadMaster(options, {}).value(), std::nullopt);  // one host
  options.nnodes = 2;
  options.node_rank = 1;
  ASSERT_OK_AND_ASSIGN(const std::optional<MasterOptions> master,
                       ReadMaster(options, {}));
  ASSERT_TRUE(master.has_value());
  EXPECT_EQ(ToString(master->master), "10.0.0.1:7000");
  EXPECT_EQ(master->num_hosts, 2);
  EXPECT_EQ(master->node_rank, 1);

  const cluster::Environment env = {{"PADDLE_MASTER", "10.0.0.1:7000"},
                                    {"PADDLE_NNODES", "3"}};
  EXPECT_EQ(ReadMaster({}, env).value()->num_hosts, 3);
}

TEST(ReadMaster, SaysWhatDoesNotFit) {
  LaunchOptions options;
  options.master = "10.0.0.1:7000";
  options.nnodes = 2;
  options.node_rank = 2;
  EXPECT_THAT(ReadMaster(options, {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("--rank=2")));
  options.node_rank = 0;
  options.ips = "10.0.0.1,10.0.0.2";
  EXPECT_THAT(ReadMaster(options, {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("--ips")));
  options.ips.reset();
  options.workers = "10.0.0.1,10.0.0.2";
  EXPECT_THAT(ReadMaster(options, {}), StatusIs(StatusCode::kInvalidArgument,
                                                HasSubstr("--worker_num")));
  options.workers.reset();
  options.master = "10.0.0.1";
  EXPECT_THAT(ReadMaster(options, {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no port")));
}

}  // namespace
}  // namespace fleet::launch
