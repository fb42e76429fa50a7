// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PS_GATHERING_H_
#define FLEET_PS_GATHERING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/ps/roster.h"

namespace fleet::ps {

// Where workers give each other something: each gives bytes, and all get those
// of all. A barrier of the roster is what they wait at, so what is said there
// of rounds, incarnations and errors holds here. Thread-safe.
class Gathering final {
 public:
  // What workers gave, and were given, is kept until the next round of the same
  // name: so many bytes in all, beyond which nobody may give more.
  static constexpr uint64_t kMaxByteSize = uint64_t{256} << 20;
  // `roster` outlives this.
  explicit Gathering(Roster& roster, uint64_t max_byte_size = kMaxByteSize)
      : roster_(roster), max_byte_size_(max_byte_size) {}

  // What the workers that have not stopped gave in this round, by worker.
  // `ended` (may be null) is the round that is over. `note` (may be empty) is
  // told of it before anyone; what it returns ends the round.
  // FailedPrecondition, with the sizes, where there is no room for `bytes`.
  using Note = std::function<Status(const Roster::Came& came,
                                    const std::vector<std::string>& all)>;
  Result<std::vector<std::string>> Gather(
      const std::string& name, uint64_t round, int worker, uint64_t incarnation,
      std::string bytes, Deadline deadline, uint64_t* ended = nullptr,
      const Note& note = {}) EXCLUDES(mutex_);
  // For a server that has begun again: what the round before gave.
  void Restore(const std::string& name, const std::vector<std::string>& all)
      EXCLUDES(mutex_);
  // How its barrier is called in the roster.
  static std::string BarrierOf(const std::string& name) {
    return "gather " + name;
  }

 private:
  struct Round {
    std::map<int, std::string> given;
    // What the round before gave. Nobody gets past the next one before
    // everybody has taken it.
    std::vector<std::string> all;
  };

  Roster& roster_;
  const uint64_t max_byte_size_;
  base::Mutex mutex_;
  uint64_t byte_size_ GUARDED_BY(mutex_) = 0;  // of all rounds
  std::map<std::string, Round> rounds_ GUARDED_BY(mutex_);
};

}  // namespace fleet::ps

#endif  // FLEET_PS_GATHERING_H_
