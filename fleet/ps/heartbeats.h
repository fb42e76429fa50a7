// SPDX-License-Identifier: Apache-2.0

// Which peers give signs of life. A process that is stopped, or whose host has
// vanished, keeps its connections open for long: only its silence tells. Both
// ends of a worker's first connection to a server look at the other's.

#ifndef FLEET_PS_HEARTBEATS_H_
#define FLEET_PS_HEARTBEATS_H_

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"

namespace fleet::ps {

// Between two beats, and between two calls of Look. Four of them are missing
// before a peer is named, so that a busy machine seldom names one that lives.
inline constexpr std::chrono::milliseconds kBeatInterval{500};

struct HeartbeatOptions {
  std::string self;        // "server 0"
  const char* peers = "";  // "worker"
  // A peer that is silent for so long is named in the log.
  std::chrono::milliseconds name_after = std::chrono::seconds(2);
  // A peer that is silent for so long is declared dead. Zero: never.
  std::chrono::milliseconds dead_after{0};
};

// Thread-safe. Times are the caller's, so that tests need not wait.
class Heartbeats final {
 public:
  using TimePoint = base::Deadline::TimePoint;

  explicit Heartbeats(const HeartbeatOptions& options) : options_(options) {}

  // A sign of life. `process` is how the peer calls itself: "process 77 on
  // host-a". The first one begins the watch.
  void Heard(int peer, std::string_view process, TimePoint now);
  // Ends the watch: the peer's connection has ended, which tells more.
  void Forget(int peer);

  struct News {
    int peer = 0;
    enum class Kind { kSilent, kBack, kDead } kind = Kind::kSilent;
    std::string text;  // for the log, with rank, process, host, since when
  };
  // What has changed since the last call. To be called every kBeatInterval:
  // time in which it was not, because this process stood still itself, is
  // nobody's silence.
  std::vector<News> Look(TimePoint now);

 private:
  struct Peer {
    std::string process;
    TimePoint heard{};
    TimePoint before{};  // the sign of life before the silence that was named
    bool named = false;
    bool dead = false;
  };

  std::string NameOf(int peer, const Peer& it) const;

  const HeartbeatOptions options_;
  base::Mutex mutex_;
  std::map<int, Peer> peers_ GUARDED_BY(mutex_);
  TimePoint looked_ GUARDED_BY(mutex_){};
};

// Writes news to the log: a WARNING, or an INFO that a peer is back.
void Log(const Heartbeats::News& news);

// "process 77 on host-a": this one.
std::string ThisProcess();

}  // namespace fleet::ps

#endif  // FLEET_PS_HEARTBEATS_H_
