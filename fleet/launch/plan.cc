// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/plan.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "fleet/cluster/paddle_role.h"

namespace fleet::launch {
namespace {

// Paddle's first ports: of collective jobs, and of jobs with servers.
constexpr int kCollectivePort = 6070;
constexpr int kServersPort = 6170;
// How long workers wait for a server that is started again: it has to load its
// tables.
constexpr const char* kReconnectSeconds = "300";
// How many of each kind, where launch_ps is not told.
constexpr int kDefaultNum = 2;

std::vector<std::string> Split(std::string_view text) {
  std::vector<std::string> items;
  while (true) {
    const size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    const size_t first = item.find_first_not_of(" \t");
    item = first == item.npos
               ? std::string_view()
               : item.substr(first, item.find_last_not_of(" \t") - first + 1);
    items.emplace_back(item);
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

std::string Join(const std::vector<std::string>& items) {
  std::string joined;
  for (const std::string& item : items) {
    if (!joined.empty()) joined += ',';
    joined += item;
  }
  return joined;
}

std::optional<int> ToNumber(std::string_view text) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < 0) return std::nullopt;
  return number;
}

// The GPUs by the names that the user gives, as numbers among the visible.
Result<std::vector<std::string>> NamedGpus(const std::string& list,
                                           const cluster::Environment& env,
                                           const Machine& machine) {
  std::vector<std::string> gpus;
  std::set<int> seen;
  const std::string_view visible =
      cluster::Find(env, "CUDA_VISIBLE_DEVICES").value_or("");
  for (const std::string& item : Split(list)) {
    const std::optional<int> gpu = ToNumber(item);
    if (!gpu) return InvalidArgument("--gpus: '", item, "' is not a number");
    if (!seen.insert(*gpu).second) {
      return InvalidArgument("--gpus: ", *gpu, " occurs twice in ", list);
    }
    const bool knows_gpus = machine.num_gpus > 0;
    if (knows_gpus && !visible.empty()) {
      const std::vector<std::string> names = Split(visible);
      const auto found = std::find(names.begin(), names.end(), item);
      if (found == names.end()) {
        return InvalidArgument("--gpus: Can't find your gpus ", item,
                               " in CUDA_VISIBLE_DEVICES[", visible, "].");
      }
      gpus.push_back(std::to_string(found - names.begin()));
    } else if (knows_gpus && *gpu >= machine.num_gpus) {
      return InvalidArgument("--gpus: there is no GPU ", *gpu,
                             "; this host has ", machine.num_gpus,
                             ". For ranks on the CPU: --devices=cpu "
                             "--nproc_per_node=N");
    } else {
      gpus.push_back(std::to_string(*gpu));
    }
  }
  return gpus;
}

bool WantsCpu(const LaunchOptions& options) {
  return options.gpus == "cpu" || options.backend == "gloo";
}

bool UsesGpus(const std::vector<std::string>& gpus, const Machine& machine) {
  return machine.num_gpus > 0 && !gpus.empty() && !gpus.front().empty();
}

Result<int> FirstPort(const LaunchOptions& options,
                      const cluster::Environment& env, int fallback) {
  if (options.start_port) return *options.start_port;
  ASSIGN_OR_RETURN(std::optional<int> port,
                   cluster::FindInt(env, "FLAGS_START_PORT"));
  return port.value_or(fallback);
}

Status CheckPorts(int first, int count) {
  if (first >= 1 && first <= 65536 - count) return OkStatus();
  return InvalidArgument("ports from ", first, " on for ", count,
                         " processes are not in 1 to 65535");
}

// Which of `hosts` this one is.
Result<int> FindOwnHost(const std::vector<std::string>& hosts,
                        const LaunchOptions& options,
                        const cluster::Environment& env,
                        const Machine& machine) {
  std::optional<std::string> name = options.host;
  if (const auto pod = cluster::Find(env, "POD_IP"); !name && pod) {
    if (std::find(hosts.begin(), hosts.end(), *pod) != hosts.end()) name = *pod;
  }
  if (name) {
    const auto found = std::find(hosts.begin(), hosts.end(), *name);
    if (found == hosts.end()) {
      return InvalidArgument("Can't find your local ip {", *name,
                             "} in node_ips: {", Join(hosts), "}");
    }
    return static_cast<int>(found - hosts.begin());
  }
  std::vector<int> own;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (machine.is_own_address(hosts[i])) own.push_back(static_cast<int>(i));
  }
  if (own.empty()) {
    return InvalidArgument("Can't find your local ip in node_ips: {",
                           Join(hosts),
                           "}: none of these addresses belongs to this host");
  }
  if (own.size() > 1) {
    return InvalidArgument(
        "--ips: ", hosts[own[0]], " and ", hosts[own[1]],
        " both belong to this host; say which one this is by --node_ip");
  }
  return own.front();
}

// Adds the processes of `kind` whose endpoint is on the own host.
void AddLocal(LaunchPlan& plan, cluster::RoleKind kind,
              const std::vector<cluster::Endpoint>& endpoints) {
  int local = 0;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    if (endpoints[i].host != plan.hosts[plan.own_host]) continue;
    plan.processes.push_back(
        {.kind = kind, .index = static_cast<int>(i), .local_index = local++});
  }
}

