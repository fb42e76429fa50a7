// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/paddle_role.h"

#include <algorithm>
#include <string>

namespace fleet::cluster {
namespace {

// Paddle's ports begin here when nobody says otherwise.
constexpr int kFirstPort = 6170;

// Fills what follows from a worker's index in the list of workers.
void FindInList(Role& role) {
  role.current_endpoint = role.worker_endpoints[role.index];
  const auto place = FindPlaceOnHost(role.worker_endpoints, role.index);
  role.local_rank = place.rank;
  role.local_size = place.size;
}

Status CheckIndex(std::string_view name, int index, int size,
                  std::string_view size_from) {
  if (index >= 0 && index < size) return OkStatus();
  return InvalidArgument(name, "=", index, ", but the number of workers is ",
                         size, " by ", size_from);
}

// The place of POD_IP:PADDLE_PORT in `endpoints`, which `list` holds.
Status FindOwnEndpoint(const Environment& env,
                       const std::vector<Endpoint>& endpoints,
                       std::string_view list, Role& role) {
  ASSIGN_OR_RETURN(std::string_view port, Require(env, "PADDLE_PORT"));
  ASSIGN_OR_RETURN(std::string_view ip, Require(env, "POD_IP"));
  const bool bare_ipv6 = ip.find(':') != ip.npos && ip.front() != '[';
  ASSIGN_OR_RETURN(Endpoint own,
                   ParseEndpoint(bare_ipv6 ? base::Concat("[", ip, "]:", port)
                                           : base::Concat(ip, ":", port),
                                 "POD_IP:PADDLE_PORT"));
  const auto place = std::find(endpoints.begin(), endpoints.end(), own);
  if (place == endpoints.end()) {
    return InvalidArgument("POD_IP:PADDLE_PORT: '", own, "' is not in list ",
                           list, "=", ToString(endpoints));
  }
  role.index = static_cast<int>(place - endpoints.begin());
  role.current_endpoint = std::move(own);
  return OkStatus();
}

Status ReadServer(const Environment& env, Role& role) {
  role.kind = RoleKind::kServer;
  return FindOwnEndpoint(env, role.server_endpoints,
                         "PADDLE_PSERVERS_IP_PORT_LIST", role);
}

Status ReadHeterWorker(const Environment& env, Role& role) {
  role.kind = RoleKind::kHeterWorker;
  return FindOwnEndpoint(env, role.heter_worker_endpoints,
                         "PADDLE_HETER_TRAINER_IP_PORT_LIST", role);
}

Status ReadWorker(const Environment& env, Role& role) {
  ASSIGN_OR_RETURN(role.index, RequireInt(env, "PADDLE_TRAINER_ID"));
  RETURN_IF_ERROR(CheckIndex("PADDLE_TRAINER_ID", role.index, role.worker_num,
                             "PADDLE_TRAINERS_NUM"));
  if (role.worker_endpoints.empty()) return OkStatus();
  RETURN_IF_ERROR(CheckIndex("PADDLE_TRAINER_ID", role.index,
                             static_cast<int>(role.worker_endpoints.size()),
                             "PADDLE_TRAINER_ENDPOINTS"));
  FindInList(role);
  return OkStatus();
}

// The endpoints of all nodes, ranks_per_node for each.
Result<std::vector<Endpoint>> CloudEndpoints(
    const Environment& env, const std::vector<std::string>& hosts,
    int num_ports, int ranks_per_node) {
  std::vector<Endpoint> endpoints;
  if (const auto list = Find(env, "DISTRIBUTED_TRAINER_ENDPOINTS")) {
    ASSIGN_OR_RETURN(std::vector<Endpoint> all,
                     ParseEndpointList(*list, "DISTRIBUTED_TRAINER_ENDPOINTS"));
    if (all.size() != hosts.size() * num_ports) {
      return InvalidArgument("DISTRIBUTED_TRAINER_ENDPOINTS: ", all.size(),
                             " endpoints for ", hosts.size(),
                             " hosts (PADDLE_TRAINERS) with ", num_ports,
                             " ports each (TRAINER_PORTS_NUM)");
    }
    for (size_t node = 0; node < hosts.size(); ++node) {
      const auto first = all.begin() + node * num_ports;
      endpoints.insert(endpoints.end(), first, first + ranks_per_node);
    }
    return endpoints;
  }
  ASSIGN_OR_RETURN(std::optional<int> port, FindInt(env, "PADDLE_PORT"));
  const int first = port.value_or(kFirstPort);
  if (first < 1 || first > 65536 - ranks_per_node) {
    return InvalidArgument("PADDLE_PORT=", first, ": ports from there on for ",
                           ranks_per_node, " ranks are not in 1 to 65535");
  }
  for (const std::string& host : hosts) {
    for (int i = 0; i < ranks_per_node; ++i) {
      endpoints.push_back({host, static_cast<uint16_t>(first + i)});
    }
  }
  return endpoints;
}

}  // namespace

Result<Role> RoleFromPaddleCollective(const Environment& env) {
  Role role;
  role.is_collective = true;
  ASSIGN_OR_RETURN(std::optional<int> index, FindInt(env, "PADDLE_TRAINER_ID"));
  role.index = index.value_or(0);
  const std::string_view kind =
      Find(env, "PADDLE_TRAINING_ROLE").value_or("TRAINER");
  if (kind != "TRAINER") {
    return InvalidArgument("PADDLE_TRAINING_ROLE=", kind,
                           ", but a collective job has only TRAINER");
  }
  const auto list = Find(env, "PADDLE_TRAINER_ENDPOINTS");
  role.non_distributed = !list;
  role.source = list ? RoleSource::kPaddle : RoleSource::kAlone;
  if (list) {
    ASSIGN_OR_RETURN(role.worker_endpoints,
                     ParseEndpointList(*list, "PADDLE_TRAINER_ENDPOINTS"));
  } else {
    role.worker_endpoints = {{"127.0.0.1", kFirstPort}};
  }
  role.worker_num = static_cast<int>(role.worker_endpoints.size());
  role.node_num = NumHosts(role.worker_endpoints);
  RETURN_IF_ERROR(CheckIndex("PADDLE_TRAINER_ID", role.index, role.worker_num,
                             list ? "PADDLE_TRAINER_ENDPOINTS"
                                  : "PADDLE_TRAINER_ENDPOINTS (not set)"));
  FindInList(role);
  if (const auto own = Find(env, "PADDLE_CURRENT_ENDPOINT"); own && list) {
    ASSIGN_OR_RETURN(Endpoint endpoint,
                     ParseEndpoint(*own, "PADDLE_CURRENT_ENDPOINT"));
    if (endpoint != *role.current_endpoint) {
      return InvalidArgument(
          "PADDLE_CURRENT_ENDPOINT=", endpoint,
          ", but PADDLE_TRAINER_ID=", role.index, " is ",
          *role.current_endpoint,
          " in PADDLE_TRAINER_ENDPOINTS=", ToString(role.worker_endpoints));
    }
  }
  ASSIGN_OR_RETURN(std::optional<int> local_rank,
                   FindInt(env, "PADDLE_RANK_IN_NODE"));
  if (local_rank) {
    RETURN_IF_ERROR(CheckIndex("PADDLE_RANK_IN_NODE", *local_rank,
                               role.worker_num, "PADDLE_TRAINER_ENDPOINTS"));
    role.local_rank = local_rank;
  }
  return role;
}

Result<Role> RoleFromPaddleServers(const Environment& env) {
  Role role;
  const auto servers = Find(env, "PADDLE_PSERVERS_IP_PORT_LIST");
  if (!servers) {
    role.non_distributed = true;
    return role;
  }
  role.source = RoleSource::kPaddle;
  ASSIGN_OR_RETURN(role.server_endpoints,
                   ParseEndpointList(*servers, "PADDLE_PSERVERS_IP_PORT_LIST"));
  role.server_num = static_cast<int>(role.server_endpoints.size());
  const auto workers = Find(env, "PADDLE_TRAINER_ENDPOINTS").value_or("");
  if (!workers.empty()) {
    ASSIGN_OR_RETURN(role.worker_endpoints,
                     ParseEndpointList(workers, "PADDLE_TRAINER_ENDPOINTS"));
  }
  role.node_num = NumHosts(role.worker_endpoints);
  ASSIGN_OR_RETURN(role.worker_num, RequireInt(env, "PADDLE_TRAINERS_NUM"));
  if (role.worker_num < 1) {
    return InvalidArgument("PADDLE_TRAINERS_NUM=", role.worker_num,
                           ": a job has at least one worker");
  }
  ASSIGN_OR_RETURN(std::string_view kind, Require(env, "TRAINING_ROLE"));
  if (kind != "TRAINER" && kind != "PSERVER" && kind != "HETER_TRAINER") {
    return InvalidArgument(
        "TRAINING_ROLE must be PSERVER or TRAINER or HETER_TRAINER, but get ",
        kind, ", please check your environment.");
  }
  const auto heter =
      Find(env, "PADDLE_HETER_TRAINER_IP_PORT_LIST").value_or("");
  if (!heter.empty()) {
    ASSIGN_OR_RETURN(
        role.heter_worker_endpoints,
        ParseEndpointList(heter, "PADDLE_HETER_TRAINER_IP_PORT_LIST"));
  }
  role.heter_worker_num = static_cast<int>(role.heter_worker_endpoints.size());
  Status status = kind == "TRAINER"   ? ReadWorker(env, role)
                  : kind == "PSERVER" ? ReadServer(env, role)
                                      : ReadHeterWorker(env, role);
  RETURN_IF_ERROR(status);
  return role;
}

bool IsPaddleCloud(const Environment& env) {
  return Find(env, "PADDLE_TRAINERS") && Find(env, "POD_IP") &&
         Find(env, "PADDLE_TRAINER_ID") && Find(env, "TRAINER_PORTS_NUM");
}

Result<Role> RoleFromPaddleCloud(const Environment& env,
                                 const PaddleCloudOptions& options) {
  const int per_node = options.ranks_per_node;
  if (per_node < 1 || options.local_rank < 0 ||
      options.local_rank >= per_node) {
    return InvalidArgument("local rank ", options.local_rank, " of ", per_node,
                           " ranks per node");
  }
  ASSIGN_OR_RETURN(std::string_view list, Require(env, "PADDLE_TRAINERS"));
  ASSIGN_OR_RETURN(std::vector<std::string> hosts,
                   ParseHostList(list, "PADDLE_TRAINERS"));
  ASSIGN_OR_RETURN(std::string_view ip, Require(env, "POD_IP"));
  ASSIGN_OR_RETURN(std::vector<std::string> own, ParseHostList(ip, "POD_IP"));
  ASSIGN_OR_RETURN(int node, RequireInt(env, "PADDLE_TRAINER_ID"));
  ASSIGN_OR_RETURN(int num_ports, RequireInt(env, "TRAINER_PORTS_NUM"));
  if (node < 0 || node >= static_cast<int>(hosts.size()) ||
      hosts[node] != own.front()) {
    return InvalidArgument("PADDLE_TRAINER_ID=", node, ", POD_IP=", ip,
                           ": this is not host ", node,
                           " of PADDLE_TRAINERS=", list);
  }
  if (num_ports < per_node) {
    return InvalidArgument("TRAINER_PORTS_NUM=", num_ports, ", but ", per_node,
                           " ranks per node need a port each");
  }
  Role role;
  role.is_collective = true;
  role.source = RoleSource::kPaddleCloud;
  ASSIGN_OR_RETURN(role.worker_endpoints,
                   CloudEndpoints(env, hosts, num_ports, per_node));
  role.worker_num = static_cast<int>(role.worker_endpoints.size());
  role.node_num = static_cast<int>(hosts.size());
  role.index = node * per_node + options.local_rank;
  role.current_endpoint = role.worker_endpoints[role.index];
  role.local_rank = options.local_rank;
  role.local_size = per_node;
  return role;
}

}  // namespace fleet::cluster
