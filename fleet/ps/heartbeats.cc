// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/heartbeats.h"

#include <algorithm>
#include <ctime>
#include <iomanip>
#include <sstream>
#include <unistd.h>

#include "fleet/base/log.h"
#include "fleet/base/status.h"

namespace fleet::ps {
namespace {

std::string Seconds(Heartbeats::TimePoint::duration time) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1)
      << std::chrono::duration<double>(time).count() << " s";
  return out.str();
}

// The time of day `ago` before now, as people of this host read it.
std::string TimeOfDay(Heartbeats::TimePoint::duration ago) {
  using std::chrono::system_clock;
  const std::time_t then = system_clock::to_time_t(
      system_clock::now() -
      std::chrono::duration_cast<system_clock::duration>(ago));
  std::tm parts{};
  (void)localtime_r(&then, &parts);
  std::ostringstream out;
  out << std::put_time(&parts, "%H:%M:%S");
  return out.str();
}

}  // namespace

std::string ThisProcess() {
  char host[256] = "";
  (void)gethostname(host, sizeof(host) - 1);
  return base::Concat("process ", getpid(), " on ", host);
}

void Log(const Heartbeats::News& news) {
  if (news.kind == Heartbeats::News::Kind::kBack) {
    FLEET_LOG(INFO) << news.text;
  } else {
    FLEET_LOG(WARNING) << news.text;
  }
}

void Heartbeats::Heard(int peer, std::string_view process, TimePoint now) {
  base::MutexLock lock(mutex_);
  Peer& it = peers_[peer];
  if (it.process != process) it.process = process;
  it.heard = now;
  it.dead = false;
}

void Heartbeats::Forget(int peer) {
  base::MutexLock lock(mutex_);
  peers_.erase(peer);
}

std::string Heartbeats::NameOf(int peer, const Peer& it) const {
  return base::Concat(options_.self, ": ", options_.peers, " ", peer, " (",
                      it.process, ")");
}

std::vector<Heartbeats::News> Heartbeats::Look(TimePoint now) {
  base::MutexLock lock(mutex_);
  // Nobody's beats were taken while this process stood still.
  const auto stood_still = now - looked_ - kBeatInterval;
  if (looked_ != TimePoint{} && stood_still > kBeatInterval) {
    for (auto& [peer, it] : peers_) {
      it.heard = std::min(it.heard + stood_still, now);
    }
  }
  looked_ = now;
  std::vector<News> news;
  for (auto& [peer, it] : peers_) {
    const auto silence = now - it.heard;
    if (silence < options_.name_after && it.named) {
      it.named = false;
      news.push_back({peer, News::Kind::kBack,
                      base::Concat(NameOf(peer, it), " is back after ",
                                   Seconds(it.heard - it.before))});
    }
    if (silence >= options_.name_after && !it.named) {
      it.named = true;
      it.before = it.heard;
      news.push_back(
          {peer, News::Kind::kSilent,
           base::Concat(NameOf(peer, it), " has given no sign of life for ",
                        Seconds(silence), ", since ", TimeOfDay(silence),
                        ". It is waited for",
                        options_.dead_after.count() == 0
                            ? std::string()
                            : base::Concat(" until that is ",
                                           Seconds(options_.dead_after),
                                           " (FLEET_HEARTBEAT_TIMEOUT)"))});
    }
    if (options_.dead_after.count() > 0 && silence >= options_.dead_after &&
        !it.dead) {
      it.dead = true;
      news.push_back(
          {peer, News::Kind::kDead,
           base::Concat(NameOf(peer, it), " counts as dead: no sign of life ",
                        "for ", Seconds(silence),
                        " (FLEET_HEARTBEAT_TIMEOUT)")});
    }
  }
  return news;
}

}  // namespace fleet::ps
