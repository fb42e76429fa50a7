// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/options.h"

#include <algorithm>
#include <cctype>
#include <map>

#include <CLI/CLI.hpp>

namespace fleet::launch {
namespace {

constexpr const char* kDescription =
    "Starts the processes of a training job: Python scripts (*.py) or any\n"
    "executable. Arguments behind the script belong to the script.\n";

constexpr const char* kExamples = R"(
Examples:
  fleetrun train.py                            one rank per GPU; without GPUs one
  fleetrun --gpus=0,1 train.py --epochs 3      ranks on GPUs 0 and 1; without GPUs
                                               two ranks on the CPU
  fleetrun --nproc_per_node=4 ./train          four ranks of an executable
  fleetrun --ips=10.0.0.1,10.0.0.2 train.py    the same command on both hosts
  fleetrun --master=10.0.0.1:6070 --nnodes=2 train.py
                                               hosts find each other at the master
  fleetrun --worker_num=2 --server_num=2 train.py
                                               parameter servers on this host
  fleetrun --worker_num=2 --server_num=2 --server_program=fleet_server ./train
                                               for programs that only train
  fleetrun --servers=10.0.0.1:6170 --workers=10.0.0.1,10.0.0.2 train.py
                                               and on several hosts
  fleetrun --master=10.0.0.1:6070 --nnodes=2 --server_num=1 --worker_num=0 train.py
                                               a host of servers; on the other
                                               --server_num=0 --worker_num=4

Logs are in log/workerlog.N and log/serverlog.N; that of the first local rank is
also on the screen. More: docs/howto/launch.md.
)";

// Adds an option whose last value counts.
template <typename T>
CLI::Option* Add(CLI::App& app, const char* names, T& value,
                 const char* meaning) {
  return app.add_option(names, value, meaning)
      ->take_last()
      ->capture_default_str();
}

void AddFlags(CLI::App& app, LaunchOptions& o) {
  app.option_defaults()->group("Processes");
  Add(app, "--gpus,--selected_gpus,--seletected_gpus,--devices", o.gpus,
      "GPUs of this host, one rank each: 0,1. \"cpu\": none");
  Add(app, "--nproc_per_node", o.nproc_per_node,
      "Ranks on each host; they share the GPUs evenly")
      ->check(CLI::PositiveNumber);
  Add(app, "--run_mode", o.run_mode, "collective, ps or ps-heter");
  Add(app, "--backend", o.backend, "auto, nccl, or gloo, which means the CPU");

  app.option_defaults()->group("Hosts");
  Add(app, "--ips,--cluster_node_ips", o.ips,
      "Addresses of all hosts: 10.0.0.1,10.0.0.2");
  Add(app, "--host,--node_ip", o.host,
      "Which of them this one is; found out when not given");
  Add(app, "--started_port,--start_port", o.start_port,
      "First port of the ranks on each host (6070); on one host free ports are "
      "taken")
      ->check(CLI::Range(1, 65535));
  Add(app, "--master", o.master, "ip:port of the host where all hosts meet");
  Add(app, "--nnodes", o.nnodes, "How many hosts meet at --master")
      ->check(CLI::PositiveNumber);
  Add(app, "--rank", o.node_rank, "Which of them this is; else by arrival")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--use_paddlecloud", o.use_paddlecloud,
               "Hosts and ports from PaddleCloud's environment");
  Add(app, "--secret-file,--secret_file", o.secret_file,
      "File with the secret that all hosts of the job share");

  app.option_defaults()->group("Parameter servers");
  Add(app, "--server_num", o.server_num,
      "Servers on this host; 0 for a host of workers, with --master")
      ->check(CLI::NonNegativeNumber);
  Add(app, "--worker_num,--trainer_num", o.worker_num,
      "Workers on this host; 0 for a host of servers, with --master")
      ->check(CLI::NonNegativeNumber);
  Add(app, "--heter_worker_num", o.heter_worker_num,
      "Workers of the other kind of device on this host")
      ->check(CLI::PositiveNumber);
  Add(app, "--servers,--endpoints", o.servers,
      "Servers of all hosts: 10.0.0.1:6170,10.0.0.2:6170");
  Add(app, "--workers,--trainers", o.workers,
      "Workers of all hosts, with or without ports");
  Add(app, "--heter_workers", o.heter_workers, "The same for the other kind");
  Add(app, "--server_program", o.server_program,
      "What servers run instead of the script: fleet_server, or another");
  Add(app, "--http_port", o.http_port,
      "Only told to the processes (PADDLE_GLOO_HTTP_ENDPOINT)");

