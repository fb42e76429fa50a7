// SPDX-License-Identifier: Apache-2.0

// Roles from launchers that are not Paddle's: one pair of functions each. IsX
// says whether the launcher's variables are there, RoleFromX reads them. The
// jobs are collective, and the launchers give numbers, not endpoints. Pure and
// thread-safe; InvalidArgument names the variable.
//
// Where the ranks meet is MASTER_ADDR and MASTER_PORT, if set: both or neither.
// Only torchrun always sets them. The others name the job instead, where they
// can (Role::meeting_name, in brackets below), and meeting_place.h makes a
// place of it.

#ifndef FLEET_CLUSTER_LAUNCHER_ROLE_H_
#define FLEET_CLUSTER_LAUNCHER_ROLE_H_

#include <optional>

#include "fleet/base/status.h"
#include "fleet/cluster/environment.h"
#include "fleet/cluster/role.h"

namespace fleet::cluster {

// RANK, WORLD_SIZE; MASTER_ADDR and MASTER_PORT, required of more than one
// rank; LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_WORLD_SIZE (nodes) if set.
// [TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT]. Where
// TORCHELASTIC_USE_AGENT_STORE is True, torchrun itself listens at the master.
bool IsTorchrun(const Environment& env);
Result<Role> RoleFromTorchrun(const Environment& env);

// OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, and if set
// OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE. [PMIX_NAMESPACE or
// OMPI_MCA_ess_base_jobid, and OMPI_MCA_orte_precondition_transports as a hash]
bool IsOpenMpi(const Environment& env);
Result<Role> RoleFromOpenMpi(const Environment& env);

// PMI_RANK, PMI_SIZE, and if set MPI_LOCALRANKID, MPI_LOCALNRANKS: MPICH's
// Hydra, Intel MPI and those made from them. [PMI_JOBID]. In a step of Slurm
// also what RoleFromSlurm reads of nodes and names.
bool IsPmi(const Environment& env);
Result<Role> RoleFromPmi(const Environment& env);

// SLURM_PROCID and, of the step or else of the job, the number of tasks
// (SLURM_STEP_NUM_TASKS, SLURM_NTASKS), the nodes (SLURM_STEP_NODELIST,
// SLURM_NODELIST, SLURM_JOB_NODELIST), the tasks on this one
// (SLURM_STEP_TASKS_PER_NODE, SLURM_TASKS_PER_NODE, at SLURM_NODEID), and
// SLURM_LOCALID. [SLURM_JOB_ID, SLURM_STEP_ID]
//
// IsSlurm is false in the shell of sbatch or salloc: there SLURM_PROCID is 0
// and SLURM_NTASKS that of the allocation, but nobody started the other tasks.
// Such a shell has SLURM_JOB_ID and no SLURM_STEP_ID of a real step.
bool IsSlurm(const Environment& env);
Result<Role> RoleFromSlurm(const Environment& env);

// JOB_COMPLETION_INDEX of an indexed job. Kubernetes does not tell a pod how
// many there are: `size`, or else FLEET_WORLD_SIZE, which the job's manifest
// sets to its `completions`. One rank is one pod, and counts as one node.
bool IsKubernetesJob(const Environment& env);
Result<Role> RoleFromKubernetesJob(const Environment& env,
                                   std::optional<int> size = std::nullopt);

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_LAUNCHER_ROLE_H_
