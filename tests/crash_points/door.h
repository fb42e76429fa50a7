// SPDX-License-Identifier: Apache-2.0

// A socket that stays open over restarts of a server, as a launcher keeps it.

#ifndef FLEET_TESTS_CRASH_POINTS_DOOR_H_
#define FLEET_TESTS_CRASH_POINTS_DOOR_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fleet/base/check.h"
#include "fleet/channel/socket.h"

namespace fleet::crash_points {

struct Door {
  int socket = -1;  // a plain number: children of a fork have it too
  channel::Address address;

  Door() {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    auto* const generic = reinterpret_cast<sockaddr*>(&at);
    socket = ::socket(AF_INET, SOCK_STREAM, 0);
    FLEET_CHECK(::bind(socket, generic, size) == 0);
    FLEET_CHECK(::listen(socket, 64) == 0);
    FLEET_CHECK(::getsockname(socket, generic, &size) == 0);
    address.host = "127.0.0.1";
    address.port = ntohs(at.sin_port);
  }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  ~Door() { (void)::close(socket); }
};

}  // namespace fleet::crash_points

#endif  // FLEET_TESTS_CRASH_POINTS_DOOR_H_
