// SPDX-License-Identifier: Apache-2.0

// Who this process is in its job. A Role is read once, at the start, from the
// environment that a launcher made or from what the user says; afterwards it is
// a plain value that never changes.
//
//   ASSIGN_OR_RETURN(Role role, RoleFromEnvironment(env, true));
//   if (role.is_worker() && role.index == 0) Save();
//
// All functions are pure and thread-safe. They fail with InvalidArgument only,
// and the message names the variable and its value.

#ifndef FLEET_CLUSTER_ROLE_H_
#define FLEET_CLUSTER_ROLE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/cluster/endpoint.h"
#include "fleet/cluster/environment.h"

namespace fleet::cluster {

// The numbers are Paddle's, which scripts print and compare.
enum class RoleKind {
  kWorker = 1,
  kServer = 2,
  kHeterWorker = 3,  // computes a part of the model on another kind of device
};

// Which of the readers below made a Role.
enum class RoleSource {
  kAlone,  // nothing speaks of a job
  kUser,
  kPaddle,
  kTorchrun,
  kOpenMpi,
  kPmi,
  kSlurm,
  kPaddleCloud,
  kKubernetes,
};

struct Role {
  RoleKind kind = RoleKind::kWorker;
  int index = 0;  // among the processes of its kind; a worker's rank

  int worker_num = 1;
  int server_num = 0;
  int heter_worker_num = 0;
  // Different hosts among the workers; 0 where the environment does not tell.
  int node_num = 1;

  // By index. Some launchers give numbers only; the lists are empty then, and
  // the processes tell each other their endpoints when they meet at `master`.
  std::vector<Endpoint> worker_endpoints;
  std::vector<Endpoint> server_endpoints;
  std::vector<Endpoint> heter_worker_endpoints;
  std::optional<Endpoint> current_endpoint;  // of this process
  std::optional<Endpoint> master;            // where worker 0 listens
  bool master_is_taken = false;  // torchrun's own store listens there
  // Names of the hosts in the order of ranks, where only these are known.
  std::vector<std::string> node_names;
  // The launcher's own name for this run of the job, in which no other on its
  // hosts is called the same. Empty where it has none.
  std::string meeting_name;

  // This worker's position on its host, and how many workers are there.
  std::optional<int> local_rank;
  std::optional<int> local_size;

  bool is_collective = false;
  // Nothing spoke of a job: this process is alone. A job of one worker is a
  // job, and has false here.
  bool non_distributed = false;
  RoleSource source = RoleSource::kAlone;

  bool is_worker() const { return kind == RoleKind::kWorker; }
  bool is_server() const { return kind == RoleKind::kServer; }
  bool is_heter_worker() const { return kind == RoleKind::kHeterWorker; }
  bool is_first_worker() const { return is_worker() && index == 0; }

  friend bool operator==(const Role&, const Role&) = default;
};

// "worker", "server", "heter worker".
std::string_view ToString(RoleKind kind);
// "Paddle's environment", "torchrun", ...
std::string_view ToString(RoleSource source);
// "worker 1 of 2 on 2 nodes at 10.0.0.2:6170, from torchrun": for logs and
// errors.
std::string ToString(const Role& role);

// What a user says instead of a launcher (UserDefinedRoleMaker).
struct UserRoleOptions {
  bool is_collective = false;  // then `kind` and the servers are not looked at
  RoleKind kind = RoleKind::kWorker;
  int current_id = 0;  // among the processes of `kind`
  // Without it, as many as worker_endpoints. Collective jobs always take that.
  std::optional<int> worker_num;
  std::vector<std::string> worker_endpoints;
  std::vector<std::string> server_endpoints;
  std::vector<std::string> heter_worker_endpoints;
};
Result<Role> MakeUserRole(const UserRoleOptions& options);

// Reads whatever launcher made `env`. Without is_collective, that is Paddle's
// parameter-server environment (paddle_role.h) and no other, because no other
// launcher knows of servers. With it, the first of these that applies:
//
//   launcher      applies when these are set
//   Paddle        PADDLE_TRAINER_ENDPOINTS
//   torchrun      RANK and WORLD_SIZE
//   Open MPI      OMPI_COMM_WORLD_RANK
//   PMI           PMI_RANK and PMI_SIZE (MPICH, Intel MPI)
//   Slurm         SLURM_PROCID, unless in the shell of sbatch or salloc
//   PaddleCloud   PADDLE_TRAINERS, POD_IP, PADDLE_TRAINER_ID, TRAINER_PORTS_NUM
//   Kubernetes    JOB_COMPLETION_INDEX
//   alone         always
//
// Those higher up start single processes; those further down may have started a
// launcher that is higher up (srun torchrun), so that both are set, differ, and
// the upper one is right. Only Paddle's and torchrun's speak of the same
// process: when their ranks or sizes differ, the answer is InvalidArgument and
// shows both.
Result<Role> RoleFromEnvironment(const Environment& env, bool is_collective);

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_ROLE_H_