  app.option_defaults()->group("Running");
  Add(app, "--log_dir", o.log_dir, "Folder of the logs");
  Add(app, "--max_restarts,--max_restart", o.max_restarts,
      "How often a failed job of one host, or a server that has saved, is "
      "started again")
      ->check(CLI::NonNegativeNumber);
  Add(app, "--grace", o.grace_seconds,
      "Seconds between SIGTERM and SIGKILL for processes that have to end")
      ->check(CLI::NonNegativeNumber);
  Add(app, "--server_grace", o.server_grace_seconds,
      "Seconds for servers to end by themselves after the last worker")
      ->check(CLI::NonNegativeNumber);
  Add(app, "--print_config", o.print_config,
      "Print all settings at the start; 0: not even three lines");
  Add(app, "--job_id", o.job_id,
      "Name of the job, in the first line and as PADDLE_JOB_ID for the "
      "processes");
  Add(app, "--log_level", o.log_level,
      "DEBUG, INFO, WARNING or ERROR: what fleetrun says and, unless "
      "FLEET_LOG_LEVEL is set, its processes")
      ->transform(CLI::IsMember({"DEBUG", "INFO", "WARNING", "ERROR"},
                                CLI::ignore_case));
}

// Flags of Paddle's for what does not exist here.
const std::map<std::string, std::string>& Refused() {
  static const std::map<std::string, std::string> refused = {
      {"--xpus", "XPU devices"},
      {"--npus", "NPU devices"},
      {"--heter_devices", "devices by kind of worker"},
      {"--elastic_server", "elastic jobs"},
      {"--elastic_level", "elastic jobs"},
      {"--elastic_timeout", "elastic jobs"},
      {"--np", "elastic jobs"},
      {"--scale", "elastic jobs"},
      {"--force", "elastic jobs"},
      {"--legacy", "Paddle's older launcher"},
      {"--with_gloo", "Gloo"},
      {"--gloo_port", "Gloo"},
  };
  return refused;
}

Status UnknownFlag(const std::string& argument) {
  const std::string flag = argument.substr(0, argument.find('='));
  if (const auto found = Refused().find(flag); found != Refused().end()) {
    return InvalidArgument(flag, ": there is no support for ", found->second);
  }
  return InvalidArgument("unknown flag ", flag, " (see fleetrun --help)");
}

// Whether `text` says yes or no, as in --print_config 0.
bool IsTruth(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text == "0" || text == "1" || text == "true" || text == "false";
}

// --print_config may stand alone, or have a value behind it; CLI11 would take
// the script for that. Gives it one where it stands among the flags.
std::vector<std::string> WithValues(std::vector<std::string> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& flag = arguments[i];
    if (!flag.starts_with("--") || flag == "--") break;
    if (flag == "--print_config") {
      const bool has_value =
          i + 1 < arguments.size() && IsTruth(arguments[i + 1]);
      arguments[i] += has_value ? "=" + arguments[i + 1] : "=1";
      if (has_value) arguments.erase(arguments.begin() + i + 1);
    } else if (flag.find('=') == flag.npos && flag != "--use_paddlecloud") {
      ++i;  // its value
    }
  }
  return arguments;
}

// As Python writes a list of texts.
std::string ListOf(const std::vector<std::string>& texts) {
  std::string list = "[";
  for (const std::string& text : texts) {
    if (list.size() > 1) list += ", ";
    list += "'";
    for (char c : text) {
      if (c == '\'' || c == '\\') list += '\\';
      list += c;
    }
    list += "'";
  }
  return list + "]";
}

}  // namespace

