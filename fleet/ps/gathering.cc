// SPDX-License-Identifier: Apache-2.0
#include "fleet/ps/gathering.h"

#include <utility>

namespace fleet::ps {

Result<std::vector<std::string>> Gathering::Gather(const std::string& name,
                                                   uint64_t round, int worker,
                                                   uint64_t incarnation,
                                                   std::string bytes,
                                                   Deadline deadline) {
  {
    base::MutexLock lock(mutex_);
    rounds_[name].given[worker] = std::move(bytes);
  }
  // Runs while the roster waits for nobody: what is given now is the next
  // round's.
  const auto complete = [&](int) -> Status {
    base::MutexLock lock(mutex_);
    Round& it = rounds_[name];
    it.all.clear();
    for (auto& [who, given] : it.given) it.all.push_back(std::move(given));
    it.given.clear();
    return OkStatus();
  };
  RETURN_IF_ERROR(roster_.Barrier("gather " + name, round, worker, incarnation,
                                  deadline, complete));
  base::MutexLock lock(mutex_);
  return rounds_[name].all;
}

}  // namespace fleet::ps