// --servers and the like: a list, or a number for this host.
struct Group {
  const char* list_flag;
  const char* number_flag;
  const std::optional<std::string>& list;
  const std::optional<int>& number;
  std::vector<cluster::Endpoint> endpoints;

  bool given() const { return list || number; }
};

// Hosts without ports get them from `first_port` on, one each.
Status ReadList(Group& group, int first_port) {
  const bool has_ports = group.list->find(':') != std::string::npos;
  if (has_ports) {
    ASSIGN_OR_RETURN(group.endpoints,
                     cluster::ParseEndpointList(*group.list, group.list_flag));
  } else {
    const std::vector<std::string> items = Split(*group.list);
    const int count = static_cast<int>(items.size());
    RETURN_IF_ERROR(CheckPorts(first_port, count).WithContext(group.list_flag));
    for (int i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(std::vector<std::string> host,
                       cluster::ParseHostList(items[i], group.list_flag));
      group.endpoints.push_back(
          {host.front(), static_cast<uint16_t>(first_port + i)});
    }
  }
  if (group.number &&
      *group.number != static_cast<int>(group.endpoints.size())) {
    return InvalidArgument(group.number_flag, "=", *group.number, ", but ",
                           group.list_flag, " names ", group.endpoints.size());
  }
  return OkStatus();
}

std::vector<std::string> HostsOf(
    std::initializer_list<const std::vector<cluster::Endpoint>*> lists) {
  std::vector<std::string> hosts;
  for (const auto* list : lists) {
    for (const cluster::Endpoint& endpoint : *list) {
      if (std::find(hosts.begin(), hosts.end(), endpoint.host) == hosts.end()) {
        hosts.push_back(endpoint.host);
      }
    }
  }
  return hosts;
}

// Servers by --servers and --workers, which name every process of the job.
Result<LaunchPlan> PlanServersByList(Group servers, Group workers, Group heter,
                                     const LaunchOptions& options,
                                     const cluster::Environment& env,
                                     const Machine& machine) {
  ASSIGN_OR_RETURN(int port, FirstPort(options, env, kServersPort));
  for (Group* group : {&servers, &workers, &heter}) {
    if (!group->given()) continue;
    if (!group->list) {
      return InvalidArgument(group->number_flag, " beside ", servers.list_flag,
                             " or ", workers.list_flag, ": name the places by ",
                             group->list_flag);
    }
    RETURN_IF_ERROR(ReadList(*group, port));
    port += static_cast<int>(group->endpoints.size());
  }
  LaunchPlan plan;
  plan.servers = std::move(servers.endpoints);
  plan.workers = std::move(workers.endpoints);
  plan.heter_workers = std::move(heter.endpoints);
  plan.hosts = HostsOf({&plan.workers, &plan.servers, &plan.heter_workers});
  ASSIGN_OR_RETURN(plan.own_host,
                   FindOwnHost(plan.hosts, options, env, machine));
  return plan;
}

// Appends places on `host`, from `port` on, or at any port for 0.
void AddPlaces(LaunchPlan& plan, const std::string& host, const NumPerKind& num,
               int port) {
  const auto add = [&](std::vector<cluster::Endpoint>& endpoints, int count) {
    for (int i = 0; i < count; ++i) {
      endpoints.push_back({host, static_cast<uint16_t>(port)});
      if (port != 0) ++port;
    }
  };
  add(plan.servers, num.servers);
  add(plan.workers, num.workers);
  add(plan.heter_workers, num.heter_workers);
}

