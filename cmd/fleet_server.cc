// SPDX-License-Identifier: Apache-2.0

// A parameter server as a program of its own, for jobs whose workers are
// programs that know nothing of serving. See docs/howto/parameter-server.md.

#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/log.h"
#include "fleet/cluster/endpoint.h"
#include "fleet/cluster/environment.h"
#include "fleet/cluster/role.h"
#include "fleet/ps/serve.h"

namespace {

using fleet::InvalidArgument;
using fleet::Result;
using fleet::Status;
using fleet::cluster::Endpoint;
using fleet::cluster::Environment;
using fleet::cluster::Role;

constexpr int kFailed = 1;
constexpr int kCannotStart = 2;

constexpr const char* kHelp = R"(Usage: fleet_server [OPTIONS]

Serves the tables of a training job until the last of its workers has stopped.
Exit code: 0 then, 1 when workers were lost, 2 when it could not start.

Under fleetrun it needs no options:
  fleetrun --server_num 2 --worker_num 2 --server_program fleet_server ./train
Otherwise, on each host:
  fleet_server --servers 10.0.0.1:6170,10.0.0.2:6170 --rank 0 --workers 4

Options:
  --servers LIST|N   ip:port of all servers, or how many there are
  --rank N           which of them this is; else the one at --endpoint, else 0
  --endpoint IP:PORT where it listens; else its place in --servers. Port 0: any
  --workers N        how many workers the job has
  --load DIR         tables begin with the newest save in this folder
  --durability KIND  what survives of acknowledged updates: none (what was
                     saved), log (all, when the server is killed) or log-sync
                     (all, when its host fails). Else FLEET_PS_DURABILITY
  --log-dir DIR      where the log is; started again with it, the server has
                     its tables again. Else FLEET_PS_LOG_DIR
  --help             this text

Without --servers and --endpoint the role comes from the environment, as
fleetrun sets it. Times, limits and reports: FLEET_* in docs/configuration.md.
)";

struct Flags {
  std::optional<std::string> servers, endpoint, load, durability, log_dir;
  std::optional<int> rank, workers;
  bool help = false;
};

Result<int> ReadNumber(std::string_view text, std::string_view flag) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end && number >= 0) return number;
  return InvalidArgument(flag, " ", text, ": is no number");
}

Result<Flags> ParseFlags(const std::vector<std::string>& arguments) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    if (name == "--help" || name == "-h") {
      flags.help = true;
      return flags;
    }
    const bool is_text = name == "--servers" || name == "--endpoint" ||
                         name == "--load" || name == "--durability" ||
                         name == "--log-dir";
    if (!is_text && name != "--rank" && name != "--workers") {
      return InvalidArgument("unknown option ", name,
                             " (see fleet_server --help)");
    }
    if (equals == std::string::npos && ++i == arguments.size()) {
      return InvalidArgument(name, " needs a value");
    }
    const std::string value = equals == std::string::npos
                                  ? arguments[i]
                                  : arguments[i].substr(equals + 1);
    if (name == "--servers") flags.servers = value;
    if (name == "--endpoint") flags.endpoint = value;
    if (name == "--load") flags.load = value;
    if (name == "--durability") flags.durability = value;
    if (name == "--log-dir") flags.log_dir = value;
    if (is_text) continue;
    ASSIGN_OR_RETURN((name == "--rank" ? flags.rank : flags.workers),
                     ReadNumber(value, name));
  }
  return flags;
}

// "ip:port", where the port may also be 0.
Result<Endpoint> ParsePlace(const std::string& text) {
  if (text.ends_with(":0")) {
    ASSIGN_OR_RETURN(Endpoint place,
                     fleet::cluster::ParseEndpoint(
                         text.substr(0, text.size() - 1) + "1", "--endpoint"));
    place.port = 0;
    return place;
  }
  return fleet::cluster::ParseEndpoint(text, "--endpoint");
}

// Who this server is by what the user says.
Result<Role> RoleFromFlags(const Flags& flags) {
  Role role;
  role.kind = fleet::cluster::RoleKind::kServer;
  role.source = fleet::cluster::RoleSource::kUser;
  if (!flags.workers || *flags.workers < 1) {
    return InvalidArgument("--workers: how many workers does the job have?");
  }
  role.worker_num = *flags.workers;
  std::optional<Endpoint> own;
  if (flags.endpoint) {
    ASSIGN_OR_RETURN(own, ParsePlace(*flags.endpoint));
  }
  role.index = flags.rank.value_or(0);
  role.server_num = 1;
  if (flags.servers && flags.servers->find(':') != std::string::npos) {
    ASSIGN_OR_RETURN(role.server_endpoints, fleet::cluster::ParseEndpointList(
                                                *flags.servers, "--servers"));
    role.server_num = static_cast<int>(role.server_endpoints.size());
    for (size_t i = 0; own && !flags.rank && i < role.server_endpoints.size();
         ++i) {
      if (role.server_endpoints[i] == *own) role.index = static_cast<int>(i);
    }
  } else if (flags.servers) {
    ASSIGN_OR_RETURN(role.server_num, ReadNumber(*flags.servers, "--servers"));
  }
  if (role.index >= role.server_num) {
    return InvalidArgument("--rank ", role.index, ", but there ",
                           role.server_num == 1 ? "is " : "are ",
                           role.server_num, " by --servers");
  }
  if (!own && role.server_endpoints.empty()) {
    return InvalidArgument("--endpoint: where shall this server listen?");
  }
  if (!own) own = role.server_endpoints[static_cast<size_t>(role.index)];
  role.current_endpoint = own;
  return role;
}

Result<fleet::ps::ServeOptions> ReadOptions(const Flags& flags,
                                            Environment env) {
  if (flags.durability) env["FLEET_PS_DURABILITY"] = *flags.durability;
  if (flags.log_dir) env["FLEET_PS_LOG_DIR"] = *flags.log_dir;
  Role role;
  if (flags.servers || flags.endpoint) {
    ASSIGN_OR_RETURN(role, RoleFromFlags(flags));
  } else {
    ASSIGN_OR_RETURN(role, fleet::cluster::RoleFromEnvironment(env, false));
    if (role.non_distributed) {
      return InvalidArgument(
          "neither options nor the environment say which server this is (see "
          "fleet_server --help)");
    }
  }
  ASSIGN_OR_RETURN(fleet::ps::ServeOptions options,
                   fleet::ps::ReadServeOptions(role, env));
  if (flags.load) options.server.load_folder = *flags.load;
  return options;
}

int Say(const Status& failure, int exit_code) {
  std::fprintf(stderr, "fleet_server: %s\n", failure.message().c_str());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  const Result<Flags> flags = ParseFlags({argv + 1, argv + argc});
  if (!flags.ok()) return Say(flags.status(), kCannotStart);
  if (flags->help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  const auto options = ReadOptions(*flags, fleet::cluster::ReadEnvironment());
  if (!options.ok()) return Say(options.status(), kCannotStart);
  auto serving = fleet::ps::Serving::Start(*options);
  if (!serving.ok()) return Say(serving.status(), kCannotStart);
  const Status served = (*serving)->Run();
  return served.ok() ? 0 : Say(served, kFailed);
}
