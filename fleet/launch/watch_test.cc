// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/watch.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <poll.h>
#include <span>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/deadline.h"
#include "fleet/channel/in_process.h"
#include "fleet/channel/message.h"
#include "fleet/channel/socket.h"

namespace fleet::launch {
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

// What a host makes of a message of another launcher.
JobFailure FailureBy(const std::string& message) {
  auto [a, b] = channel::MakeInProcessPair();
  std::vector<HostLink> links;
  links.push_back({"b", std::move(a)});
  HostWatch watch(std::move(links));
  EXPECT_TRUE(b->Send(std::as_bytes(std::span(message)),
                      Deadline::After(std::chrono::seconds(30)))
                  .ok());
  const auto news = WaitForNews(watch);
  if (news.size() != 1) return {.exit_code = -1, .text = "no news"};
  EXPECT_EQ(news[0].kind, HostNews::Kind::kFailed);
  return news[0].failure;
}

TEST(HostWatch, TakesADamagedMessageForAFailure) {
  const std::string whole =
      channel::MessageWriter().U8(3).U32(7).Text("rank 1 failed").Take();
  for (const std::string& message :
       {std::string(), std::string("\0", 1), std::string("\4"),
        std::string("\1more"), std::string("\2more"), std::string("\3"),
        whole.substr(0, 5), whole.substr(0, whole.size() - 1),
        whole + "more"}) {
    const JobFailure failure = FailureBy(message);
    EXPECT_EQ(failure.exit_code, 1);
    EXPECT_THAT(failure.text,
                HasSubstr("the launcher on b sent a damaged message"));
  }
  EXPECT_EQ(FailureBy(whole).exit_code, 7);
}

TEST(HostWatch, AFailureNeverLooksLikeSuccess) {
  for (uint32_t code : {0u, 256u, 0x80000000u}) {
    const JobFailure failure =
        FailureBy(channel::MessageWriter().U8(3).U32(code).Text("why").Take());
    EXPECT_EQ(failure.exit_code, 1);
    EXPECT_EQ(failure.text, "why");
  }
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
}  // namespace fleet::launch