// Equal numbers of servers and of workers on each of --ips.
Result<LaunchPlan> PlanServersByNumber(const NumPerKind& num,
                                       const LaunchOptions& options,
                                       const cluster::Environment& env,
                                       const Machine& machine) {
  if (num.servers == 0 || num.workers == 0) {
    return InvalidArgument(
        num.servers == 0 ? "--server_num=0" : "--worker_num=0",
        ": only hosts that meet at --master may have none");
  }
  LaunchPlan plan;
  ASSIGN_OR_RETURN(plan.hosts, cluster::ParseHostList(
                                   options.ips.value_or("127.0.0.1"), "--ips"));
  ASSIGN_OR_RETURN(plan.own_host,
                   FindOwnHost(plan.hosts, options, env, machine));
  const bool any_port = plan.hosts.size() == 1 && !options.start_port &&
                        !cluster::Find(env, "FLAGS_START_PORT");
  ASSIGN_OR_RETURN(int first, FirstPort(options, env, kServersPort));
  RETURN_IF_ERROR(
      CheckPorts(first, num.servers + num.workers + num.heter_workers)
          .WithContext("--start_port"));
  for (const std::string& host : plan.hosts) {
    AddPlaces(plan, host, num, any_port ? 0 : first);
  }
  return plan;
}

void CompleteServers(LaunchPlan& plan, std::optional<int> http_port,
                     const Machine& machine) {
  plan.mode = LaunchMode::kServers;
  plan.num_cores = machine.num_cores;
  plan.http_port = http_port;
  if (!plan.workers.empty()) plan.torch_master = {plan.workers.front().host, 0};
  AddLocal(plan, cluster::RoleKind::kServer, plan.servers);
  AddLocal(plan, cluster::RoleKind::kWorker, plan.workers);
  AddLocal(plan, cluster::RoleKind::kHeterWorker, plan.heter_workers);
}

Result<LaunchPlan> PlanServers(const LaunchOptions& options,
                               const cluster::Environment& env,
                               const Machine& machine) {
  Group servers = {
      "--servers", "--server_num", options.servers, options.server_num, {}};
  Group workers = {
      "--workers", "--worker_num", options.workers, options.worker_num, {}};
  Group heter = {"--heter_workers",
                 "--heter_worker_num",
                 options.heter_workers,
                 options.heter_worker_num,
                 {}};
  // launch_ps says --run_mode=ps and has defaults; flags alone have none.
  const bool defaults = options.run_mode.has_value();
  if (!servers.given() && !defaults) {
    return InvalidArgument(
        "The setting of Parameter-Server mode must has server_num or servers.");
  }
  if (!workers.given() && !defaults) {
    return InvalidArgument(
        "The setting of Parameter-Server mode must has worker_num or workers.");
  }
  Result<LaunchPlan> made =
      servers.list || workers.list || heter.list
          ? PlanServersByList(servers, workers, heter, options, env, machine)
          : PlanServersByNumber({options.server_num.value_or(kDefaultNum),
                                 options.worker_num.value_or(kDefaultNum),
                                 options.heter_worker_num.value_or(0)},
                                options, env, machine);
  if (!made.ok()) return made.status();
  LaunchPlan plan = std::move(made).value();
  CompleteServers(plan, options.http_port, machine);
  return plan;
}

Result<LaunchPlan> PlanPaddleCloud(const cluster::Environment& env,
                                   const std::vector<std::string>& gpus,
                                   const Machine& machine) {
  const int per_node = static_cast<int>(gpus.size());
  ASSIGN_OR_RETURN(cluster::Role role, cluster::RoleFromPaddleCloud(
                                           env, {.ranks_per_node = per_node}));
  ASSIGN_OR_RETURN(std::string_view list,
                   cluster::Require(env, "PADDLE_TRAINERS"));
  ASSIGN_OR_RETURN(std::vector<std::string> hosts,
                   cluster::ParseHostList(list, "PADDLE_TRAINERS"));
  const int own = role.index / per_node;
  LaunchPlan plan = PlanCollective(std::move(hosts), own, 0, gpus, machine);
  plan.workers = role.worker_endpoints;
  plan.torch_master = {plan.workers.front().host, 0};
  return plan;
}

