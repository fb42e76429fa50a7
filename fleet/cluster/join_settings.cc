// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/join_settings.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "fleet/base/file_system.h"

namespace fleet::cluster {
namespace {

using std::chrono::milliseconds;

constexpr double kMaxSeconds = 1e9;  // thirty years: nobody means more

Result<std::string> ReadSecret(const Environment& env) {
  if (const auto path = Find(env, "FLEET_SECRET_FILE")) {
    ASSIGN_OR_RETURN(std::string secret, base::ReadFile(std::string(*path)));
    while (secret.ends_with('\n') || secret.ends_with('\r')) secret.pop_back();
    if (secret.empty()) {
      return InvalidArgument("FLEET_SECRET_FILE=", *path, ": it is empty");
    }
    return secret;
  }
  return std::string(Find(env, "FLEET_SECRET").value_or(""));
}

}  // namespace

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
