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
    uint64_t others = byte_size_;
    if (const auto it = rounds_.find(name); it != rounds_.end()) {
      const auto before = it->second.given.find(worker);
      if (before != it->second.given.end()) others -= before->second.size();
    }
    if (bytes.size() > max_byte_size_ ||
        others > max_byte_size_ - bytes.size()) {
      return FailedPrecondition(barrier, ": no room for ", bytes.size(),
                                " bytes of worker ", worker, ": others have ",
                                others, " of ", max_byte_size_);
    }
    byte_size_ = others + bytes.size();
    rounds_[name].given[worker] = std::move(bytes);
  }
  // Runs while the roster waits for nobody: what is given now is the next
  // round's.
  const auto complete = [&](const Roster::Came& came) -> Status {
    base::MutexLock lock(mutex_);
    Round& it = rounds_[name];
    for (const std::string& old : it.all) byte_size_ -= old.size();
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
  for (const std::string& each : all) byte_size_ += each.size();
}

}  // namespace fleet::ps
