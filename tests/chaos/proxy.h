// SPDX-License-Identifier: Apache-2.0

// A proxy between workers and a server, on loopback: it cuts their connections
// and holds up what they say.

#ifndef FLEET_TESTS_CHAOS_PROXY_H_
#define FLEET_TESTS_CHAOS_PROXY_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <thread>

#include "fleet/base/descriptor.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"

namespace fleet::chaos {

// A socket that listens at any port of loopback, and which one that is.
struct Listening {
  base::Descriptor socket;
  uint16_t port = 0;
};
Result<Listening> ListenOnLoopback();

// Connections that come to `port` go on to the server's port. Thread-safe.
class Proxy final {
 public:
  static Result<std::unique_ptr<Proxy>> Start(uint16_t server_port);
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;
  ~Proxy();

  uint16_t port() const { return port_; }
  // Ends all connections, in the middle of whatever they carry. New ones come
  // through.
  void Cut();
  // Each piece of up to 64 KB waits for so long before it goes on. 0: none.
  void set_delay_ms(int milliseconds) { delay_ms_ = milliseconds; }

 private:
  struct Link {
    base::Descriptor worker, server;
    std::atomic<int> num_running = 2;
    std::jthread there, back;
  };

  Proxy(Listening listening, uint16_t server_port);
  void Accept();
  void Carry(Link& link, int from, int to);
  // Removes links that have ended.
  void Clean() REQUIRES(mutex_);

  const base::Descriptor listener_;
  const uint16_t port_;
  const uint16_t server_port_;
  std::atomic<int> delay_ms_ = 0;
  std::atomic<bool> ends_ = false;
  base::Mutex mutex_;
  std::list<Link> links_ GUARDED_BY(mutex_);
  std::jthread accepting_;  // last: it uses all of the above
};

}  // namespace fleet::chaos

#endif  // FLEET_TESTS_CHAOS_PROXY_H_
