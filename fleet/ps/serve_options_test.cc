// SPDX-License-Identifier: Apache-2.0

// What the environment says to servers and workers.

#include <string>
#include <utility>
#include <vector>

#include "fleet/ps/serve.h"
#include "fleet/testing/ps_fixtures.h"

namespace fleet::ps {
namespace {

using cluster::Environment;
using testing::AllOf;
using testing::HasSubstr;

Environment ServerEnvironment() {
  return {{"PADDLE_PSERVERS_IP_PORT_LIST", "10.0.0.1:71,10.0.0.2:72"},
          {"PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:81,10.0.0.2:82,10.0.0.2:83"},
          {"PADDLE_TRAINERS_NUM", "3"},
          {"TRAINING_ROLE", "PSERVER"},
          {"POD_IP", "10.0.0.2"},
          {"PADDLE_PORT", "72"}};
}

Result<ServeOptions> Read(const Environment& env) {
  ASSIGN_OR_RETURN(const cluster::Role role,
                   cluster::RoleFromEnvironment(env, false));
  return ReadServeOptions(role, env);
}

TEST(ServeOptions, ComeFromTheEnvironment) {
  Environment env = ServerEnvironment();
  env["FLEET_SECRET"] = "of the job";
  env["FLEET_LISTEN_FD"] = "7";
  env["FLEET_PS_GO_ON"] = "1";
  env["FLEET_PS_WORKER_GRACE"] = "2.5";
  env["FLEET_PS_MEMORY_MB"] = "3";
  env["FLEET_PS_LOAD"] = "models/7";
  env["FLEET_PS_REPORT"] = "0";
  env["FLEET_PS_CHANNEL"] = "tcp";
  env["FLEET_SERVER_EPOCH"] = "3";
  env["FLEET_PS_DURABILITY"] = "log";
  env["FLEET_PS_LOG_DIR"] = "logs";
  env["FLEET_PS_LOG_MB"] = "40";
  env["FLEET_PS_ON_DATA_LOSS"] = "go_on";
  const auto options = Read(env);
  ASSERT_OK(options);
  EXPECT_EQ(options->address.ToString(), "10.0.0.2:72");
  EXPECT_EQ(options->listen_fd, 7);
  EXPECT_EQ(options->report_every, 0ms);
  EXPECT_EQ(options->server.rank, 1);
  EXPECT_EQ(options->server.epoch, 3u);
  EXPECT_EQ(options->server.num_servers, 2u);
  EXPECT_EQ(options->server.num_workers, 3);
  EXPECT_EQ(options->server.processes_on_host, 3);
  EXPECT_EQ(options->server.trust.secret,
            channel::Secret::FromText("of the job").value());
  EXPECT_EQ(options->server.worker_grace, 2500ms);
  EXPECT_TRUE(options->server.go_on_without_lost_workers);
  EXPECT_EQ(options->server.max_table_byte_size, 3u << 20);
  EXPECT_EQ(options->server.load_folder, "models/7");
  EXPECT_FALSE(options->server.shared_memory);
  EXPECT_EQ(options->server.log_folder, "logs/server.1-of-2");
  EXPECT_EQ(options->server.checkpoint_byte_size, 40u << 20);
  EXPECT_EQ(options->on_data_loss, OnDataLoss::kGoOn);
}

TEST(ServeOptions, TakeTheDurabilityThatIsSaidBeforeTheDefault) {
  Environment env = ServerEnvironment();
  EXPECT_EQ(Read(env)->server.durability, Durability::kNone);
  env["FLEET_PS_DURABILITY_DEFAULT"] = "log";
  EXPECT_THAT(Read(env), StatusIs(StatusCode::kInvalidArgument,
                                  HasSubstr("FLEET_PS_LOG_DIR")));
  env["FLEET_PS_LOG_DIR"] = "logs";
  EXPECT_EQ(Read(env)->server.durability, Durability::kLog);
  env["FLEET_PS_DURABILITY"] = "none";
  EXPECT_EQ(Read(env)->server.durability, Durability::kNone);
  env["FLEET_PS_DURABILITY"] = "disk";
  EXPECT_THAT(Read(env), StatusIs(StatusCode::kInvalidArgument,
                                  HasSubstr("none, log or log-sync")));
}

TEST(ServeOptions, NameTheVariableThatIsWrong) {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{
           {"FLEET_PS_GO_ON", "perhaps"},
           {"FLEET_PS_CHANNEL", "pigeon"},
           {"FLEET_PS_MEMORY_MB", "-1"},
           {"FLEET_PS_REPORT", "soon"}}) {
    Environment env = ServerEnvironment();
    env[name] = value;
    EXPECT_THAT(Read(env), StatusIs(StatusCode::kInvalidArgument,
                                    AllOf(HasSubstr(name), HasSubstr(value))));
  }
}

TEST(ServeOptions, AreOfServersOnly) {
  Environment env = ServerEnvironment();
  env["TRAINING_ROLE"] = "TRAINER";
  env["PADDLE_TRAINER_ID"] = "2";
  EXPECT_THAT(Read(env),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no server")));
}

TEST(ConnectOptions, ComeFromTheEnvironment) {
  Environment env = ServerEnvironment();
  env["TRAINING_ROLE"] = "TRAINER";
  env["PADDLE_TRAINER_ID"] = "2";
  env["FLEET_PS_RECONNECT"] = "4";
  env["FLEET_START_TIMEOUT"] = "9";
  env["FLEET_PS_ON_DATA_LOSS"] = "go_on";
  const auto role = cluster::RoleFromEnvironment(env, false);
  ASSERT_OK(role);
  const auto options = ReadConnectOptions(*role, env);
  ASSERT_OK(options);
  EXPECT_EQ(options->client.worker, 2);
  EXPECT_EQ(options->client.reconnect_for, 4s);
  EXPECT_EQ(options->start_timeout, 9s);
  EXPECT_EQ(options->client.on_data_loss, OnDataLoss::kGoOn);
  ASSERT_EQ(options->servers.size(), 2u);
  EXPECT_EQ(options->servers[1].ToString(), "10.0.0.2:72");
  env["FLEET_PS_ON_DATA_LOSS"] = "pray";
  EXPECT_THAT(ReadConnectOptions(*role, env),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("FLEET_PS_ON_DATA_LOSS=pray")));
}

}  // namespace
}  // namespace fleet::ps
