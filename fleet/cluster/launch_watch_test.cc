// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/launch_watch.h"

#include <chrono>
#include <memory>
#include <poll.h>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/deadline.h"
#include "fleet/channel/in_process.h"
#include "fleet/channel/socket.h"

namespace fleet::cluster {
namespace {

using base::Deadline;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Two hosts that watch each other.
struct Hosts {
  std::unique_ptr<HostWatch> first, second;
};

Hosts MakeHosts() {
  auto [a, b] = channel::MakeInProcessPair();
  std::vector<HostLink> to_b, to_a;
  to_b.push_back({"b", std::move(a)});
  to_a.push_back({"a", std::move(b)});
  return {std::make_unique<HostWatch>(std::move(to_b)),
          std::make_unique<HostWatch>(std::move(to_a))};
}

std::vector<HostNews> WaitForNews(HostWatch& watch) {
  EXPECT_TRUE(channel::WaitFor(watch.fd(), POLLIN,
                               Deadline::After(std::chrono::seconds(30))));
  return watch.TakeNews();
}

TEST(HostWatch, PassesAFailureOn) {
  Hosts hosts = MakeHosts();
  hosts.first->TellFailure({.exit_code = 7, .text = "rank 1 failed"});
  const auto news = WaitForNews(*hosts.second);
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, HostNews::Kind::kFailed);
  EXPECT_EQ(news[0].failure.exit_code, 7);
  EXPECT_EQ(news[0].failure.text, "rank 1 failed");
  // It is told once.
  EXPECT_FALSE(channel::WaitFor(hosts.second->fd(), POLLIN,
                                Deadline::After(std::chrono::seconds(0))));
}

TEST(HostWatch, TellsOfALauncherThatVanished) {
  Hosts hosts = MakeHosts();
  hosts.first.reset();
  const auto news = WaitForNews(*hosts.second);
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].failure.exit_code, 1);
  EXPECT_THAT(news[0].failure.text, HasSubstr("the launcher on a is gone"));
}

TEST(HostWatch, WhoIsDoneMayGo) {
  Hosts hosts = MakeHosts();
  hosts.first->TellWorkersEnded();
  hosts.first->TellDone();
  hosts.first.reset();
  const auto news = WaitForNews(*hosts.second);
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, HostNews::Kind::kWorkersEnded);
  // What comes after the last word is not news; the other way still works.
  hosts.second->TellDone();
  EXPECT_THAT(hosts.second->TakeNews(), IsEmpty());
}

TEST(HostWatch, AJobOnOneHostHearsNothing) {
  HostWatch alone({});
  EXPECT_EQ(alone.num_links(), 0);
  alone.TellFailure({});
  alone.TellDone();
  EXPECT_THAT(alone.TakeNews(), IsEmpty());
}

}  // namespace
}  // namespace fleet::cluster
