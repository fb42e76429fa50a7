// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/join_settings.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "fleet/base/status_matchers.h"

namespace fleet::cluster {
namespace {

using channel::Secret;
using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

TEST(JoinSettings, HaveDefaults) {
  ASSERT_OK_AND_ASSIGN(const JoinSettings settings, ReadJoinSettings({}));
  EXPECT_EQ(settings.start_timeout, 300s);
  EXPECT_EQ(settings.options.trust.secret, "");
  EXPECT_EQ(settings.options.listen_fd, -1);
  EXPECT_EQ(settings.options.heartbeat_patience, 10s);
  EXPECT_EQ(settings.options.heartbeat_interval, 1s);
}

TEST(JoinSettings, ReadsTimes) {
  ASSERT_OK_AND_ASSIGN(const JoinSettings settings,
                       ReadJoinSettings({{"FLEET_START_TIMEOUT", "20"},
                                         {"FLEET_HEARTBEAT_TIMEOUT", "2.5"}}));
  EXPECT_EQ(settings.start_timeout, 20s);
  EXPECT_EQ(settings.options.heartbeat_patience, 2500ms);
  EXPECT_EQ(settings.options.heartbeat_interval, 500ms);
}

TEST(JoinSettings, RefusesOtherTimes) {
  for (const char* text : {"", "0", "-1", "nan", "inf", "10s", "1e99"}) {
    EXPECT_THAT(
        ReadJoinSettings({{"FLEET_START_TIMEOUT", text}}),
        StatusIs(StatusCode::kInvalidArgument,
                 HasSubstr(std::string("FLEET_START_TIMEOUT=") + text)));
  }
}

TEST(JoinSettings, TakesTheSecretOfTheFileFirst) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("fleet-secret-" + std::to_string(getpid()));
  std::ofstream(path) << "of the file\n";
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  Environment env = {{"FLEET_SECRET", "of the variable"}};
  EXPECT_EQ(ReadJoinSettings(env)->options.trust.secret,
            Secret::FromText("of the variable").value());
  env["FLEET_SECRET_FILE"] = path;
  EXPECT_EQ(ReadJoinSettings(env)->options.trust.secret,
            Secret::FromText("of the file").value());
  std::ofstream(path) << "\n";
  EXPECT_THAT(ReadJoinSettings(env),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("empty")));
  std::filesystem::remove(path);
  EXPECT_THAT(ReadJoinSettings(env), HasCode(StatusCode::kNotFound));
}

TEST(JoinSettings, TakesNoSecretThatOthersCanRead) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("fleet-secret-modes-" + std::to_string(getpid()));
  std::ofstream(path) << "secret";
  for (const mode_t mode : {0600, 0400, 0440, 0640}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_OK(ReadSecretFile(path));
  }
  for (const mode_t mode : {0644, 0604, 0602, 0620, 0666}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_THAT(
        ReadJoinSettings({{"FLEET_SECRET_FILE", path}}),
        StatusIs(StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr(path.string()), HasSubstr("chmod 600"))));
  }
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  std::ofstream(path) << std::string(5000, 'x');
  EXPECT_THAT(ReadSecretFile(path), HasCode(StatusCode::kInvalidArgument));
  std::filesystem::remove(path);
  EXPECT_THAT(ReadSecretFile("/dev"), HasCode(StatusCode::kInvalidArgument));
}

TEST(JoinSettings, CanRequireASecret) {
  JoinOptions options = ReadJoinSettings({})->options;
  EXPECT_OK(CheckSecretRequired(options));
  const Environment env = {{"FLEET_REQUIRE_SECRET", "1"}};
  options = ReadJoinSettings(env)->options;
  EXPECT_THAT(CheckSecretRequired(options),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("FLEET_REQUIRE_SECRET"),
                             HasSubstr("FLEET_SECRET_FILE"))));
  options.trust.secret = "secret";
  EXPECT_OK(CheckSecretRequired(options));
  EXPECT_THAT(ReadJoinSettings({{"FLEET_REQUIRE_SECRET", "yes"}}),
              HasCode(StatusCode::kInvalidArgument));
}

TEST(JoinSettings, TheKeyOfOpenMpisTransportsMakesASecret) {
  Environment env = {{"OMPI_COMM_WORLD_RANK", "1"},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"PMIX_NAMESPACE", "4711"},
                     {"OMPI_MCA_orte_precondition_transports",
                      "5fcdfc93795e9521-ba13de4976090394"}};
  ASSERT_OK_AND_ASSIGN(const Role role, RoleFromEnvironment(env, true));
  JoinOptions options;
  ASSERT_OK(AddLaunchersSecret(role, env, options));
  const Secret first = options.trust.secret;
  EXPECT_EQ(first.text().size(), 64u);
  // Names are seen by everybody on the host, and must not tell it.
  EXPECT_EQ(role.meeting_name.find(first.text().substr(0, 16)),
            std::string::npos);
  env["OMPI_MCA_orte_precondition_transports"].back() = '5';
  options = {};
  ASSERT_OK(AddLaunchersSecret(role, env, options));
  EXPECT_FALSE(options.trust.secret == first);
  // One that was given goes before it.
  options.trust.secret = "given";
  ASSERT_OK(AddLaunchersSecret(role, env, options));
  EXPECT_EQ(options.trust.secret, "given");
  // And no other launcher's variables make one.
  env.erase("OMPI_MCA_orte_precondition_transports");
  options = {};
  ASSERT_OK(AddLaunchersSecret(role, env, options));
  EXPECT_TRUE(options.trust.secret.empty());
}

TEST(JoinSettings, NamesTheHostsOfAJobWithoutASecret) {
  Role role;
  role.worker_num = 3;
  role.worker_endpoints = {{"10.0.0.1", 1}, {"10.0.0.2", 1}, {"10.0.0.1", 2}};
  role.server_endpoints = {{"10.0.0.3", 1}};
  channel::Trust trust;
  NameHosts(role, trust);
  EXPECT_THAT(trust.named_hosts,
              testing::ElementsAre("10.0.0.1", "10.0.0.2", "10.0.0.3"));
  EXPECT_EQ(WhoCanJoin(trust.named_hosts),
            "whoever reaches its ports from 10.0.0.1, 10.0.0.2, 10.0.0.3");
  EXPECT_EQ(WhoCanJoin({}), "whoever reaches its ports");
  channel::Trust of_some;
  role.worker_num = 4;  // of one of which nobody knows where it is
  NameHosts(role, of_some);
  EXPECT_TRUE(of_some.named_hosts.empty());
  role.worker_num = 3;
  channel::Trust with_secret = {"secret"};
  NameHosts(role, with_secret);
  EXPECT_TRUE(with_secret.named_hosts.empty());
}

TEST(JoinSettings, TakesTheNumberOfTheLaunchersSocket) {
  Environment env = {{"FLEET_LISTEN_FD", "7"}};
  EXPECT_EQ(ReadJoinSettings(env)->options.listen_fd, 7);
  env["FLEET_LISTEN_FD"] = "three";
  EXPECT_THAT(ReadJoinSettings(env), HasCode(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace fleet::cluster