Result<LaunchPlan> PlanOnHosts(const LaunchOptions& options,
                               const cluster::Environment& env,
                               const Machine& machine) {
  ASSIGN_OR_RETURN(std::vector<std::string> gpus,
                   DealGpus(options, env, machine));
  if (options.use_paddlecloud ||
      (cluster::IsPaddleCloud(env) && !options.ips)) {
    return PlanPaddleCloud(env, gpus, machine);
  }
  ASSIGN_OR_RETURN(
      std::vector<std::string> hosts,
      cluster::ParseHostList(options.ips.value_or("127.0.0.1"), "--ips"));
  ASSIGN_OR_RETURN(int own, FindOwnHost(hosts, options, env, machine));
  if (options.nnodes && *options.nnodes != static_cast<int>(hosts.size())) {
    return InvalidArgument("--nnodes=", *options.nnodes, ", but there ",
                           hosts.size() == 1 ? "is " : "are ", hosts.size(),
                           " in --ips=", Join(hosts),
                           "; or say where hosts meet by --master=ip:port");
  }
  const bool any_port = hosts.size() == 1 && !options.start_port &&
                        !cluster::Find(env, "FLAGS_START_PORT");
  ASSIGN_OR_RETURN(int first, FirstPort(options, env, kCollectivePort));
  RETURN_IF_ERROR(CheckPorts(first, static_cast<int>(gpus.size()) + 1)
                      .WithContext("--started_port"));
  return PlanCollective(std::move(hosts), own, any_port ? 0 : first, gpus,
                        machine);
}

// What an outer job may have left in the environment, and proxies, through
// which ranks must not talk to each other.
constexpr const char* kDropped[] = {
    "http_proxy",
    "https_proxy",
    "PADDLE_TRAINER_ID",
    "PADDLE_CURRENT_ENDPOINT",
    "PADDLE_TRAINERS_NUM",
    "PADDLE_TRAINER_ENDPOINTS",
    "PADDLE_RANK_IN_NODE",
    "PADDLE_TRAINING_ROLE",
    "PADDLE_PSERVERS_IP_PORT_LIST",
    "PADDLE_HETER_TRAINER_IP_PORT_LIST",
    "PADDLE_PORT",
    "TRAINING_ROLE",
    "FLAGS_selected_gpus",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "FLEET_LISTEN_FD",
    "FLEET_LAUNCHER",
    "FLEET_SECRET",
    "FLEET_PS_LAST_SAVE",
    "FLEET_PS_DURABILITY_DEFAULT",
    "FLEET_SERVER_EPOCH",
    "FLEET_SECRET",
    "FLEET_SECRET_FILE",
};

void SetTorchrun(const LaunchPlan& plan, const ProcessPlan& process,
                 cluster::Environment& env) {
  env["RANK"] = std::to_string(process.index);
  env["WORLD_SIZE"] = std::to_string(plan.workers.size());
  env["LOCAL_RANK"] = std::to_string(process.local_index);
  env["LOCAL_WORLD_SIZE"] =
      std::to_string(plan.num_local(cluster::RoleKind::kWorker));
  env["GROUP_RANK"] = std::to_string(plan.own_host);
  env["GROUP_WORLD_SIZE"] = std::to_string(plan.hosts.size());
  if (plan.torch_master.port == 0) return;
  env["MASTER_ADDR"] = plan.torch_master.host;
  env["MASTER_PORT"] = std::to_string(plan.torch_master.port);
}

void SetServers(const LaunchPlan& plan, const ProcessPlan& process,
                cluster::Environment& env) {
  const cluster::Endpoint& own = plan.endpoint_of(process);
  env["PADDLE_PSERVERS_IP_PORT_LIST"] = ToString(plan.servers);
  env["PADDLE_HETER_TRAINER_IP_PORT_LIST"] = ToString(plan.heter_workers);
  env["POD_IP"] = own.host;
  env["PADDLE_PORT"] = std::to_string(own.port);
  env["TRAINING_ROLE"] = process.kind == cluster::RoleKind::kServer ? "PSERVER"
                         : process.kind == cluster::RoleKind::kWorker
                             ? "TRAINER"
                             : "HETER_TRAINER";
  if (!plan.servers.empty()) {
    env["PADDLE_GLOO_HTTP_ENDPOINT"] = ToString(
        cluster::Endpoint{plan.servers.front().host,
                          static_cast<uint16_t>(plan.http_port.value_or(0))});
  }
  if (process.kind == cluster::RoleKind::kWorker) {
    env["FLAGS_selected_gpus"] = "0";
    env["FLAGS_selected_xpus"] = "0";
  }
  if (process.kind == cluster::RoleKind::kServer) {
    // What nobody has said; a script may say something else.
    if (!plan.notes_folder.empty()) env["FLEET_PS_DURABILITY_DEFAULT"] = "log";
    if (!plan.server_log_folder.empty()) {
      env["FLEET_PS_LOG_DIR"] = plan.server_log_folder;
    }
  }
  if (plan.notes_folder.empty()) return;
  // A server that fails comes back, so others wait for it.
  if (process.kind == cluster::RoleKind::kServer) {
    env["FLEET_PS_LAST_SAVE"] = NoteOf(plan, process);
  } else {
    env.emplace("FLEET_PS_RECONNECT", kReconnectSeconds);
  }
}

}  // namespace

