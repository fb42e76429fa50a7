// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/plan.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/launch/machine.h"

namespace fleet::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;

// A host with two cores, at 127.0.0.1 and 10.0.0.2.
Machine TestMachine(int num_gpus = 0) {
  return {.num_gpus = num_gpus,
          .num_cores = 2,
          .is_own_address = [](const std::string& host) {
            return host == "127.0.0.1" || host == "10.0.0.2";
          }};
}

Result<LaunchPlan> Plan(std::vector<std::string> arguments,
                        const cluster::Environment& env = {},
                        int num_gpus = 0) {
  arguments.push_back("t.py");
  auto parsed = ParseLaunchOptions(arguments);
  if (!parsed.ok()) return parsed.status();
  return MakeLaunchPlan(std::get<LaunchOptions>(*parsed), env,
                        TestMachine(num_gpus));
}

cluster::Environment EnvironmentOf(const LaunchPlan& plan, int process,
                                   const cluster::Environment& inherited = {}) {
  return ProcessEnvironment(plan, plan.processes[process], inherited);
}

std::vector<std::string> GpusOf(const Result<LaunchPlan>& plan) {
  std::vector<std::string> gpus;
  for (const ProcessPlan& process : plan->processes) {
    gpus.push_back(process.gpus);
  }
  return gpus;
}

// Collective jobs on one host.

TEST(LaunchPlan, IsOneRankWithoutFlagsAndGpus) {
  ASSERT_OK_AND_ASSIGN(const LaunchPlan plan, Plan({}));
  EXPECT_EQ(plan.mode, LaunchMode::kCollective);
  EXPECT_THAT(plan.workers, ElementsAre(cluster::Endpoint{"127.0.0.1", 0}));
  EXPECT_FALSE(plan.uses_gpus);
  const cluster::Environment env = EnvironmentOf(plan, 0);
  EXPECT_EQ(env.at("PADDLE_TRAINERS_NUM"), "1");
  EXPECT_EQ(env.at("OMP_NUM_THREADS"), "2");
  EXPECT_FALSE(env.contains("FLAGS_selected_gpus"));
}

TEST(LaunchPlan, NamesOfGpusMeanCpuRanksWhereThereAreNone) {
  const auto plan = Plan({"--gpus=0,3"});
  ASSERT_OK(plan.status());
  EXPECT_THAT(GpusOf(plan), ElementsAre("0", "3"));
  EXPECT_FALSE(plan->uses_gpus);
  EXPECT_EQ(EnvironmentOf(*plan, 1).at("FLAGS_selected_gpus"), "3");
}

TEST(LaunchPlan, HasOneRankPerGpu) {
  EXPECT_THAT(GpusOf(Plan({}, {}, 4)), ElementsAre("0", "1", "2", "3"));
  EXPECT_TRUE(Plan({}, {}, 4)->uses_gpus);
  EXPECT_THAT(GpusOf(Plan({"--nproc_per_node=2"}, {}, 4)),
              ElementsAre("0,1", "2,3"));
  EXPECT_THAT(GpusOf(Plan({"--nproc_per_node=2"}, {}, 1)),
              ElementsAre("0", "0"));
  EXPECT_THAT(GpusOf(Plan({"--devices=cpu", "--nproc_per_node=2"}, {}, 4)),
              ElementsAre("", ""));
  EXPECT_THAT(
      GpusOf(Plan({"--gpus=5,4"}, {{"CUDA_VISIBLE_DEVICES", "4,5,6"}}, 3)),
      ElementsAre("1", "0"));
}

TEST(LaunchPlan, RefusesGpusThatCannotBeUsed) {
  EXPECT_THAT(Plan({"--gpus=0,x"}),
              StatusIs(kInvalid, HasSubstr("'x' is not a number")));
  EXPECT_THAT(Plan({"--gpus=1,1"}), StatusIs(kInvalid, HasSubstr("twice")));
  EXPECT_THAT(Plan({"--gpus=0,1"}, {}, 1),
              StatusIs(kInvalid, HasSubstr("there is no GPU 1")));
  EXPECT_THAT(Plan({"--gpus=0"}, {{"CUDA_VISIBLE_DEVICES", "4"}}, 1),
              StatusIs(kInvalid, HasSubstr("Can't find your gpus 0 in")));
  EXPECT_THAT(Plan({"--gpus=0,1", "--nproc_per_node=3"}),
              StatusIs(kInvalid, HasSubstr("evenly")));
}

