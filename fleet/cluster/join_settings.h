// SPDX-License-Identifier: Apache-2.0

// What the environment says about joining a job, beside the role.

#ifndef FLEET_CLUSTER_JOIN_SETTINGS_H_
#define FLEET_CLUSTER_JOIN_SETTINGS_H_

#include <chrono>
#include <string>
#include <string_view>

#include "fleet/base/status.h"
#include "fleet/cluster/environment.h"
#include "fleet/cluster/membership.h"

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
//   FLEET_SECRET             the secret
//   FLEET_LISTEN_FD          options.listen_fd
//   FLEET_START_TIMEOUT      seconds, 300
//   FLEET_HEARTBEAT_TIMEOUT  seconds, 10: options.heartbeat_patience. Beats are
//                            a second apart, or a fifth of it if that is less.
//
// InvalidArgument names the variable and its value; NotFound or
// FailedPrecondition when the file cannot be read, or others can read it
// (ReadSecretFile).
Result<JoinSettings> ReadJoinSettings(const Environment& env);

// The secret in a file, without its last line breaks. InvalidArgument for an
// empty one. FailedPrecondition for a file that belongs to another user than
// this process's or root, that anybody else can read, or that others than its
// owner can write: who has read it can join every job that uses it.
Result<std::string> ReadSecretFile(const std::string& path);

// A number of seconds under `name`; `otherwise` when it is not set.
Result<std::chrono::milliseconds> ReadSeconds(
    const Environment& env, std::string_view name,
    std::chrono::milliseconds otherwise);

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_JOIN_SETTINGS_H_
