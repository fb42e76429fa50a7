// SPDX-License-Identifier: Apache-2.0

// For tests of memberships: roles that meet at a port of this host.

#ifndef FLEET_TESTING_MEMBERSHIP_FIXTURES_H_
#define FLEET_TESTING_MEMBERSHIP_FIXTURES_H_

#include <chrono>
#include <cstdint>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>

#include "fleet/base/deadline.h"
#include "fleet/channel/socket.h"
#include "fleet/cluster/membership.h"
#include "fleet/cluster/role.h"
#include "fleet/testing/deadlines.h"

namespace fleet::cluster {

using testing::Soon;

// A socket that listens at a free port of this host, as a launcher makes it.
// Forked ranks inherit it.
class Port final {
 public:
  Port() {
    channel::Address any;
    any.host = "127.0.0.1";
    const channel::SocketAddress at = Resolve(any).value().front();
    fd_ = base::Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(fd_.get(), at.get(), at.byte_size), 0);
    EXPECT_EQ(listen(fd_.get(), 16), 0);
    channel::SocketAddress bound;
    bound.byte_size = sizeof(bound.storage);
    EXPECT_EQ(getsockname(fd_.get(), bound.get(), &bound.byte_size), 0);
    endpoint_ = {"127.0.0.1", ToAddress(bound).port};
  }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  const Endpoint& endpoint() const { return endpoint_; }
  int Release() { return fd_.Release(); }
  void Close() { (void)fd_.Close(); }

 private:
  base::Descriptor fd_;
  Endpoint endpoint_;
};

// Worker `rank` of `size`, where worker 0 is at `first`.
inline Role Worker(int rank, int size, const Endpoint& first) {
  Role role;
  role.is_collective = true;
  role.source = RoleSource::kPaddle;
  role.index = rank;
  role.worker_num = size;
  role.worker_endpoints.push_back(first);
  for (int i = 1; i < size; ++i) {
    role.worker_endpoints.push_back({"127.0.0.1", static_cast<uint16_t>(i)});
  }
  return role;
}

inline JoinOptions Options() {
  JoinOptions options;
  options.trust.secret = "the secret of the test";
  return options;
}

}  // namespace fleet::cluster

#endif  // FLEET_TESTING_MEMBERSHIP_FIXTURES_H_
