// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/role.h"

#include <initializer_list>
#include <sstream>

#include "fleet/base/check.h"
#include "fleet/cluster/launcher_role.h"
#include "fleet/cluster/paddle_role.h"

namespace fleet::cluster {
namespace {

// How many processes there are of the role's own kind.
int NumOfKind(const Role& role) {
  switch (role.kind) {
    case RoleKind::kWorker:
      return role.worker_num;
    case RoleKind::kServer:
      return role.server_num;
    case RoleKind::kHeterWorker:
      return role.heter_worker_num;
  }
  FLEET_CHECK(false, "role kind ", static_cast<int>(role.kind));
}

const std::vector<Endpoint>& EndpointsOfKind(const Role& role) {
  return role.kind == RoleKind::kServer        ? role.server_endpoints
         : role.kind == RoleKind::kHeterWorker ? role.heter_worker_endpoints
                                               : role.worker_endpoints;
}

// Those of `names` that are set, with their values.
std::string Show(const Environment& env,
                 std::initializer_list<std::string_view> names) {
  std::string shown;
  for (std::string_view name : names) {
    if (const auto value = Find(env, name)) {
      shown += base::Concat(shown.empty() ? "" : ", ", name, "=", *value);
    }
  }
  return shown;
}

// Paddle's and torchrun's variables both speak of this very process; where
// both are set, they have to say the same.
Status CheckAgreement(const Environment& env, const Role& paddle, int rank,
                      int size) {
  if (rank == paddle.index && size == paddle.worker_num) return OkStatus();
  return InvalidArgument(
      "the environment says two things about this process: worker ",
      paddle.index, " of ", paddle.worker_num, " (",
      Show(env, {"PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM",
                 "PADDLE_TRAINER_ENDPOINTS"}),
      ") and worker ", rank, " of ", size, " (",
      Show(env, {"RANK", "WORLD_SIZE"}),
      "); unset those that do not belong to this job");
}

Status CheckAgainstTorchrun(const Environment& env, const Role& paddle) {
  if (!IsTorchrun(env) || !paddle.is_worker() || paddle.non_distributed) {
    return OkStatus();
  }
  ASSIGN_OR_RETURN(int rank, RequireInt(env, "RANK"));
  ASSIGN_OR_RETURN(int size, RequireInt(env, "WORLD_SIZE"));
  return CheckAgreement(env, paddle, rank, size);
}

// For torchrun's role, when Paddle's rank or size is set without its endpoints.
// On PaddleCloud that rank is the node's number.
Status CheckAgainstPaddle(const Environment& env, const Role& torchrun) {
  if (IsPaddleCloud(env)) return OkStatus();
  ASSIGN_OR_RETURN(std::optional<int> rank, FindInt(env, "PADDLE_TRAINER_ID"));
  ASSIGN_OR_RETURN(std::optional<int> size,
                   FindInt(env, "PADDLE_TRAINERS_NUM"));
  Role paddle;
  paddle.index = rank.value_or(torchrun.index);
  paddle.worker_num = size.value_or(torchrun.worker_num);
  return CheckAgreement(env, paddle, torchrun.index, torchrun.worker_num);
}

Result<Role> CollectiveRole(const Environment& env) {
  if (Find(env, "PADDLE_TRAINER_ENDPOINTS")) {
    ASSIGN_OR_RETURN(Role role, RoleFromPaddleCollective(env));
    RETURN_IF_ERROR(CheckAgainstTorchrun(env, role));
    return role;
  }
  if (IsTorchrun(env)) {
    ASSIGN_OR_RETURN(Role role, RoleFromTorchrun(env));
    RETURN_IF_ERROR(CheckAgainstPaddle(env, role));
    return role;
  }
  if (IsOpenMpi(env)) return RoleFromOpenMpi(env);
  if (IsPmi(env)) return RoleFromPmi(env);
  if (IsSlurm(env)) return RoleFromSlurm(env);
  if (IsPaddleCloud(env)) return RoleFromPaddleCloud(env);
  if (IsKubernetesJob(env)) return RoleFromKubernetesJob(env);
  return RoleFromPaddleCollective(env);
}

}  // namespace

std::string_view ToString(RoleKind kind) {
  switch (kind) {
    case RoleKind::kWorker:
      return "worker";
    case RoleKind::kServer:
      return "server";
    case RoleKind::kHeterWorker:
      return "heter worker";
  }
  FLEET_CHECK(false, "role kind ", static_cast<int>(kind));
}

std::string_view ToString(RoleSource source) {
  switch (source) {
    case RoleSource::kAlone:
      return "nothing";
    case RoleSource::kUser:
      return "the user";
    case RoleSource::kPaddle:
      return "Paddle's environment";
    case RoleSource::kTorchrun:
      return "torchrun";
    case RoleSource::kOpenMpi:
      return "Open MPI";
    case RoleSource::kPmi:
      return "PMI";
    case RoleSource::kSlurm:
      return "Slurm";
    case RoleSource::kPaddleCloud:
      return "PaddleCloud";
    case RoleSource::kKubernetes:
      return "Kubernetes";
  }
  FLEET_CHECK(false, "role source ", static_cast<int>(source));
}

std::string ToString(const Role& role) {
  if (role.non_distributed) return "alone";
  std::ostringstream out;
  out << ToString(role.kind) << ' ' << role.index << " of " << NumOfKind(role);
  if (role.node_num > 0) {
    out << " on " << role.node_num << (role.node_num == 1 ? " node" : " nodes");
  }
  if (role.current_endpoint) out << " at " << *role.current_endpoint;
  out << ", from " << ToString(role.source);
  return out.str();
}

Result<Role> MakeUserRole(const UserRoleOptions& options) {
  Role role;
  role.source = RoleSource::kUser;
  role.is_collective = options.is_collective;
  role.index = options.current_id;
  ASSIGN_OR_RETURN(
      role.worker_endpoints,
      ParseEndpointList(options.worker_endpoints, "worker_endpoints"));
  role.node_num = NumHosts(role.worker_endpoints);
  role.worker_num = static_cast<int>(role.worker_endpoints.size());
  if (!options.is_collective) {
    role.kind = options.kind;
    role.worker_num = options.worker_num.value_or(role.worker_num);
    ASSIGN_OR_RETURN(
        role.server_endpoints,
        ParseEndpointList(options.server_endpoints, "server_endpoints"));
    ASSIGN_OR_RETURN(role.heter_worker_endpoints,
                     ParseEndpointList(options.heter_worker_endpoints,
                                       "heter_worker_endpoints"));
    role.server_num = static_cast<int>(role.server_endpoints.size());
    role.heter_worker_num =
        static_cast<int>(role.heter_worker_endpoints.size());
  }
  if (role.worker_num < 1) {
    return InvalidArgument("a job has at least one worker: give ",
                           role.is_collective ? "" : "worker_num or ",
                           "worker_endpoints");
  }
  if (role.index < 0 || role.index >= NumOfKind(role)) {
    return InvalidArgument("current_id=", role.index, " with role ",
                           ToString(role.kind), ", of which there are ",
                           NumOfKind(role));
  }
  const auto& own_kind = EndpointsOfKind(role);
  if (static_cast<size_t>(role.index) < own_kind.size()) {
    role.current_endpoint = own_kind[role.index];
    if (role.is_worker()) {
      const auto place = FindPlaceOnHost(own_kind, role.index);
      role.local_rank = place.rank;
      role.local_size = place.size;
    }
  }
  return role;
}

Result<Role> RoleFromEnvironment(const Environment& env, bool is_collective) {
  if (is_collective) return CollectiveRole(env);
  ASSIGN_OR_RETURN(Role role, RoleFromPaddleServers(env));
  RETURN_IF_ERROR(CheckAgainstTorchrun(env, role));
  return role;
}

}  // namespace fleet::cluster
