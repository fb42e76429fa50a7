// SPDX-License-Identifier: Apache-2.0

// What the environment says about joining a job, beside the role.

#ifndef FLEET_CLUSTER_JOIN_SETTINGS_H_
#define FLEET_CLUSTER_JOIN_SETTINGS_H_

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/cluster/environment.h"
#include "fleet/cluster/membership.h"
#include "fleet/cluster/role.h"

namespace fleet::cluster {

struct JoinSettings {
  JoinOptions options;
  // How long Join may wait for ranks that are missing.
  std::chrono::milliseconds start_timeout = std::chrono::seconds(300);
};

// Seconds are positive and may have a fraction.
//
//   FLEET_SECRET_FILE        a file that holds the secret, its last line break
//                            not counted; goes before FLEET_SECRET
//   FLEET_SECRET             the secret; the key that is made of it
//                            (Secret::FromText) is options.trust.secret
//   FLEET_REQUIRE_SECRET     1: options.requires_secret
//   FLEET_ENCRYPTION         options.trust.encryption
//   FLEET_LISTEN_FD          options.listen_fd
//   FLEET_START_TIMEOUT      seconds, 300
//   FLEET_HEARTBEAT_TIMEOUT  seconds, 10: options.heartbeat_patience. Beats are
//                            a second apart, or a fifth of it if that is less.
//
// InvalidArgument names the variable and its value; NotFound or
// FailedPrecondition when the file cannot be read, or others can read it
// (ReadSecretFile).
Result<JoinSettings> ReadJoinSettings(const Environment& env);

// Where the environment holds no secret, looks for what a launcher that is not
// Fleet's gives to all ranks of `role` and to nobody else:
//
//   Open MPI         the key of its transports (128 random bits in
//                    OMPI_MCA_orte_precondition_transports): options.trust
//   a step of Slurm  the users of MUNGE: options.munge. A warning says when it
//                    cannot be had.
//
// Ranks that meet inside a host need neither (JoinOptions::trust).
Status AddLaunchersSecret(const Role& role, const Environment& env,
                          JoinOptions& options);

// FailedPrecondition, which says what to do, for a job without a secret that
// requires one.
Status CheckSecretRequired(const JoinOptions& options);

// Where `trust` has no secret, the hosts that `role` names are those to listen
// for, if it names those of all workers.
void NameHosts(const Role& role, channel::Trust& trust);

// "whoever reaches its ports", or whoever does so from the hosts that were
// named: who can join a job without a secret.
std::string WhoCanJoin(const std::vector<std::string>& named_hosts);

// What a file with a secret holds, without its last line breaks.
// InvalidArgument for an empty one. FailedPrecondition for a file that belongs
// to another user than this process's or root, that anybody else can read, or
// that others than its owner can write: who has read it can join every job that
// uses it.
Result<channel::Secret> ReadSecretFile(const std::string& path);

// A number of seconds under `name`; `otherwise` when it is not set.
Result<std::chrono::milliseconds> ReadSeconds(
    const Environment& env, std::string_view name,
    std::chrono::milliseconds otherwise);

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_JOIN_SETTINGS_H_
