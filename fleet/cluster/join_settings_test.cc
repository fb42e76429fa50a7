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
  EXPECT_EQ(ReadJoinSettings(env)->options.trust.secret, "of the variable");
  env["FLEET_SECRET_FILE"] = path;
  EXPECT_EQ(ReadJoinSettings(env)->options.trust.secret, "of the file");
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

TEST(JoinSettings, TakesTheNumberOfTheLaunchersSocket) {
  Environment env = {{"FLEET_LISTEN_FD", "7"}};
  EXPECT_EQ(ReadJoinSettings(env)->options.listen_fd, 7);
  env["FLEET_LISTEN_FD"] = "three";
  EXPECT_THAT(ReadJoinSettings(env), HasCode(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace fleet::cluster
