// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Arguments = std::vector<std::string>;

LaunchOptions Parse(const Arguments& arguments) {
  auto parsed = ParseLaunchOptions(arguments);
  EXPECT_OK(parsed.status());
  return parsed.ok() ? std::get<LaunchOptions>(*parsed) : LaunchOptions();
}

Status ParseError(const Arguments& arguments) {
  return ParseLaunchOptions(arguments).status();
}

LaunchMode Mode(const Arguments& arguments) {
  return ModeOf(Parse(arguments)).value();
}

TEST(LaunchOptions, AreReadWithAnEqualsSignAndWithout) {
  EXPECT_EQ(Parse({"--gpus=0,1", "t.py"}).gpus, "0,1");
  EXPECT_EQ(Parse({"--gpus", "0,1", "t.py"}).gpus, "0,1");
  EXPECT_EQ(Parse({"--worker_num", "2", "t.py"}).worker_num, 2);
  EXPECT_EQ(Parse({"--ips=a,b", "t.py"}).ips, "a,b");
}

TEST(LaunchOptions, KnowTheNamesOfAllVersions) {
  for (const char* name :
       {"--gpus", "--selected_gpus", "--seletected_gpus", "--devices"}) {
    EXPECT_EQ(Parse({name, "0,1", "t.py"}).gpus, "0,1") << name;
  }
  for (const char* name : {"--ips", "--cluster_node_ips"}) {
    EXPECT_EQ(Parse({name, "a", "t.py"}).ips, "a") << name;
  }
  for (const char* name : {"--host", "--node_ip"}) {
    EXPECT_EQ(Parse({name, "a", "t.py"}).host, "a") << name;
  }
  for (const char* name : {"--start_port", "--started_port"}) {
    EXPECT_EQ(Parse({name, "7000", "t.py"}).start_port, 7000) << name;
  }
  for (const char* name : {"--servers", "--endpoints"}) {
    EXPECT_EQ(Parse({name, "a:1", "t.py"}).servers, "a:1") << name;
  }
  EXPECT_TRUE(Parse({"--use_paddlecloud", "t.py"}).use_paddlecloud);
  EXPECT_EQ(Parse({"--print_config", "False", "t.py"}).print_config, false);
  EXPECT_EQ(Parse({"--rank", "1", "t.py"}).node_rank, 1);
  EXPECT_EQ(Parse({"--max_restart=2", "t.py"}).max_restarts, 2);
  EXPECT_EQ(Parse({"--secret-file=s", "t.py"}).secret_file, "s");
}

TEST(LaunchOptions, LeaveTheScriptItsArguments) {
  const LaunchOptions options =
      Parse({"--gpus=0", "t.py", "--gpus", "9", "--help", "-x",
             "--worker_num=3", "--", "file"});
  EXPECT_EQ(options.script, "t.py");
  EXPECT_THAT(options.script_arguments,
              ElementsAre("--gpus", "9", "--help", "-x", "--worker_num=3", "--",
                          "file"));
  EXPECT_EQ(options.gpus, "0");
  EXPECT_EQ(ModeOf(options).value(), LaunchMode::kCollective);
  EXPECT_THAT(Parse({"t.py"}).script_arguments, IsEmpty());
}

TEST(LaunchOptions, TakeTheLastOfSeveral) {
  EXPECT_EQ(Parse({"--worker_num=2", "--worker_num=3", "t.py"}).worker_num, 3);
}

