// SPDX-License-Identifier: Apache-2.0

// What the environment says to servers and workers.

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "fleet/cluster/join_settings.h"
#include "fleet/ps/request_log.h"
#include "fleet/ps/serve.h"

namespace fleet::ps {
namespace {

using cluster::Endpoint;
using cluster::Environment;
using cluster::Find;
using std::chrono::milliseconds;

channel::Address ToAddress(const Endpoint& endpoint) {
  channel::Address address;
  address.host = endpoint.host;
  address.port = endpoint.port;
  return address;
}

// Seconds, where 0 means never.
Result<milliseconds> ReadInterval(const Environment& env, std::string_view name,
                                  milliseconds otherwise) {
  if (Find(env, name) == "0") return milliseconds(0);
  return cluster::ReadSeconds(env, name, otherwise);
}

Result<uint64_t> ReadCount(const Environment& env, std::string_view name) {
  ASSIGN_OR_RETURN(const std::optional<int> given, cluster::FindInt(env, name));
  if (given.value_or(0) < 0) {
    return InvalidArgument(name, "=", *given, ": must not be negative");
  }
  return static_cast<uint64_t>(given.value_or(0));
}

Result<bool> ReadSwitch(const Environment& env, std::string_view name) {
  const std::string_view text = Find(env, name).value_or("0");
  if (text == "0" || text.empty()) return false;
  if (text == "1") return true;
  return InvalidArgument(name, "=", text, ": must be 0 or 1");
}

// FLEET_PS_CHANNEL: whether peers of this host use shared memory.
Result<bool> ReadSharedMemory(const Environment& env) {
  const std::string_view text = Find(env, "FLEET_PS_CHANNEL").value_or("auto");
  if (text == "auto") return true;
  if (text == "tcp") return false;
  return InvalidArgument("FLEET_PS_CHANNEL=", text, ": must be auto or tcp");
}

// Zero, never, where the user does not say so: a worker or server that stands
// still is waited for.
Result<milliseconds> ReadHeartbeatTimeout(const Environment& env) {
  return ReadInterval(env, "FLEET_HEARTBEAT_TIMEOUT", milliseconds(0));
}

Result<OnDataLoss> ReadOnDataLoss(const Environment& env) {
  const std::string_view name = "FLEET_PS_ON_DATA_LOSS";
  const std::string_view text = Find(env, name).value_or("fail");
  if (text == "fail") return OnDataLoss::kFail;
  if (text == "go_on") return OnDataLoss::kGoOn;
  return InvalidArgument(name, "=", text, ": must be fail or go_on");
}

// FLEET_CHANNEL: what carries bytes between hosts.
Result<channel::Carrier> ReadCarrier(const Environment& env) {
  return channel::ParseCarrier(Find(env, "FLEET_CHANNEL").value_or("tcp"));
}

// 0 where the environment does not tell where all workers are.
int ProcessesOnHost(const cluster::Role& role, const std::string& host) {
  if (role.worker_endpoints.empty()) return 0;
  int count = 0;
  for (const auto* list : {&role.worker_endpoints, &role.server_endpoints,
                           &role.heter_worker_endpoints}) {
    count += static_cast<int>(
        std::count_if(list->begin(), list->end(),
                      [&](const Endpoint& at) { return at.host == host; }));
  }
  return count;
}

}  // namespace

Result<ServeOptions> ReadServeOptions(const cluster::Role& role,
                                      const Environment& env) {
  if (!role.is_server() || role.index < 0 || role.index >= role.server_num) {
    return InvalidArgument("this process is no server of its job: it is ",
                           ToString(role));
  }
  ServeOptions options;
  const Endpoint& at = role.current_endpoint.has_value()
                           ? *role.current_endpoint
                           : role.server_endpoints.at(role.index);
  options.address = ToAddress(at);
  PsServerOptions& server = options.server;
  server.rank = role.index;
  server.num_servers = static_cast<uint32_t>(role.server_num);
  server.num_workers = role.worker_num;
  server.processes_on_host = ProcessesOnHost(role, at.host);
  ASSIGN_OR_RETURN(const cluster::JoinSettings join,
                   cluster::ReadJoinSettings(env));
  RETURN_IF_ERROR(cluster::CheckSecretRequired(join.options));
  server.trust = join.options.trust;
  cluster::NameHosts(role, server.trust);
  options.warns_without_secret = !join.options.launcher_warned;
  options.listen_fd = join.options.listen_fd;
  ASSIGN_OR_RETURN(server.shared_memory, ReadSharedMemory(env));
  ASSIGN_OR_RETURN(server.carrier, ReadCarrier(env));
  ASSIGN_OR_RETURN(
      server.worker_grace,
      cluster::ReadSeconds(env, "FLEET_PS_WORKER_GRACE", server.worker_grace));
  ASSIGN_OR_RETURN(server.go_on_without_lost_workers,
                   ReadSwitch(env, "FLEET_PS_GO_ON"));
  ASSIGN_OR_RETURN(const uint64_t megabytes,
                   ReadCount(env, "FLEET_PS_MEMORY_MB"));
  server.max_table_byte_size = megabytes << 20;
  ASSIGN_OR_RETURN(server.heartbeat_timeout, ReadHeartbeatTimeout(env));
  ASSIGN_OR_RETURN(const uint64_t epoch, ReadCount(env, "FLEET_SERVER_EPOCH"));
  server.epoch = epoch;
  server.load_folder = Find(env, "FLEET_PS_LOAD").value_or("");
  const Result<Durability> durability = ParseDurability(
      Find(env, "FLEET_PS_DURABILITY")
          .value_or(Find(env, "FLEET_PS_DURABILITY_DEFAULT").value_or("none")));
  RETURN_IF_ERROR(durability.status().WithContext("FLEET_PS_DURABILITY"));
  server.durability = *durability;
  server.log_folder = Find(env, "FLEET_PS_LOG_DIR").value_or("");
  if (server.durability != Durability::kNone && server.log_folder.empty()) {
    return InvalidArgument("durability ", ToString(server.durability),
                           " needs a folder for the log: FLEET_PS_LOG_DIR");
  }
  if (!server.log_folder.empty()) {
    server.log_folder += "/" + LogFolderName(static_cast<uint32_t>(server.rank),
                                             server.num_servers);
  }
  ASSIGN_OR_RETURN(const uint64_t log_megabytes,
                   ReadCount(env, "FLEET_PS_LOG_MB"));
  server.checkpoint_byte_size = log_megabytes << 20;
  options.last_save_file = Find(env, "FLEET_PS_LAST_SAVE").value_or("");
  ASSIGN_OR_RETURN(options.on_data_loss, ReadOnDataLoss(env));
  ASSIGN_OR_RETURN(options.linger,
                   ReadInterval(env, "FLEET_PS_LINGER", options.linger));
  ASSIGN_OR_RETURN(options.report_every,
                   ReadInterval(env, "FLEET_PS_REPORT", options.report_every));
  ASSIGN_OR_RETURN(
      options.name_missing_after,
      ReadInterval(env, "FLEET_STALL_REPORT", options.name_missing_after));
  return options;
}

Result<ConnectOptions> ReadConnectOptions(const cluster::Role& role,
                                          const Environment& env) {
  if (!role.is_worker() || role.server_endpoints.empty()) {
    return InvalidArgument("this process is no worker of a job with servers: ",
                           "it is ", ToString(role));
  }
  ConnectOptions options;
  options.client.worker = role.index;
  for (const Endpoint& at : role.server_endpoints) {
    options.servers.push_back(ToAddress(at));
  }
  ASSIGN_OR_RETURN(const cluster::JoinSettings join,
                   cluster::ReadJoinSettings(env));
  RETURN_IF_ERROR(cluster::CheckSecretRequired(join.options));
  options.client.trust = join.options.trust;
  options.start_timeout = join.start_timeout;
  ASSIGN_OR_RETURN(options.client.shared_memory, ReadSharedMemory(env));
  ASSIGN_OR_RETURN(options.client.carrier, ReadCarrier(env));
  ASSIGN_OR_RETURN(
      options.client.reconnect_for,
      ReadInterval(env, "FLEET_PS_RECONNECT", options.client.reconnect_for));
  ASSIGN_OR_RETURN(options.client.on_data_loss, ReadOnDataLoss(env));
  ASSIGN_OR_RETURN(options.client.heartbeat_timeout, ReadHeartbeatTimeout(env));
  return options;
}

}  // namespace fleet::ps
