// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::cluster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;

TEST(Endpoint, IsAnAddressOrANameAndAPort) {
  EXPECT_EQ(ParseEndpoint("10.0.0.1:6170", "IPS").value(),
            (Endpoint{"10.0.0.1", 6170}));
  EXPECT_EQ(ParseEndpoint("job_a-0.svc.local:65535", "IPS").value(),
            (Endpoint{"job_a-0.svc.local", 65535}));
  EXPECT_EQ(ParseEndpoint("  node1:1\n", "IPS").value(),
            (Endpoint{"node1", 1}));
}

TEST(Endpoint, WritesIpv6InBrackets) {
  ASSERT_OK_AND_ASSIGN(Endpoint endpoint, ParseEndpoint("[fe80::1]:80", "IPS"));
  EXPECT_EQ(endpoint, (Endpoint{"fe80::1", 80}));
  EXPECT_EQ(ToString(endpoint), "[fe80::1]:80");
  EXPECT_EQ(ParseEndpoint(ToString(endpoint), "IPS").value(), endpoint);
  EXPECT_EQ(ParseEndpoint("[fe80::1%eth0]:80", "IPS").value().host,
            "fe80::1%eth0");
}

TEST(Endpoint, TwoSpellingsOfAnIpv6AddressAreEqual) {
  EXPECT_EQ(ParseEndpoint("[0:0:0:0:0:0:0:1]:80", "IPS").value(),
            ParseEndpoint("[::1]:80", "IPS").value());
}

TEST(Endpoint, ErrorsNameTheTextAndWhereItCameFrom) {
  const auto says = [](const char* text, const char* fault) {
    EXPECT_THAT(ParseEndpoint(text, "PADDLE_CURRENT_ENDPOINT"),
                StatusIs(kInvalid, AllOf(HasSubstr("PADDLE_CURRENT_ENDPOINT"),
                                         HasSubstr(text), HasSubstr(fault))));
  };
  says("10.0.0.1", "no port");
  says("", "no port");
  says(":6170", "no host");
  says("10.0.0.300:6170", "not an IPv4 address");
  says("10.0.0:6170", "not an IPv4 address");
  says("a b:6170", "neither an address nor a name");
  says("-n:6170", "neither an address nor a name");
  says("http://a", "from 1 to 65535");
  says("fe80::1:6170", "[ip]:port");
  says("[fe80::1]", "[IPv6]:port");
  says("[fe80::1:6170", "[IPv6]:port");
  says("[10.0.0.1]:6170", "no IPv6 address");
  says("[fe80::1%]:6170", "no IPv6 address");
  for (const char* port : {"", "0", "65536", "-1", "6170x", "99999999999"}) {
    says((std::string("h:") + port).c_str(), "from 1 to 65535");
  }
}

TEST(EndpointList, KeepsOrderAndDropsBlanks) {
  ASSERT_OK_AND_ASSIGN(auto list, ParseEndpointList("b:2, a:1 ,[::1]:3", "L"));
  EXPECT_THAT(list, ElementsAre(Endpoint{"b", 2}, Endpoint{"a", 1},
                                Endpoint{"::1", 3}));
  EXPECT_EQ(ToString(list), "b:2,a:1,[::1]:3");
}

TEST(EndpointList, RefusesDuplicatesEmptyItemsAndEmptyLists) {
  EXPECT_THAT(ParseEndpointList("a:1,b:1, a:1", "LIST"),
              StatusIs(kInvalid, "LIST: 'a:1' occurs twice in the list"));
  EXPECT_THAT(ParseEndpointList("a:1,", "LIST"),
              StatusIs(kInvalid, "LIST: item 2 of 2 is empty"));
  EXPECT_THAT(ParseEndpointList("a:1,,b:1", "LIST"),
              StatusIs(kInvalid, "LIST: item 2 of 3 is empty"));
  EXPECT_THAT(ParseEndpointList(" ", "LIST"),
              StatusIs(kInvalid, HasSubstr("LIST: the list is empty")));
}

TEST(EndpointList, OfSeparateTextsHasTheSameRules) {
  EXPECT_THAT(
      ParseEndpointList(std::vector<std::string>{"a:1", "a:2"}, "L").value(),
      ElementsAre(Endpoint{"a", 1}, Endpoint{"a", 2}));
  EXPECT_THAT(ParseEndpointList(std::vector<std::string>{}, "L").value(),
              ElementsAre());
  EXPECT_THAT(ParseEndpointList(std::vector<std::string>{"a:1", "a:1"}, "L"),
              StatusIs(kInvalid, HasSubstr("twice")));
}

TEST(HostList, TakesNamesAndAddressesWithoutPorts) {
  EXPECT_THAT(ParseHostList("10.0.0.1, node2,[::1],fe80::2", "--ips").value(),
              ElementsAre("10.0.0.1", "node2", "::1", "fe80::2"));
  EXPECT_THAT(ParseHostList("10.0.0.1:80", "--ips"),
              StatusIs(kInvalid, AllOf(HasSubstr("--ips: '10.0.0.1:80'"),
                                       HasSubstr("ports do not belong"))));
  EXPECT_THAT(ParseHostList("10.0.0.256", "--ips"),
              StatusIs(kInvalid, HasSubstr("not an IPv4 address")));
  EXPECT_THAT(ParseHostList("a,b,a", "--ips"),
              StatusIs(kInvalid, "--ips: 'a' occurs twice in the list"));
  EXPECT_THAT(ParseHostList("", "--ips"),
              StatusIs(kInvalid, HasSubstr("empty")));
}

TEST(NumHosts, CountsEachHostOnce) {
  EXPECT_EQ(NumHosts({}), 0);
  EXPECT_EQ(NumHosts({{"a", 1}, {"b", 1}, {"a", 2}}), 2);
}

TEST(PlaceOnHost, CountsTheSameHostInOrder) {
  const std::vector<Endpoint> list = {{"a", 1}, {"b", 1}, {"a", 2}, {"a", 3}};
  EXPECT_EQ(FindPlaceOnHost(list, 2).rank, 1);
  EXPECT_EQ(FindPlaceOnHost(list, 2).size, 3);
  EXPECT_EQ(FindPlaceOnHost(list, 1).rank, 0);
  EXPECT_EQ(FindPlaceOnHost(list, 1).size, 1);
}

}  // namespace
}  // namespace fleet::cluster
