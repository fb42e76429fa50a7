// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/join_settings.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fcntl.h>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "fleet/base/descriptor.h"

namespace fleet::cluster {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxSecretByteSize = 4096;
constexpr double kMaxSeconds = 1e9;  // thirty years: nobody means more

Result<std::string> ReadSecret(const Environment& env) {
  if (const auto path = Find(env, "FLEET_SECRET_FILE")) {
    return ReadSecretFile(std::string(*path));
  }
  return std::string(Find(env, "FLEET_SECRET").value_or(""));
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

Result<std::string> ReadSecretFile(const std::string& path) {
  const base::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!file.valid() || fstat(file.get(), &facts) != 0) {
    return ErrnoStatus(errno, "the secret file " + path);
  }
  if (!S_ISREG(facts.st_mode)) {
    return InvalidArgument("the secret file ", path, " is no plain file");
  }
  // The facts of what was opened: the name may mean another file by now.
  RETURN_IF_ERROR(CheckOwners(path, facts));
  std::string secret(kMaxSecretByteSize + 1, '\0');
  const ssize_t got = read(file.get(), secret.data(), secret.size());
  if (got < 0) return ErrnoStatus(errno, "the secret file " + path);
  secret.resize(static_cast<size_t>(got));
  if (secret.size() > kMaxSecretByteSize) {
    return InvalidArgument("the secret file ", path, " has more than ",
                           kMaxSecretByteSize, " bytes");
  }
  while (secret.ends_with('\n') || secret.ends_with('\r')) secret.pop_back();
  if (secret.empty()) {
    return InvalidArgument("the secret file ", path, " is empty");
  }
  return secret;
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
