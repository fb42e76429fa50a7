// SPDX-License-Identifier: Apache-2.0
#include "fleet/ps/gathering.h"

#include <utility>

namespace fleet::ps {

Result<std::vector<std::string>> Gathering::Gather(
    const std::string& name, uint64_t round, int worker, uint64_t incarnation,
    std::string bytes, Deadline deadline, uint64_t* ended, const Note& note) {
  const std::string barrier = BarrierOf(name);
  RETURN_IF_ERROR(roster_.CheckName(barrier));
  {
    base::MutexLock lock(mutex_);
    rounds_[name].given[worker] = std::move(bytes);
  }
  // Runs while the roster waits for nobody: what is given now is the next
  // round's.
  const auto complete = [&](const Roster::Came& came) -> Status {
    base::MutexLock lock(mutex_);
    Round& it = rounds_[name];
    it.all.clear();
    for (auto& [who, given] : it.given) it.all.push_back(std::move(given));
    it.given.clear();
    return note ? note(came, it.all) : OkStatus();
  };
  ASSIGN_OR_RETURN(
      const Roster::Ended end,
      roster_.Barrier(barrier, round, worker, incarnation, deadline, complete));
  if (ended != nullptr) *ended = end.round;
  base::MutexLock lock(mutex_);
  return rounds_[name].all;
}

void Gathering::Restore(const std::string& name,
                        const std::vector<std::string>& all) {
  base::MutexLock lock(mutex_);
  rounds_[name].all = all;
}

}  // namespace fleet::ps
