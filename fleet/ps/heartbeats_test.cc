// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/heartbeats.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::ps {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = Heartbeats::News::Kind;
using TimePoint = Heartbeats::TimePoint;

MATCHER_P3(Says, kind, peer, text, "") {
  return arg.kind == kind && arg.peer == peer &&
         arg.text.find(text) != std::string::npos;
}

HeartbeatOptions OfServer() {
  HeartbeatOptions options;
  options.self = "server 0";
  options.peers = "worker";
  return options;
}

// Looks every interval until `end`; what the looks said.
std::vector<Heartbeats::News> LookUntil(Heartbeats& beats, TimePoint& now,
                                        TimePoint end) {
  std::vector<Heartbeats::News> all;
  while (now < end) {
    now += kBeatInterval;
    for (auto& each : beats.Look(now)) all.push_back(std::move(each));
  }
  return all;
}

TEST(Heartbeats, NamesWhoIsSilentOnceAndSaysWhenItIsBack) {
  Heartbeats beats(OfServer());
  TimePoint now = TimePoint{} + 100s;
  EXPECT_THAT(beats.Look(now), IsEmpty());
  beats.Heard(0, "process 5 on host-a", now);
  beats.Heard(1, "process 7 on host-b", now);
  for (int i = 0; i < 20; ++i) {
    now += kBeatInterval;
    beats.Heard(0, "process 5 on host-a", now);
    const auto news = beats.Look(now);
    if (i == 3) {
      EXPECT_THAT(news, ElementsAre(Says(Kind::kSilent, 1,
                                         "server 0: worker 1 (process 7 on "
                                         "host-b) has given no sign of life "
                                         "for 2.0 s, since ")));
    } else {
      EXPECT_THAT(news, IsEmpty()) << i;
    }
  }
  beats.Heard(1, "process 7 on host-b", now);
  EXPECT_THAT(beats.Look(now + kBeatInterval),
              ElementsAre(Says(Kind::kBack, 1, "is back after 10.0 s")));
}

TEST(Heartbeats, NobodyIsDeadUnlessATimeIsGiven) {
  Heartbeats beats(OfServer());
  TimePoint now = TimePoint{} + 100s;
  beats.Heard(1, "p", now);
  EXPECT_THAT(LookUntil(beats, now, now + 3600s),
              ElementsAre(Says(Kind::kSilent, 1, "waited for")));
}

TEST(Heartbeats, WhoIsSilentForTheTimeoutIsDeadOnce) {
  HeartbeatOptions options = OfServer();
  options.dead_after = 30s;
  Heartbeats beats(options);
  TimePoint now = TimePoint{} + 100s;
  beats.Heard(1, "p", now);
  EXPECT_THAT(LookUntil(beats, now, now + 60s),
              ElementsAre(Says(Kind::kSilent, 1, "FLEET_HEARTBEAT_TIMEOUT"),
                          Says(Kind::kDead, 1, "30.0 s")));
}

// A server that was stopped for a minute has heard nobody, and names nobody.
TEST(Heartbeats, TimeInWhichThisProcessStoodStillIsNobodysSilence) {
  HeartbeatOptions options = OfServer();
  options.dead_after = 10s;
  Heartbeats beats(options);
  TimePoint now = TimePoint{} + 100s;
  beats.Heard(0, "p", now);
  EXPECT_THAT(beats.Look(now), IsEmpty());
  now += 60s;
  EXPECT_THAT(beats.Look(now), IsEmpty());
  now += kBeatInterval;
  beats.Heard(0, "p", now);
  EXPECT_THAT(beats.Look(now), IsEmpty());
}

TEST(Heartbeats, WhoseConnectionHasEndedIsNotWatched) {
  Heartbeats beats(OfServer());
  TimePoint now = TimePoint{} + 100s;
  beats.Heard(1, "p", now);
  beats.Forget(1);
  beats.Forget(2);
  EXPECT_THAT(LookUntil(beats, now, now + 60s), IsEmpty());
  // One that comes again is watched again.
  beats.Heard(1, "p", now);
  EXPECT_THAT(LookUntil(beats, now, now + 60s),
              ElementsAre(Says(Kind::kSilent, 1, "worker 1")));
}

}  // namespace
}  // namespace fleet::ps
