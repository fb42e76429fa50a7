// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/join_settings.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <system_error>

#include "fleet/base/file_system.h"
#include "fleet/channel/socket.h"
#include "fleet/cluster/endpoint.h"

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

// Whether `fd` is still the socket that the launcher gave.
bool IsBoundTo(int fd, uint16_t port) {
  channel::SocketAddress own;
  own.byte_size = sizeof(own.storage);
  if (getsockname(fd, own.get(), &own.byte_size) != 0) return false;
  int listens = 0;
  socklen_t byte_size = sizeof(listens);
  (void)getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &byte_size);
  return listens != 0 && ToAddress(own).port == port;
}

Result<int> ReadListenFd(const Environment& env) {
  ASSIGN_OR_RETURN(const std::optional<int> fd,
                   FindInt(env, "FLEET_LISTEN_FD"));
  const auto current = Find(env, "PADDLE_CURRENT_ENDPOINT");
  if (!fd || !current) return -1;
  ASSIGN_OR_RETURN(const Endpoint endpoint,
                   ParseEndpoint(*current, "PADDLE_CURRENT_ENDPOINT"));
  return IsBoundTo(*fd, endpoint.port) ? *fd : -1;
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
  ASSIGN_OR_RETURN(options.secret, ReadSecret(env));
  ASSIGN_OR_RETURN(options.listen_fd, ReadListenFd(env));
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