const cluster::Endpoint& LaunchPlan::endpoint_of(
    const ProcessPlan& process) const {
  const auto& list = process.kind == cluster::RoleKind::kServer ? servers
                     : process.kind == cluster::RoleKind::kWorker
                         ? workers
                         : heter_workers;
  return list[process.index];
}

cluster::Endpoint& LaunchPlan::endpoint_of(const ProcessPlan& process) {
  return const_cast<cluster::Endpoint&>(
      std::as_const(*this).endpoint_of(process));
}

int LaunchPlan::num_local(cluster::RoleKind kind) const {
  return static_cast<int>(
      std::count_if(processes.begin(), processes.end(),
                    [kind](const ProcessPlan& p) { return p.kind == kind; }));
}

Result<std::vector<std::string>> DealGpus(const LaunchOptions& options,
                                          const cluster::Environment& env,
                                          const Machine& machine) {
  std::vector<std::string> gpus;
  if (!WantsCpu(options)) {
    if (options.gpus && !options.gpus->empty()) {
      ASSIGN_OR_RETURN(gpus, NamedGpus(*options.gpus, env, machine));
    } else {
      for (int i = 0; i < machine.num_gpus; ++i) {
        gpus.push_back(std::to_string(i));
      }
    }
  }
  const int num_gpus = static_cast<int>(gpus.size());
  const int ranks = options.nproc_per_node.value_or(std::max(1, num_gpus));
  std::vector<std::string> dealt(ranks);
  if (num_gpus == 0 || num_gpus == ranks) {
    std::copy(gpus.begin(), gpus.end(), dealt.begin());
  } else if (num_gpus % ranks == 0) {
    for (int i = 0; i < num_gpus; ++i) {
      std::string& own = dealt[i / (num_gpus / ranks)];
      own += (own.empty() ? "" : ",") + gpus[i];
    }
  } else if (!options.gpus && ranks > num_gpus) {
    // Several ranks on a GPU: for those who only compute on the CPU.
    for (int i = 0; i < ranks; ++i) dealt[i] = gpus[i % num_gpus];
  } else {
    return InvalidArgument("--nproc_per_node=", ranks, ": ", num_gpus,
                           " GPUs cannot be dealt evenly to ", ranks, " ranks");
  }
  return dealt;
}

LaunchPlan PlanCollective(std::vector<std::string> hosts, int own_host,
                          int start_port, const std::vector<std::string>& gpus,
                          const Machine& machine) {
  LaunchPlan plan;
  plan.hosts = std::move(hosts);
  plan.own_host = own_host;
  plan.uses_gpus = UsesGpus(gpus, machine);
  plan.num_cores = machine.num_cores;
  for (const std::string& host : plan.hosts) {
    for (size_t i = 0; i < gpus.size(); ++i) {
      plan.workers.push_back(
          {host, static_cast<uint16_t>(start_port == 0 ? 0 : start_port + i)});
    }
  }
  plan.torch_master = {
      plan.hosts.front(),
      static_cast<uint16_t>(start_port == 0 ? 0 : start_port + gpus.size())};
  const int ranks = static_cast<int>(gpus.size());
  for (int i = 0; i < ranks; ++i) {
    plan.processes.push_back({.kind = cluster::RoleKind::kWorker,
                              .index = own_host * ranks + i,
                              .local_index = i,
                              .gpus = gpus[i]});
  }
  return plan;
}

