// SPDX-License-Identifier: Apache-2.0
#include "fleet/fleet.h"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "fleet/base/heap.h"
#include "fleet/channel/meet.h"
#include "fleet/cluster/environment.h"
#include "fleet/cluster/join_settings.h"
#include "fleet/cluster/launcher_words.h"

namespace fleet {
namespace {

using base::Deadline;
using cluster::Environment;

// The GPU of this rank: the first that the launcher chose for it. Where NCCL
// was asked for, also the one at its position on the host.
std::optional<int> GpuOf(const cluster::Role& role, const Environment& env,
                         std::string_view backend) {
  const std::string_view chosen =
      cluster::Find(env, "FLAGS_selected_gpus").value_or("");
  int gpu = 0;
  const auto end = chosen.data() + chosen.size();
  if (std::from_chars(chosen.data(), end, gpu).ec == std::errc()) return gpu;
  return backend == "nccl" ? role.local_rank : std::nullopt;
}

}  // namespace

Result<std::unique_ptr<Fleet>> Fleet::Init(InitOptions options) {
  base::KeepFreedMemory();
  const Environment env = cluster::ReadEnvironment();
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
  ASSIGN_OR_RETURN(world.carrier,
                   channel::ParseCarrier(
                       cluster::Find(env, "FLEET_CHANNEL").value_or("tcp")));
  world.gpu = GpuOf(fleet->role_, env, world.backend);
  world.interrupt = options.interrupt;
  ASSIGN_OR_RETURN(cluster::JoinSettings join, cluster::ReadJoinSettings(env));
  join.options.interrupt = options.interrupt;
  RETURN_IF_ERROR(cluster::AddLaunchersSecret(fleet->role_, env, join.options));

  const Deadline start = Deadline::After(join.start_timeout);
  ASSIGN_OR_RETURN(
      fleet->membership_,
      cluster::Membership::Join(fleet->role_, std::move(join.options), start));
  ASSIGN_OR_RETURN(
      fleet->world_,
      comm::World::Connect(*fleet->membership_, std::move(world), start));
  return fleet;
}

Fleet::~Fleet() {
  // Before the others hear that this rank is gone, and fail because of it.
  if (membership_ != nullptr && !finished_ && size() > 1) {
    cluster::TellLauncher(cluster::LauncherWord::kFailed);
  }
}

Deadline Fleet::deadline() const { return Deadline::After(timeout_); }

void Fleet::Finish() {
  if (std::exchange(finished_, true)) return;
  membership_->Leave(deadline());
}

}  // namespace fleet