TEST(LaunchOptions, NameTheFlagThatIsWrong) {
  EXPECT_THAT(ParseError({"--gpu=0", "t.py"}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("--gpu ")));
  EXPECT_THAT(
      ParseError({"--nproc_per_node=two", "t.py"}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("--nproc_per_node")));
  EXPECT_THAT(
      ParseError({"--nproc_per_node=0", "t.py"}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("--nproc_per_node")));
  EXPECT_THAT(ParseError({"--gpus=0"}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no script")));
  EXPECT_THAT(ParseError({"--xpus=0", "t.py"}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("no support for XPU devices")));
}

TEST(LaunchOptions, ExplainThemselves) {
  const auto help = ParseLaunchOptions({"--gpus=0", "--help"});
  ASSERT_OK(help.status());
  const std::string& text = std::get<LaunchHelp>(*help).text;
  EXPECT_THAT(text, HasSubstr("fleetrun [OPTIONS] SCRIPT"));
  EXPECT_THAT(text, HasSubstr("--seletected_gpus"));
  EXPECT_THAT(text, HasSubstr("fleetrun --worker_num=2 --server_num=2"));
}

TEST(LaunchOptions, PrintConfigMayStandAlone) {
  EXPECT_EQ(Parse({"t.py"}).print_config, std::nullopt);
  EXPECT_EQ(Parse({"--print_config=0", "t.py"}).print_config, false);
  EXPECT_EQ(Parse({"--print_config", "1", "t.py"}).print_config, true);
  const LaunchOptions alone =
      Parse({"--gpus", "0", "--use_paddlecloud", "--print_config", "t.py",
             "--print_config"});
  EXPECT_EQ(alone.print_config, true);
  EXPECT_EQ(alone.script, "t.py");
  EXPECT_THAT(alone.script_arguments, ElementsAre("--print_config"));
  // A value that looks like it belongs to its own flag.
  EXPECT_EQ(Parse({"--job_id", "--print_config", "t.py"}).print_config,
            std::nullopt);
}

TEST(LaunchOptions, LevelsAreThoseOfTheLog) {
  EXPECT_EQ(Parse({"--log_level", "warning", "t.py"}).log_level, "WARNING");
  EXPECT_THAT(ParseError({"--log_level=LOUD", "t.py"}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("--log_level")));
}

TEST(LaunchMode, FollowsTheFlags) {
  EXPECT_EQ(Mode({"t.py"}), LaunchMode::kCollective);
  EXPECT_EQ(Mode({"--gpus=0,1", "t.py"}), LaunchMode::kCollective);
  EXPECT_EQ(Mode({"--ips=a,b", "t.py"}), LaunchMode::kCollective);
  EXPECT_EQ(Mode({"--worker_num=1", "t.py"}), LaunchMode::kServers);
  EXPECT_EQ(Mode({"--servers=a:1", "t.py"}), LaunchMode::kServers);
  EXPECT_EQ(Mode({"--server_program=s", "t.py"}), LaunchMode::kServers);
  EXPECT_EQ(Mode({"--run_mode=ps", "t.py"}), LaunchMode::kServers);
  EXPECT_EQ(Mode({"--run_mode=collective", "--worker_num=1", "t.py"}),
            LaunchMode::kCollective);
  EXPECT_THAT(ModeOf(Parse({"--run_mode=both", "t.py"})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("'both'")));
}

TEST(LaunchOptions, TheShortBannerHasThoseThatWereGiven) {
  EXPECT_EQ(DescribeGivenOptions(Parse({"--gpus=0,1", "t.py", "-a"})),
            "gpus=0,1 training_script=t.py training_script_args=['-a']");
}

TEST(LaunchOptions, AreDescribedAsPaddleDoes) {
  EXPECT_EQ(DescribeOptions(Parse({"--gpus=0,1", "t.py", "-a", "it's"})),
            "gpus: 0,1\n"
            "heter_worker_num: None\n"
            "heter_workers: \n"
            "http_port: None\n"
            "ips: 127.0.0.1\n"
            "log_dir: log\n"
            "nproc_per_node: None\n"
            "server_num: None\n"
            "servers: \n"
            "training_script: t.py\n"
            "training_script_args: ['-a', 'it\\'s']\n"
            "worker_num: None\n"
            "workers: \n");
}

}  // namespace
}  // namespace fleet::launch
