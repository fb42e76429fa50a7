// SPDX-License-Identifier: Apache-2.0
#include "fleet/fleet.h"

#include <string>
#include <unistd.h>
#include <utility>

#include "fleet/cluster/environment.h"
#include "fleet/cluster/join_settings.h"

namespace fleet {
namespace {

using base::Deadline;
using cluster::Environment;

Environment ReadEnvironment() {
  Environment env;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    env.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return env;
}

}  // namespace

Result<std::unique_ptr<Fleet>> Fleet::Init(InitOptions options) {
  const Environment env = ReadEnvironment();
  std::unique_ptr<Fleet> fleet(new Fleet());
  if (options.role.has_value()) {
    fleet->role_ = *std::move(options.role);
  } else {
    ASSIGN_OR_RETURN(fleet->role_, cluster::RoleFromEnvironment(env, true));
  }
  if (!fleet->role_.is_worker()) {
    return InvalidArgument("a collective job has workers only, and this is ",
                           cluster::ToString(fleet->role_));
  }
  using namespace std::chrono_literals;
  ASSIGN_OR_RETURN(fleet->timeout_,
                   cluster::ReadSeconds(env, "FLEET_TIMEOUT", 1800s));
  comm::WorldOptions world;
  ASSIGN_OR_RETURN(world.stall_report,
                   cluster::ReadSeconds(env, "FLEET_STALL_REPORT", 60s));
  world.backend = cluster::Find(env, "FLEET_COMM").value_or("auto");
  world.interrupt = options.interrupt;
  ASSIGN_OR_RETURN(cluster::JoinSettings join, cluster::ReadJoinSettings(env));
  join.options.interrupt = options.interrupt;

  const Deadline start = Deadline::After(join.start_timeout);
  ASSIGN_OR_RETURN(
      fleet->membership_,
      cluster::Membership::Join(fleet->role_, std::move(join.options), start));
  ASSIGN_OR_RETURN(
      fleet->world_,
      comm::World::Connect(*fleet->membership_, std::move(world), start));
  return fleet;
}

Fleet::~Fleet() = default;

Deadline Fleet::deadline() const { return Deadline::After(timeout_); }

void Fleet::Finish() {
  if (std::exchange(finished_, true)) return;
  membership_->Leave(deadline());
}

}  // namespace fleet