LaunchPlan PlanServersHere(const std::string& host, const NumPerKind& num,
                           int start_port, std::optional<int> http_port,
                           const Machine& machine) {
  LaunchPlan plan;
  plan.hosts = {host};
  AddPlaces(plan, host, num, start_port);
  CompleteServers(plan, http_port, machine);
  return plan;
}

Result<LaunchPlan> MakeLaunchPlan(const LaunchOptions& options,
                                  const cluster::Environment& env,
                                  const Machine& machine) {
  ASSIGN_OR_RETURN(LaunchMode mode, ModeOf(options));
  return mode == LaunchMode::kServers ? PlanServers(options, env, machine)
                                      : PlanOnHosts(options, env, machine);
}

cluster::Environment ProcessEnvironment(const LaunchPlan& plan,
                                        const ProcessPlan& process,
                                        const cluster::Environment& inherited) {
  cluster::Environment env = inherited;
  for (const char* name : kDropped) env.erase(name);

  env["PADDLE_TRAINERS_NUM"] = std::to_string(plan.workers.size());
  env["PADDLE_TRAINER_ENDPOINTS"] = ToString(plan.workers);
  env["PADDLE_CURRENT_ENDPOINT"] = ToString(plan.endpoint_of(process));
  env["PADDLE_WITH_GLOO"] = "0";
  env["PADDLE_GLOO_RENDEZVOUS"] = "3";
  env["PADDLE_GLOO_FS_PATH"] = "";
  if (process.kind == cluster::RoleKind::kWorker) {
    env["PADDLE_TRAINER_ID"] = std::to_string(process.index);
    env["PADDLE_RANK_IN_NODE"] = std::to_string(process.local_index);
    if (!process.gpus.empty()) env["FLAGS_selected_gpus"] = process.gpus;
    SetTorchrun(plan, process, env);
  }
  if (plan.mode == LaunchMode::kServers) SetServers(plan, process, env);

  if (!env.contains("OMP_NUM_THREADS")) {
    env["OMP_NUM_THREADS"] = std::to_string(
        std::max(1, plan.num_cores / plan.num_local(process.kind)));
  }
  if (plan.secret_file) env["FLEET_SECRET_FILE"] = *plan.secret_file;
  return env;
}

std::vector<std::pair<std::string, std::string>> ShownVariables(
    const LaunchPlan& plan, const cluster::Environment& environment) {
  std::vector<const char*> names;
  if (plan.mode == LaunchMode::kServers) {
    names = {"PADDLE_PSERVERS_IP_PORT_LIST",
             "PADDLE_TRAINER_ENDPOINTS",
             "PADDLE_HETER_TRAINER_IP_PORT_LIST",
             "PADDLE_TRAINERS_NUM",
             "TRAINING_ROLE",
             "PADDLE_TRAINER_ID",
             "POD_IP",
             "PADDLE_PORT"};
  } else {
    names = {"PADDLE_CURRENT_ENDPOINT", "PADDLE_TRAINERS_NUM",
             "FLAGS_selected_gpus", "PADDLE_TRAINER_ENDPOINTS",
             "PADDLE_TRAINER_ID"};
  }
  std::vector<std::pair<std::string, std::string>> shown;
  for (const char* name : names) {
    if (const auto value = cluster::Find(environment, name)) {
      shown.emplace_back(name, *value);
    }
  }
  return shown;
}

std::string NameOf(const LaunchPlan& plan, const ProcessPlan& process) {
  const std::string number = std::to_string(process.index);
  if (plan.mode == LaunchMode::kCollective) return "rank " + number;
  return std::string(ToString(process.kind)) + " " + number;
}

std::string LogNameOf(const ProcessPlan& process) {
  const char* name = process.kind == cluster::RoleKind::kServer   ? "serverlog."
                     : process.kind == cluster::RoleKind::kWorker ? "workerlog."
                                                                  : "heterlog.";
  return name + std::to_string(process.local_index);
}

std::string DurabilityOf(const LaunchPlan& plan,
                         const cluster::Environment& env) {
  const auto given = cluster::Find(env, "FLEET_PS_DURABILITY");
  if (given.has_value()) return std::string(*given);
  return plan.notes_folder.empty() ? "none" : "log";
}

std::string NoteOf(const LaunchPlan& plan, const ProcessPlan& process) {
  if (plan.notes_folder.empty() || process.kind != cluster::RoleKind::kServer)
    return "";
  return plan.notes_folder + "/" + LogNameOf(process) + ".saved";
}

}  // namespace fleet::launch
