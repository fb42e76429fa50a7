// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/bind_address.h"

#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::cluster {
namespace {

using testing::AnyOf;

// An address for documentation, which no host has.
constexpr char kElsewhere[] = "198.51.100.1";
// A name that is never given to a host.
constexpr char kNobody[] = "nobody.invalid";

std::string BoundFor(const std::string& host) {
  const auto address = BindAddress({.host = host, .port = 7000});
  EXPECT_EQ(address.ok() ? address->port : 7000, 7000);
  return address.ok() ? address->host : "";
}

TEST(BindAddress, OfAnAddressIsThatOne) {
  for (const char* host :
       {"127.0.0.2", kElsewhere, "::1", "0:0:0:0:0:0:0:1", "2001:DB8::0:1",
        "fe80::1%lo", "0.0.0.0", "localhost"}) {
    EXPECT_EQ(BoundFor(host), host);
  }
  const channel::Address local = {.local_name = "name"};
  EXPECT_EQ(BindAddress(local).value(), local);
}

TEST(BindAddress, OfANameIsAllOfThisHost) {
  char name[256] = "";
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  // A machine may not know its own name.
  if (channel::Resolve({.host = name}).ok()) {
    EXPECT_THAT(BoundFor(name), AnyOf("0.0.0.0", "::"));
    EXPECT_TRUE(IsOwnAddress(name));
  } else {
    EXPECT_FALSE(IsOwnAddress(name));
  }
}

TEST(BindAddress, SaysThatNobodyKnowsAName) {
  EXPECT_THAT(BindAddress({.host = kNobody, .port = 7000}),
              StatusIs(StatusCode::kNotFound, testing::HasSubstr(kNobody)));
}

TEST(IsOwnAddress, TellsThisHostFromOthers) {
  EXPECT_TRUE(IsOwnAddress("127.0.0.1"));
  EXPECT_TRUE(IsOwnAddress("127.0.0.2"));
  EXPECT_TRUE(IsOwnAddress("localhost"));
  EXPECT_FALSE(IsOwnAddress(kElsewhere));
  EXPECT_FALSE(IsOwnAddress(kNobody));
}

}  // namespace
}  // namespace fleet::cluster