TEST(LaunchPlan, SpeaksToPaddleAndTorchrunScripts) {
  ASSERT_OK_AND_ASSIGN(LaunchPlan plan, Plan({"--nproc_per_node=2"}));
  plan.workers[0].port = 7001;
  plan.workers[1].port = 7002;
  plan.torch_master.port = 7003;
  plan.secret_file = "/s";
  const cluster::Environment env = EnvironmentOf(plan, 1,
                                                 {{"HOME", "/h"},
                                                  {"http_proxy", "p"},
                                                  {"https_proxy", "p"},
                                                  {"TRAINING_ROLE", "PSERVER"},
                                                  {"OMP_NUM_THREADS", "7"}});
  const cluster::Environment wanted = {
      {"HOME", "/h"},
      {"OMP_NUM_THREADS", "7"},
      {"PADDLE_TRAINER_ID", "1"},
      {"PADDLE_RANK_IN_NODE", "1"},
      {"PADDLE_TRAINERS_NUM", "2"},
      {"PADDLE_CURRENT_ENDPOINT", "127.0.0.1:7002"},
      {"PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:7001,127.0.0.1:7002"},
      {"PADDLE_WITH_GLOO", "0"},
      {"PADDLE_GLOO_RENDEZVOUS", "3"},
      {"PADDLE_GLOO_FS_PATH", ""},
      {"RANK", "1"},
      {"WORLD_SIZE", "2"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"GROUP_RANK", "0"},
      {"GROUP_WORLD_SIZE", "1"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", "7003"},
      {"FLEET_SECRET_FILE", "/s"}};
  EXPECT_EQ(env, wanted);
  const auto role = cluster::RoleFromEnvironment(env, /*is_collective=*/true);
  ASSERT_OK(role.status());
  EXPECT_EQ(role->index, 1);
  EXPECT_EQ(role->source, cluster::RoleSource::kPaddle);
}

TEST(LaunchPlan, SharesTheCoresAmongRanks) {
  const auto plan = Plan({"--nproc_per_node=3"});
  ASSERT_OK(plan.status());
  EXPECT_EQ(EnvironmentOf(*plan, 0).at("OMP_NUM_THREADS"), "1");
}

TEST(LaunchPlan, TakesPortsByNumberWhenAsked) {
  ASSERT_OK_AND_ASSIGN(const LaunchPlan plan,
                       Plan({"--gpus=0,1", "--started_port=7000"}));
  EXPECT_THAT(plan.workers, ElementsAre(cluster::Endpoint{"127.0.0.1", 7000},
                                        cluster::Endpoint{"127.0.0.1", 7001}));
  EXPECT_EQ(Plan({}, {{"FLAGS_START_PORT", "8000"}})->workers[0].port, 8000);
  EXPECT_THAT(Plan({"--gpus=0,1", "--started_port=65535"}),
              StatusIs(kInvalid, HasSubstr("--started_port")));
}

// Several hosts.

TEST(LaunchPlan, CountsRanksOverHosts) {
  ASSERT_OK_AND_ASSIGN(const LaunchPlan plan,
                       Plan({"--ips=10.0.0.1,10.0.0.2", "--gpus=0,1"}));
  EXPECT_EQ(plan.own_host, 1);
  EXPECT_EQ(ToString(plan.workers),
            "10.0.0.1:6070,10.0.0.1:6071,10.0.0.2:6070,10.0.0.2:6071");
  ASSERT_EQ(plan.processes.size(), 2u);
  EXPECT_EQ(plan.processes[1].index, 3);
  const cluster::Environment env = EnvironmentOf(plan, 1);
  EXPECT_EQ(env.at("PADDLE_TRAINER_ID"), "3");
  EXPECT_EQ(env.at("PADDLE_RANK_IN_NODE"), "1");
  EXPECT_EQ(env.at("LOCAL_RANK"), "1");
  EXPECT_EQ(env.at("GROUP_RANK"), "1");
  EXPECT_EQ(env.at("MASTER_ADDR"), "10.0.0.1");
  EXPECT_EQ(env.at("MASTER_PORT"), "6072");
}

TEST(LaunchPlan, FindsItsOwnHost) {
  EXPECT_THAT(Plan({"--ips=10.0.0.1,10.0.0.3"}),
              StatusIs(kInvalid, HasSubstr("Can't find your local ip")));
  EXPECT_THAT(Plan({"--ips=10.0.0.1,10.0.0.3", "--node_ip=10.0.0.4"}),
              StatusIs(kInvalid,
                       "Can't find your local ip {10.0.0.4} in node_ips: "
                       "{10.0.0.1,10.0.0.3}"));
  EXPECT_THAT(Plan({"--ips=127.0.0.1,10.0.0.2"}),
              StatusIs(kInvalid, HasSubstr("--node_ip")));
  EXPECT_EQ(Plan({"--ips=127.0.0.1,10.0.0.2", "--host=10.0.0.2"})->own_host, 1);
  EXPECT_EQ(
      Plan({"--ips=127.0.0.1,10.0.0.2"}, {{"POD_IP", "10.0.0.2"}})->own_host,
      1);
}

TEST(LaunchPlan, ReadsPaddleCloud) {
  const cluster::Environment cloud = {{"PADDLE_TRAINERS", "10.0.0.1,10.0.0.2"},
                                      {"POD_IP", "10.0.0.2"},
                                      {"PADDLE_TRAINER_ID", "1"},
                                      {"TRAINER_PORTS_NUM", "8"},
                                      {"PADDLE_PORT", "9000"}};
  ASSERT_OK_AND_ASSIGN(const LaunchPlan plan,
                       Plan({"--use_paddlecloud", "--gpus=0,1"}, cloud));
  EXPECT_EQ(ToString(plan.workers),
            "10.0.0.1:9000,10.0.0.1:9001,10.0.0.2:9000,10.0.0.2:9001");
  EXPECT_EQ(plan.processes[0].index, 2);
  EXPECT_EQ(Plan({}, cloud)->workers.size(), 2u);  // found out
  EXPECT_THAT(Plan({"--use_paddlecloud"}),
              StatusIs(kInvalid, HasSubstr("PADDLE_TRAINERS")));
}

// Parameter servers.

TEST(LaunchPlan, StartsServersAndWorkers) {
  ASSERT_OK_AND_ASSIGN(LaunchPlan plan,
                       Plan({"--worker_num=2", "--server_num=1"}));
  EXPECT_EQ(plan.mode, LaunchMode::kServers);
  ASSERT_EQ(plan.processes.size(), 3u);
  plan.servers[0].port = 7000;
  plan.workers[0].port = 7001;
  plan.workers[1].port = 7002;
  const cluster::Environment server = EnvironmentOf(plan, 0);
  EXPECT_EQ(server.at("TRAINING_ROLE"), "PSERVER");
  EXPECT_EQ(server.at("PADDLE_PORT"), "7000");
  EXPECT_EQ(server.at("POD_IP"), "127.0.0.1");
  EXPECT_FALSE(server.contains("PADDLE_TRAINER_ID"));
  const auto role =
      cluster::RoleFromEnvironment(server, /*is_collective=*/false);
  ASSERT_OK(role.status());
  EXPECT_TRUE(role->is_server());

  const cluster::Environment worker = EnvironmentOf(plan, 2);
  EXPECT_EQ(worker.at("TRAINING_ROLE"), "TRAINER");
  EXPECT_EQ(worker.at("PADDLE_TRAINER_ID"), "1");
  EXPECT_EQ(worker.at("PADDLE_PSERVERS_IP_PORT_LIST"), "127.0.0.1:7000");
  const auto worker_role = cluster::RoleFromEnvironment(worker, false);
  ASSERT_OK(worker_role.status());
  EXPECT_EQ(worker_role->worker_num, 2);
  EXPECT_EQ(LogNameOf(plan.processes[0]), "serverlog.0");
  EXPECT_EQ(LogNameOf(plan.processes[2]), "workerlog.1");
  EXPECT_EQ(NameOf(plan, plan.processes[2]), "worker 1");
}

TEST(LaunchPlan, LetsServersComeBackWhereTheyNoteTheirSaves) {
  ASSERT_OK_AND_ASSIGN(LaunchPlan plan,
                       Plan({"--worker_num=1", "--server_num=1"}));
  EXPECT_FALSE(EnvironmentOf(plan, 0).contains("FLEET_PS_LAST_SAVE"));
  EXPECT_FALSE(EnvironmentOf(plan, 1).contains("FLEET_PS_RECONNECT"));
  EXPECT_FALSE(EnvironmentOf(plan, 0, {{"FLEET_PS_DURABILITY_DEFAULT", "log"}})
                   .contains("FLEET_PS_DURABILITY_DEFAULT"));
  EXPECT_EQ(DurabilityOf(plan, {}), "none");
  plan.notes_folder = "/job/log";
  const cluster::Environment server =
      EnvironmentOf(plan, 0, {{"FLEET_PS_LAST_SAVE", "of another job"}});
  EXPECT_EQ(server.at("FLEET_PS_LAST_SAVE"), "/job/log/serverlog.0.saved");
  EXPECT_FALSE(server.contains("FLEET_PS_RECONNECT"));
  EXPECT_EQ(server.at("FLEET_PS_DURABILITY_DEFAULT"), "log");
  EXPECT_EQ(DurabilityOf(plan, {}), "log");
  EXPECT_EQ(DurabilityOf(plan, {{"FLEET_PS_DURABILITY", "none"}}), "none");
  EXPECT_EQ(EnvironmentOf(plan, 1).at("FLEET_PS_RECONNECT"), "300");
  EXPECT_EQ(EnvironmentOf(plan, 1, {{"FLEET_PS_RECONNECT", "7"}})
                .at("FLEET_PS_RECONNECT"),
            "7");
}

TEST(LaunchPlan, ReadsListsOfServersAndWorkers) {
  ASSERT_OK_AND_ASSIGN(const LaunchPlan plan,
                       Plan({"--servers=10.0.0.1:6170,10.0.0.2:6170",
                             "--workers=10.0.0.2,10.0.0.1"}));
  EXPECT_EQ(ToString(plan.workers), "10.0.0.2:6172,10.0.0.1:6173");
  ASSERT_EQ(plan.processes.size(), 2u);
  EXPECT_EQ(plan.processes[0].kind, cluster::RoleKind::kServer);
  EXPECT_EQ(plan.processes[0].index, 1);
  EXPECT_EQ(plan.processes[1].index, 0);
}

TEST(LaunchPlan, GivesEveryHostItsServers) {
  ASSERT_OK_AND_ASSIGN(
      const LaunchPlan plan,
      Plan({"--cluster_node_ips=10.0.0.1,10.0.0.2", "--node_ip=10.0.0.2",
            "--run_mode=ps", "--worker_num=1"}));
  EXPECT_EQ(ToString(plan.servers),
            "10.0.0.1:6170,10.0.0.1:6171,10.0.0.2:6170,10.0.0.2:6171");
  EXPECT_EQ(ToString(plan.workers), "10.0.0.1:6172,10.0.0.2:6172");
  EXPECT_EQ(plan.processes.size(), 3u);
}

TEST(LaunchPlan, HasServersAndWorkersWithoutAMaster) {
  EXPECT_THAT(Plan({"--worker_num=2", "--server_num=0"}),
              StatusIs(kInvalid, HasSubstr("--server_num=0")));
  EXPECT_THAT(Plan({"--worker_num=0", "--server_num=1"}),
              StatusIs(kInvalid, HasSubstr("--worker_num=0")));
}

TEST(LaunchPlan, SaysWhatAJobOfServersLacks) {
  EXPECT_THAT(Plan({"--worker_num=2"}),
              StatusIs(kInvalid, HasSubstr("must has server_num or servers")));
  EXPECT_THAT(
      Plan({"--servers=10.0.0.2:1", "--workers=10.0.0.2:2", "--worker_num=2"}),
      StatusIs(kInvalid, HasSubstr("--workers names 1")));
  EXPECT_THAT(Plan({"--servers=10.0.0.2:1", "--worker_num=2"}),
              StatusIs(kInvalid, HasSubstr("--workers")));
}

// The machine.

TEST(CountGpus, CountsDeviceFilesThatAreVisible) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / "count_gpus";
  std::filesystem::create_directories(root / "dev");
  EXPECT_EQ(CountGpus({}, root), 0);
  for (const char* name : {"nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm"}) {
    std::ofstream(root / "dev" / name).put('x');
  }
  EXPECT_EQ(CountGpus({}, root), 2);
  EXPECT_EQ(CountGpus({{"CUDA_VISIBLE_DEVICES", "0"}}, root), 1);
  EXPECT_EQ(CountGpus({{"CUDA_VISIBLE_DEVICES", "3,0"}}, root), 2);
  EXPECT_EQ(CountGpus({{"CUDA_VISIBLE_DEVICES", ""}}, root), 0);
  EXPECT_EQ(CountGpus({{"CUDA_VISIBLE_DEVICES", "-1"}}, root), 0);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace fleet::launch
