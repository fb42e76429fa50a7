// SPDX-License-Identifier: Apache-2.0

// Roles from the variables that Paddle's launchers and clouds set. Pure and
// thread-safe; InvalidArgument names the variable.

#ifndef FLEET_CLUSTER_PADDLE_ROLE_H_
#define FLEET_CLUSTER_PADDLE_ROLE_H_

#include "fleet/base/status.h"
#include "fleet/cluster/environment.h"
#include "fleet/cluster/role.h"

namespace fleet::cluster {

// A collective job.
//
//   PADDLE_TRAINER_ENDPOINTS  comma list; not set: alone, at 127.0.0.1:6170
//   PADDLE_TRAINER_ID         "0"
//   PADDLE_TRAINING_ROLE      "TRAINER", and nothing else is allowed
//   PADDLE_CURRENT_ENDPOINT   the one of PADDLE_TRAINER_ID in the list; when
//                             set, it has to be that one
//   PADDLE_RANK_IN_NODE       counted in the list
//
// worker_num is the length of the list; PADDLE_TRAINERS_NUM is not read.
Result<Role> RoleFromPaddleCollective(const Environment& env);

// A job with parameter servers. Read in this order, so that the first thing
// missing is the one that is told:
//
//   PADDLE_PSERVERS_IP_PORT_LIST       not set: alone, and nothing else is read
//   PADDLE_TRAINER_ENDPOINTS           comma list; may be absent or empty
//   PADDLE_TRAINERS_NUM                required
//   TRAINING_ROLE                      required: TRAINER, PSERVER or
//                                      HETER_TRAINER
//   PADDLE_HETER_TRAINER_IP_PORT_LIST  "": no heter workers
//   PADDLE_TRAINER_ID                  required of TRAINER
//   PADDLE_PORT, POD_IP                required of PSERVER and HETER_TRAINER,
//                                      whose index is the place of
//                                      POD_IP:PADDLE_PORT in their list
//
// node_num is 0 without PADDLE_TRAINER_ENDPOINTS.
Result<Role> RoleFromPaddleServers(const Environment& env);

// PaddleCloud starts one thing per node. It may be a launcher, which asks for
// the role of each of its ranks, or a single rank.
struct PaddleCloudOptions {
  int ranks_per_node = 1;
  int local_rank = 0;
};

// True when the four variables are set by which Paddle knows its cloud:
// PADDLE_TRAINERS (hosts), POD_IP (this one), PADDLE_TRAINER_ID (index of the
// node, not of the rank), TRAINER_PORTS_NUM (ports free for us on each node).
bool IsPaddleCloud(const Environment& env);

// Endpoints are DISTRIBUTED_TRAINER_ENDPOINTS (TRAINER_PORTS_NUM for each node,
// of which the first ranks_per_node are used) or else every host with ports
// from PADDLE_PORT ("6170") on.
Result<Role> RoleFromPaddleCloud(const Environment& env,
                                 const PaddleCloudOptions& options = {});

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_PADDLE_ROLE_H_
