// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/join_settings.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "fleet/base/descriptor.h"
#include "fleet/base/log.h"
#include "fleet/channel/hmac.h"
#include "fleet/cluster/launcher_role.h"
#include "fleet/cluster/meeting_place.h"
#include "fleet/cluster/munge.h"

namespace fleet::cluster {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxSecretByteSize = 4096;
// "5fcdfc93795e9521-ba13de4976090394"
constexpr size_t kTransportKeyByteSize = 33;
constexpr double kMaxSeconds = 1e9;  // thirty years: nobody means more

Result<channel::Secret> ReadSecret(const Environment& env) {
  if (const auto path = Find(env, "FLEET_SECRET_FILE")) {
    ASSIGN_OR_RETURN(const channel::Secret text,
                     ReadSecretFile(std::string(*path)));
    return channel::Secret::FromText(text.text());
  }
  return channel::Secret::FromText(Find(env, "FLEET_SECRET").value_or(""));
}

Result<bool> ReadSwitch(const Environment& env, std::string_view name) {
  const std::string_view value = Find(env, name).value_or("0");
  if (value == "0" || value == "1") return value == "1";
  return InvalidArgument(name, "=", value, ": must be 0 or 1");
}

// Group members may read it: Kubernetes gives the secrets of a pod to a group.
Status CheckOwners(const std::string& path, const struct stat& facts) {
  const mode_t mode = facts.st_mode & 07777;
  if (facts.st_uid != geteuid() && facts.st_uid != 0) {
    return FailedPrecondition("the secret file ", path, " belongs to user ",
                              facts.st_uid, ", and this process to user ",
                              geteuid());
  }
  if ((mode & (S_IRWXO | S_IWGRP)) == 0) return OkStatus();
  char digits[8];
  std::snprintf(digits, sizeof(digits), "%04o", mode);
  return FailedPrecondition("the secret file ", path, " has the mode ", digits,
                            ", so that others can read or write it: make it ",
                            "yours alone by chmod 600");
}

}  // namespace

Result<channel::Secret> ReadSecretFile(const std::string& path) {
  const base::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts{};
  if (!file.valid() || fstat(file.get(), &facts) != 0) {
    return ErrnoStatus(errno, "the secret file " + path);
  }
  if (!S_ISREG(facts.st_mode)) {
    return InvalidArgument("the secret file ", path, " is no plain file");
  }
  // The facts of what was opened: the name may mean another file by now.
  RETURN_IF_ERROR(CheckOwners(path, facts));
  std::array<char, kMaxSecretByteSize + 1> bytes;
  const ssize_t got = read(file.get(), bytes.data(), bytes.size());
  if (got < 0) return ErrnoStatus(errno, "the secret file " + path);
  std::string_view text(bytes.data(), static_cast<size_t>(got));
  if (text.size() > kMaxSecretByteSize) {
    return InvalidArgument("the secret file ", path, " has more than ",
                           kMaxSecretByteSize, " bytes");
  }
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  const channel::Secret secret(text);
  explicit_bzero(bytes.data(), bytes.size());
  if (secret.empty()) {
    return InvalidArgument("the secret file ", path, " is empty");
  }
  return secret;
}

Status AddLaunchersSecret(const Role& role, const Environment& env,
                          JoinOptions& options) {
  channel::Trust& trust = options.trust;
  if (!trust.secret.empty() || role.worker_num <= 1 ||
      !channel::CanCheckSecrets()) {
    return OkStatus();
  }
  if (role.source == RoleSource::kOpenMpi) {
    const std::string_view key =
        Find(env, "OMPI_MCA_orte_precondition_transports").value_or("");
    if (key.size() < kTransportKeyByteSize) return OkStatus();
    ASSIGN_OR_RETURN(trust.secret,
                     channel::Secret::Derive(key, "fleet job secret"));
    return OkStatus();
  }
  const bool by_slurm = role.source == RoleSource::kSlurm ||
                        role.source == RoleSource::kPmi ||
                        role.source == RoleSource::kTorchrun;
  if (!by_slurm || !IsSlurm(env)) return OkStatus();
  const Result<MeetingPlace> place = FindMeetingPlace(role);
  if (!place.ok() || place->addresses.front().is_local()) return OkStatus();
  Result<std::shared_ptr<Munge>> munge = Munge::Open(env);
  if (munge.ok()) {
    options.munge = *std::move(munge);
  } else {
    FLEET_LOG(WARNING) << "no job secret by MUNGE: "
                       << munge.status().message();
  }
  return OkStatus();
}

Status CheckSecretRequired(const JoinOptions& options) {
  if (!options.requires_secret || !options.trust.secret.empty()) {
    return OkStatus();
  }
  return FailedPrecondition(
      "FLEET_REQUIRE_SECRET=1, and this job has no secret: give all its "
      "processes the same FLEET_SECRET_FILE");
}

void NameHosts(const Role& role, channel::Trust& trust) {
  // Where the addresses of some are not known, anybody may be one of them.
  const auto num_known = static_cast<int>(role.worker_endpoints.size());
  if (!trust.secret.empty() || num_known < role.worker_num) return;
  std::set<std::string> hosts;
  for (const auto* list : {&role.worker_endpoints, &role.server_endpoints,
                           &role.heter_worker_endpoints}) {
    for (const Endpoint& at : *list) hosts.insert(at.host);
  }
  trust.named_hosts.assign(hosts.begin(), hosts.end());
}

std::string WhoCanJoin(const std::vector<std::string>& named_hosts) {
  std::string text = "whoever reaches its ports";
  for (const std::string& host : named_hosts) {
    text += (text.ends_with("ports") ? " from " : ", ") + host;
  }
  return text;
}

Result<milliseconds> ReadSeconds(const Environment& env, std::string_view name,
                                 milliseconds otherwise) {
  const auto text = Find(env, name);
  if (!text) return otherwise;
  double seconds = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, seconds);
  if (error != std::errc() || stop != end || !(seconds > 0) ||
      seconds > kMaxSeconds) {
    return InvalidArgument(name, "=", *text,
                           ": must be a number of seconds above 0");
  }
  const auto time =
      std::chrono::ceil<milliseconds>(std::chrono::duration<double>(seconds));
  return time;
}

Result<JoinSettings> ReadJoinSettings(const Environment& env) {
  JoinSettings settings;
  JoinOptions& options = settings.options;
  ASSIGN_OR_RETURN(options.trust.secret, ReadSecret(env));
  if (const auto encryption = Find(env, "FLEET_ENCRYPTION")) {
    ASSIGN_OR_RETURN(options.trust.encryption,
                     channel::ParseEncryption(*encryption));
  }
  ASSIGN_OR_RETURN(options.requires_secret,
                   ReadSwitch(env, "FLEET_REQUIRE_SECRET"));
  options.launcher_warned = Find(env, "FLEET_LAUNCHER").has_value();
  ASSIGN_OR_RETURN(const std::optional<int> listen_fd,
                   FindInt(env, "FLEET_LISTEN_FD"));
  options.listen_fd = listen_fd.value_or(-1);
  ASSIGN_OR_RETURN(
      settings.start_timeout,
      ReadSeconds(env, "FLEET_START_TIMEOUT", settings.start_timeout));
  ASSIGN_OR_RETURN(
      options.heartbeat_patience,
      ReadSeconds(env, "FLEET_HEARTBEAT_TIMEOUT", options.heartbeat_patience));
  options.heartbeat_interval =
      std::min(options.heartbeat_interval,
               std::max(options.heartbeat_patience / 5, milliseconds(1)));
  return settings;
}

}  // namespace fleet::cluster
