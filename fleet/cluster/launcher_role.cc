// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/launcher_role.h"

#include <cstdint>
#include <initializer_list>
#include <string>

#include "fleet/channel/secret.h"
#include "fleet/cluster/name_hash.h"
#include "fleet/cluster/slurm.h"

namespace fleet::cluster {
namespace {

// Slurm numbers the steps that are shells rather than tasks from the end:
// 0xfffffffa interactive, 0xfffffffb batch, 0xfffffffc extern, and so on.
constexpr uint32_t kFirstSpecialStep = 0xfffffffa;

// A collective worker `rank` of `size`, where both are sane.
Result<Role> MakeWorker(RoleSource source, std::string_view rank_name, int rank,
                        std::string_view size_name, int size) {
  if (size < 1 || rank < 0 || rank >= size) {
    return InvalidArgument(rank_name, "=", rank, " and ", size_name, "=", size,
                           ": a rank is from 0 to one less than the size");
  }
  Role role;
  role.is_collective = true;
  role.source = source;
  role.index = rank;
  role.worker_num = size;
  role.node_num = 0;
  return role;
}

Result<Role> ReadWorker(const Environment& env, RoleSource source,
                        std::string_view rank_name,
                        std::string_view size_name) {
  ASSIGN_OR_RETURN(int rank, RequireInt(env, rank_name));
  ASSIGN_OR_RETURN(int size, RequireInt(env, size_name));
  return MakeWorker(source, rank_name, rank, size_name, size);
}

Status CheckLocal(const Role& role, std::string_view rank_name,
                  std::string_view size_name) {
  const int size = role.local_size.value_or(role.worker_num);
  const int rank = role.local_rank.value_or(0);
  if (size >= 1 && size <= role.worker_num && rank >= 0 && rank < size) {
    return OkStatus();
  }
  return InvalidArgument(rank_name, "=", rank, " and ", size_name, "=", size,
                         " do not fit in a job of ", role.worker_num,
                         " workers");
}

// Position on the host, where told. Hosts that all hold as many ranks also
// give the number of hosts.
Status ReadLocal(const Environment& env, std::string_view rank_name,
                 std::string_view size_name, Role& role) {
  ASSIGN_OR_RETURN(role.local_rank, FindInt(env, rank_name));
  ASSIGN_OR_RETURN(role.local_size, FindInt(env, size_name));
  RETURN_IF_ERROR(CheckLocal(role, rank_name, size_name));
  if (role.local_size && role.worker_num % *role.local_size == 0) {
    role.node_num = role.worker_num / *role.local_size;
  }
  return OkStatus();
}

Status ReadMaster(const Environment& env, Role& role) {
  const auto host = Find(env, "MASTER_ADDR");
  const auto port = Find(env, "MASTER_PORT");
  if (!host && !port) return OkStatus();
  RETURN_IF_ERROR(Require(env, "MASTER_ADDR").status());
  RETURN_IF_ERROR(Require(env, "MASTER_PORT").status());
  const bool bare_ipv6 = host->find(':') != host->npos && host->front() != '[';
  ASSIGN_OR_RETURN(
      role.master,
      ParseEndpoint(bare_ipv6 ? base::Concat("[", *host, "]:", *port)
                              : base::Concat(*host, ":", *port),
                    "MASTER_ADDR:MASTER_PORT"));
  return OkStatus();
}

// The first of `names` that is set, or the last of them.
std::string_view FirstSet(const Environment& env,
                          std::initializer_list<std::string_view> names) {
  for (std::string_view name : names) {
    if (Find(env, name)) return name;
  }
  return *(names.end() - 1);
}

// "PREFIX-a.b" of those of `names` that are set, empty when the first is not.
std::string ReadName(const Environment& env, std::string_view prefix,
                     std::initializer_list<std::string_view> names) {
  if (!Find(env, *names.begin())) return "";
  std::string name(prefix);
  char separator = '-';
  for (std::string_view variable : names) {
    if (const auto value = Find(env, variable)) {
      name += separator;
      name += *value;
      separator = '.';
    }
  }
  return name;
}

std::string ReadSlurmName(const Environment& env) {
  return ReadName(env, "slurm",
                  {FirstSet(env, {"SLURM_JOB_ID", "SLURM_JOBID"}),
                   FirstSet(env, {"SLURM_STEP_ID", "SLURM_STEPID"})});
}

Status ReadSlurmNodes(const Environment& env, Role& role) {
  const std::string_view list = FirstSet(
      env, {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"});
  if (const auto text = Find(env, list)) {
    ASSIGN_OR_RETURN(role.node_names, ParseSlurmNodeList(*text, list));
    role.node_num = static_cast<int>(role.node_names.size());
  }
  const std::string_view tasks =
      FirstSet(env, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  const auto text = Find(env, tasks);
  ASSIGN_OR_RETURN(std::optional<int> node, FindInt(env, "SLURM_NODEID"));
  if (text && node) {
    ASSIGN_OR_RETURN(std::vector<int> per_node,
                     ParseSlurmTasksPerNode(*text, tasks));
    if (*node < 0 || *node >= static_cast<int>(per_node.size())) {
      return InvalidArgument("SLURM_NODEID=", *node, ", but ", tasks, "=",
                             *text, " speaks of ", per_node.size(), " nodes");
    }
    role.local_size = per_node[*node];
  }
  ASSIGN_OR_RETURN(role.local_rank, FindInt(env, "SLURM_LOCALID"));
  return CheckLocal(role, "SLURM_LOCALID", tasks);
}

}  // namespace

bool IsTorchrun(const Environment& env) {
  return Find(env, "RANK") && Find(env, "WORLD_SIZE");
}

Result<Role> RoleFromTorchrun(const Environment& env) {
  ASSIGN_OR_RETURN(
      Role role, ReadWorker(env, RoleSource::kTorchrun, "RANK", "WORLD_SIZE"));
  RETURN_IF_ERROR(ReadLocal(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE", role));
  ASSIGN_OR_RETURN(std::optional<int> nodes, FindInt(env, "GROUP_WORLD_SIZE"));
  if (nodes) {
    if (*nodes < 1 || *nodes > role.worker_num) {
      return InvalidArgument("GROUP_WORLD_SIZE=", *nodes,
                             " nodes with WORLD_SIZE=", role.worker_num);
    }
    role.node_num = *nodes;
  }
  RETURN_IF_ERROR(ReadMaster(env, role));
  if (!role.master && role.worker_num > 1) {
    return Require(env, "MASTER_ADDR").status();
  }
  role.meeting_name = ReadName(
      env, "torchrun", {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"});
  if (const auto store = Find(env, "TORCHELASTIC_USE_AGENT_STORE")) {
    role.master_is_taken = *store == "True";
  }
  return role;
}

bool IsOpenMpi(const Environment& env) {
  return Find(env, "OMPI_COMM_WORLD_RANK").has_value();
}

Result<Role> RoleFromOpenMpi(const Environment& env) {
  ASSIGN_OR_RETURN(Role role,
                   ReadWorker(env, RoleSource::kOpenMpi, "OMPI_COMM_WORLD_RANK",
                              "OMPI_COMM_WORLD_SIZE"));
  RETURN_IF_ERROR(ReadLocal(env, "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE", role));
  role.meeting_name =
      ReadName(env, "mpi",
               {FirstSet(env, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})});
  // 128 random bits by which the transports of one run know each other: nobody
  // else can guess a name made of them, and take it before rank 0 does. All
  // users see names that are taken, so that it holds a hash.
  const auto key = Find(env, "OMPI_MCA_orte_precondition_transports");
  if (key && !role.meeting_name.empty()) {
    const auto digits = channel::Secret::Derive(*key, "fleet meeting name");
    role.meeting_name += base::Concat(
        "-", digits.ok() ? std::string(digits->text().substr(0, 16))
                         : NameDigits(*key));
  }
  RETURN_IF_ERROR(ReadMaster(env, role));
  return role;
}

bool IsPmi(const Environment& env) {
  return Find(env, "PMI_RANK") && Find(env, "PMI_SIZE");
}

Result<Role> RoleFromPmi(const Environment& env) {
  ASSIGN_OR_RETURN(Role role,
                   ReadWorker(env, RoleSource::kPmi, "PMI_RANK", "PMI_SIZE"));
  RETURN_IF_ERROR(ReadLocal(env, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", role));
  role.meeting_name = ReadName(env, "pmi", {"PMI_JOBID"});
  // srun --mpi=pmi2 sets Slurm's variables beside these.
  if (IsSlurm(env)) {
    if (!role.local_size) RETURN_IF_ERROR(ReadSlurmNodes(env, role));
    role.meeting_name = ReadSlurmName(env);
  }
  RETURN_IF_ERROR(ReadMaster(env, role));
  return role;
}

bool IsSlurm(const Environment& env) {
  if (!Find(env, "SLURM_PROCID")) return false;
  if (const auto step = Find(env, "SLURM_STEP_ID")) {
    // No real step gets to ten digits, so that text of one length is compared.
    const std::string first_special = std::to_string(kFirstSpecialStep);
    return step->size() != first_special.size() || *step < first_special;
  }
  return !Find(env, "SLURM_JOB_ID") && !Find(env, "SLURM_JOBID");
}

Result<Role> RoleFromSlurm(const Environment& env) {
  ASSIGN_OR_RETURN(
      Role role,
      ReadWorker(env, RoleSource::kSlurm, "SLURM_PROCID",
                 FirstSet(env, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})));
  RETURN_IF_ERROR(ReadSlurmNodes(env, role));
  role.meeting_name = ReadSlurmName(env);
  RETURN_IF_ERROR(ReadMaster(env, role));
  return role;
}

bool IsKubernetesJob(const Environment& env) {
  return Find(env, "JOB_COMPLETION_INDEX").has_value();
}

Result<Role> RoleFromKubernetesJob(const Environment& env,
                                   std::optional<int> size) {
  ASSIGN_OR_RETURN(int rank, RequireInt(env, "JOB_COMPLETION_INDEX"));
  std::string_view size_name = "the size given";
  if (!size) {
    size_name = "FLEET_WORLD_SIZE";
    ASSIGN_OR_RETURN(size, FindInt(env, size_name));
  }
  if (!size) {
    return InvalidArgument(
        "JOB_COMPLETION_INDEX=", rank,
        ": this is an indexed job of Kubernetes, which does not tell its size. "
        "Set FLEET_WORLD_SIZE to the job's completions.");
  }
  ASSIGN_OR_RETURN(Role role,
                   MakeWorker(RoleSource::kKubernetes, "JOB_COMPLETION_INDEX",
                              rank, size_name, *size));
  role.node_num = role.worker_num;
  role.local_rank = 0;
  role.local_size = 1;
  RETURN_IF_ERROR(ReadMaster(env, role));
  return role;
}

}  // namespace fleet::cluster
