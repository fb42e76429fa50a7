// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/named_hosts.h"

#include <gtest/gtest.h>

namespace fleet::channel {
namespace {

TEST(NamedHosts, AreAllHostsWhenNoneIsNamed) {
  NamedHosts hosts({});
  EXPECT_TRUE(hosts.Contain("10.0.0.1"));
}

TEST(NamedHosts, AreThoseThatWereNamedAndThisOne) {
  NamedHosts hosts({"10.0.0.1", "fd00::2"});
  EXPECT_TRUE(hosts.Contain("10.0.0.1"));
  EXPECT_TRUE(hosts.Contain("::ffff:10.0.0.1"));
  EXPECT_TRUE(hosts.Contain("fd00::2"));
  EXPECT_TRUE(hosts.Contain("127.0.0.1"));
  EXPECT_TRUE(hosts.Contain("::1"));
  EXPECT_FALSE(hosts.Contain("10.0.0.10"));
  EXPECT_FALSE(hosts.Contain("fd00::1"));
  EXPECT_EQ(hosts.ToString(), "10.0.0.1, fd00::2");
}

TEST(NamedHosts, AreLookedUpByName) {
  // What every machine knows; loopback itself is always one of them.
  NamedHosts hosts({"localhost", "no-such-host.invalid"});
  EXPECT_TRUE(hosts.Contain("127.0.0.1"));
  EXPECT_FALSE(hosts.Contain("10.0.0.1"));
}

}  // namespace
}  // namespace fleet::channel