Result<std::variant<LaunchOptions, LaunchHelp>> ParseLaunchOptions(
    const std::vector<std::string>& arguments) {
  LaunchOptions options;
  CLI::App app(kDescription, "fleetrun");
  AddFlags(app, options);
  app.set_help_flag("-h,--help", "This text")->group("Running");
  app.prefix_command();
  app.footer(kExamples);
  // CLI11 takes them from the back.
  std::vector<std::string> reversed = WithValues(arguments);
  std::reverse(reversed.begin(), reversed.end());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::string text = app.help();
    // It knows of no script, so it names none.
    constexpr std::string_view kUsage = "fleetrun [OPTIONS]";
    if (const size_t at = text.find(kUsage); at != text.npos) {
      text.insert(at + kUsage.size(), " SCRIPT [ARGUMENTS OF THE SCRIPT]");
    }
    return LaunchHelp{std::move(text)};
  } catch (const CLI::Error& error) {
    return InvalidArgument(error.what());
  }
  std::vector<std::string> rest = app.remaining();
  // A lone "--" may stand before the script.
  if (!rest.empty() && rest.front() == "--") rest.erase(rest.begin());
  if (rest.empty()) {
    return InvalidArgument("no script to start (see fleetrun --help)");
  }
  if (rest.front().starts_with("-")) return UnknownFlag(rest.front());
  options.script = rest.front();
  options.script_arguments.assign(rest.begin() + 1, rest.end());
  return options;
}

Result<LaunchMode> ModeOf(const LaunchOptions& o) {
  if (o.run_mode) {
    if (*o.run_mode == "collective") return LaunchMode::kCollective;
    if (*o.run_mode == "ps" || *o.run_mode == "ps-heter") {
      return LaunchMode::kServers;
    }
    return InvalidArgument("--run_mode: '", *o.run_mode,
                           "' is none of collective, ps, ps-heter");
  }
  const bool servers = o.server_program || o.servers || o.workers ||
                       o.heter_workers || o.server_num || o.worker_num ||
                       o.heter_worker_num || o.http_port;
  return servers ? LaunchMode::kServers : LaunchMode::kCollective;
}

namespace {

std::map<std::string, std::string> Described(const LaunchOptions& o) {
  std::map<std::string, std::string> lines;
  const auto number = [](const std::optional<int>& value) {
    return value ? std::to_string(*value) : "None";
  };
  // Paddle's own, always.
  lines["gpus"] = o.gpus.value_or("None");
  lines["heter_worker_num"] = number(o.heter_worker_num);
  lines["heter_workers"] = o.heter_workers.value_or("");
  lines["http_port"] = number(o.http_port);
  lines["ips"] = o.ips.value_or("127.0.0.1");
  lines["log_dir"] = o.log_dir;
  lines["nproc_per_node"] = number(o.nproc_per_node);
  lines["server_num"] = number(o.server_num);
  lines["servers"] = o.servers.value_or("");
  lines["training_script"] = o.script;
  lines["training_script_args"] = ListOf(o.script_arguments);
  lines["worker_num"] = number(o.worker_num);
  lines["workers"] = o.workers.value_or("");
  // The others when they were given.
  const auto add = [&lines](const char* key, const auto& value) {
    if (value) lines[key] = base::Concat(*value);
  };
  add("run_mode", o.run_mode);
  add("backend", o.backend);
  add("host", o.host);
  add("master", o.master);
  add("nnodes", o.nnodes);
  add("rank", o.node_rank);
  add("started_port", o.start_port);
  add("server_program", o.server_program);
  add("secret_file", o.secret_file);
  add("job_id", o.job_id);
  add("log_level", o.log_level);
  if (o.use_paddlecloud) lines["use_paddlecloud"] = "True";
  if (o.max_restarts > 0) {
    lines["max_restarts"] = std::to_string(o.max_restarts);
  }
  return lines;
}

}  // namespace

std::string DescribeOptions(const LaunchOptions& options) {
  std::string text;
  for (const auto& [key, value] : Described(options)) {
    text += key + ": " + value + "\n";
  }
  return text;
}

std::string DescribeGivenOptions(const LaunchOptions& options) {
  const std::map<std::string, std::string> defaults =
      Described(LaunchOptions());
  std::string text;
  for (const auto& [key, value] : Described(options)) {
    const auto found = defaults.find(key);
    if (found != defaults.end() && found->second == value) continue;
    if (!text.empty()) text += ' ';
    text += key + "=" + value;
  }
  return text;
}

}  // namespace fleet::launch
