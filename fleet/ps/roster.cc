// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/roster.h"

#include <algorithm>

namespace fleet::ps {

Roster::Roster(const RosterOptions& options)
    : options_(options),
      highest_incarnation_(options.epoch << 32),
      view_(options.epoch << 32),
      workers_(static_cast<size_t>(options.num_workers)) {}

uint64_t Roster::NewIncarnation() {
  base::MutexLock lock(mutex_);
  return ++highest_incarnation_;
}

void Roster::Know(int worker, uint64_t incarnation) {
  base::MutexLock lock(mutex_);
  if (worker < 0 || worker >= options_.num_workers) return;
  highest_incarnation_ = std::max(highest_incarnation_, incarnation);
  uint64_t& newest = workers_[static_cast<size_t>(worker)].incarnation;
  newest = std::max(newest, incarnation);
}

uint64_t Roster::view() const {
  base::MutexLock lock(mutex_);
  return view_;
}

Status Roster::CheckNewestLocked(int worker, uint64_t incarnation) const {
  const uint64_t newest = workers_[static_cast<size_t>(worker)].incarnation;
  if (incarnation >= newest) return OkStatus();
  return FailedPrecondition(
      "worker ", worker, " was started again (incarnation ", newest,
      "); this is incarnation ", incarnation, ", whose requests are refused");
}

Status Roster::CheckNewest(int worker, uint64_t incarnation) const {
  base::MutexLock lock(mutex_);
  return CheckNewestLocked(worker, incarnation);
}

Status Roster::Enter(int worker, uint64_t incarnation) {
  base::MutexLock lock(mutex_);
  if (worker < 0 || worker >= options_.num_workers) {
    return InvalidArgument("worker ", worker, " of a job with ",
                           options_.num_workers, " workers");
  }
  RETURN_IF_ERROR(CheckNewestLocked(worker, incarnation));
  highest_incarnation_ = std::max(highest_incarnation_, incarnation);
  Worker& it = workers_[static_cast<size_t>(worker)];
  if (it.incarnation != incarnation) {
    it.incarnation = incarnation;
    it.num_connections = 0;
    ++view_;
    for (auto& [name, round] : rounds_) round.here.erase(worker);
  }
  it.seen = true;
  it.stopped = false;
  ++it.num_connections;
  changed_.NotifyAll();
  return OkStatus();
}

void Roster::Leave(int worker, uint64_t incarnation) {
  base::MutexLock lock(mutex_);
  Worker& it = workers_[static_cast<size_t>(worker)];
  if (it.incarnation != incarnation) return;
  if (--it.num_connections == 0) {
    it.left = std::chrono::steady_clock::now();
    changed_.NotifyAll();
  }
}

void Roster::Stop(int worker, uint64_t incarnation) {
  base::MutexLock lock(mutex_);
  Worker& it = workers_[static_cast<size_t>(worker)];
  if (it.incarnation != incarnation) return;
  it.stopped = true;
  changed_.NotifyAll();
}

bool Roster::LostLocked(const Worker& worker) const {
  return worker.seen && !worker.stopped && worker.num_connections == 0 &&
         std::chrono::steady_clock::now() - worker.left >= options_.grace;
}

bool Roster::NeededLocked(const Worker& worker) const {
  if (worker.stopped) return false;
  return !(options_.go_on_without_lost && LostLocked(worker));
}

bool Roster::AllHereLocked(const Round& round) const {
  for (int i = 0; i < options_.num_workers; ++i) {
    if (NeededLocked(workers_[static_cast<size_t>(i)]) &&
        !round.here.contains(i)) {
      return false;
    }
  }
  return true;
}

std::string Roster::MissingLocked(const std::set<int>& here) const {
  std::string missing;
  for (int i = 0; i < options_.num_workers; ++i) {
    const Worker& worker = workers_[static_cast<size_t>(i)];
    if (worker.stopped || here.contains(i)) continue;
    if (!missing.empty()) missing += ", ";
    missing += base::Concat("worker ", i);
    if (!worker.seen) missing += " (not seen yet)";
    if (LostLocked(worker)) missing += " (lost)";
  }
  return missing;
}

std::string Roster::NotSeen() const {
  base::MutexLock lock(mutex_);
  std::string names;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].seen) continue;
    names += base::Concat(names.empty() ? "" : ", ", "worker ", i);
  }
  return names;
}

Deadline Roster::NextLossLocked() const {
  Deadline next = Deadline::Infinite();
  for (const Worker& worker : workers_) {
    if (!worker.seen || worker.stopped || worker.num_connections > 0) continue;
    if (LostLocked(worker)) continue;
    next = Earlier(next, Deadline::At(worker.left + options_.grace));
  }
  return next;
}

Status Roster::Barrier(const std::string& name, uint64_t its_round, int worker,
                       uint64_t incarnation, Deadline deadline,
                       const std::function<Status(int num_workers)>& complete) {
  base::MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckNewestLocked(worker, incarnation));
  Round& it = rounds_[name];
  auto& [known, first] = it.begun[worker];
  if (known != incarnation) {
    known = incarnation;
    first = it.number - its_round;
  }
  const uint64_t round = first + its_round;
  if (round < it.number) return it.outcome;
  if (round > it.number) {
    return FailedPrecondition("barrier ", name, ": worker ", worker,
                              " is at round ", round, ", and the others at ",
                              it.number);
  }
  it.here.insert(worker);
  changed_.NotifyAll();
  while (it.number == round) {
    if (AllHereLocked(it)) {
      const int num_workers = static_cast<int>(it.here.size());
      it.outcome = complete ? complete(num_workers) : OkStatus();
      it.here.clear();
      ++it.number;
      changed_.NotifyAll();
      break;
    }
    std::string lost;
    for (int i = 0; i < options_.num_workers; ++i) {
      if (LostLocked(workers_[static_cast<size_t>(i)]) &&
          !options_.go_on_without_lost && !it.here.contains(i)) {
        lost += base::Concat(lost.empty() ? "" : ", ", "worker ", i);
      }
    }
    if (!lost.empty()) {
      it.here.erase(worker);
      return Unavailable("barrier ", name, ": ", lost,
                         " is lost: its connections ended without a good-bye");
    }
    if (!aborted_.ok()) return aborted_;
    if (deadline.expired()) {
      it.here.erase(worker);
      return DeadlineExceeded("barrier ", name, ": ", it.here.size() + 1,
                              " of ", options_.num_workers,
                              " workers came; missing: ", MissingLocked([&] {
                                std::set<int> here = it.here;
                                here.insert(worker);
                                return here;
                              }()));
    }
    changed_.WaitUntil(mutex_, Earlier(deadline, NextLossLocked()));
    RETURN_IF_ERROR(CheckNewestLocked(worker, incarnation));
  }
  return it.outcome;
}

bool Roster::GoneLocked(const Who& who) const {
  const Worker& worker = workers_[static_cast<size_t>(who.first)];
  return worker.stopped || worker.incarnation != who.second ||
         LostLocked(worker);
}

std::string Roster::OpenLocked(const std::map<Who, Numbers>& calls) const {
  std::string names;
  for (const auto& [who, numbers] : calls) {
    if (!numbers.open() || GoneLocked(who)) continue;
    names += base::Concat(names.empty() ? "" : ", ", "worker ", who.first);
  }
  return names;
}

Status Roster::BeginTurn(const Caller& caller, Deadline deadline) {
  base::MutexLock lock(mutex_);
  Numbers& mine = turns_[{caller.worker, caller.incarnation}];
  Status outcome;
  while (outcome.ok()) {
    outcome = CheckNewestLocked(caller.worker, caller.incarnation);
    if (!outcome.ok()) break;
    if (caller.number <= std::max(mine.begun, mine.ended)) break;
    const std::string cutting = OpenLocked(cuts_);
    if (cutting.empty() && num_cuts_wanted_ == 0) {
      mine.begun = caller.number;
      break;
    }
    if (!aborted_.ok()) {
      outcome = aborted_;
    } else if (deadline.expired()) {
      outcome = DeadlineExceeded(
          cutting.empty() ? "a save" : "the save of " + cutting,
          " has not ended, and updates wait for it");
    } else {
      mine.waiting = caller.number;
      changed_.WaitUntil(mutex_, Earlier(deadline, NextLossLocked()));
    }
  }
  if (mine.waiting == caller.number) mine.waiting = 0;
  return outcome;
}

void Roster::EndTurn(const Caller& caller) {
  base::MutexLock lock(mutex_);
  Numbers& mine = turns_[{caller.worker, caller.incarnation}];
  mine.ended = std::max(mine.ended, caller.number);
  if (num_cuts_wanted_ > 0) changed_.NotifyAll();
}

Status Roster::BeginCut(const Caller& caller, Deadline deadline) {
  base::MutexLock lock(mutex_);
  Numbers& mine = cuts_[{caller.worker, caller.incarnation}];
  ++num_cuts_wanted_;
  Status outcome;
  while (outcome.ok()) {
    outcome = CheckNewestLocked(caller.worker, caller.incarnation);
    if (!outcome.ok()) break;
    if (caller.number <= mine.ended) {
      outcome = FailedPrecondition("the save was given up");
      break;
    }
    if (caller.number == mine.begun) break;  // asked again
    const std::string cutting = OpenLocked(cuts_);
    const std::string sending = OpenLocked(turns_);
    if (cutting.empty() && sending.empty() && !own_turn_) {
      mine.begun = caller.number;
      break;
    }
    if (!aborted_.ok()) {
      outcome = aborted_;
    } else if (deadline.expired()) {
      outcome =
          !cutting.empty() ? DeadlineExceeded("another save, of ", cutting,
                                              ", has not ended")
          : sending.empty()
              ? DeadlineExceeded(
                    "the server is still erasing rows whose time "
                    "to live is over")
              : DeadlineExceeded(
                    sending,
                    " is in the middle of a step, of which some updates are on "
                    "the servers and some are not: it has not ended the step");
    } else {
      changed_.WaitUntil(mutex_, Earlier(deadline, NextLossLocked()));
    }
  }
  --num_cuts_wanted_;
  if (!outcome.ok()) changed_.NotifyAll();
  return outcome;
}

void Roster::EndCut(const Caller& caller) {
  base::MutexLock lock(mutex_);
  Numbers& mine = cuts_[{caller.worker, caller.incarnation}];
  mine.ended = std::max(mine.ended, caller.number);
  // A worker that saves again and again would keep the others waiting.
  if (OpenLocked(cuts_).empty()) {
    for (auto& [who, turn] : turns_) {
      if (turn.waiting > turn.ended && !GoneLocked(who)) {
        turn.begun = turn.waiting;
      }
    }
  }
  changed_.NotifyAll();
}

bool Roster::TryBeginOwnTurn() {
  base::MutexLock lock(mutex_);
  if (own_turn_ || num_cuts_wanted_ > 0 || !OpenLocked(cuts_).empty()) {
    return false;
  }
  own_turn_ = true;
  return true;
}

void Roster::EndOwnTurn() {
  base::MutexLock lock(mutex_);
  own_turn_ = false;
  if (num_cuts_wanted_ > 0) changed_.NotifyAll();
}

Status Roster::WaitUntilStopped(Deadline deadline) {
  base::MutexLock lock(mutex_);
  while (true) {
    if (!aborted_.ok()) return aborted_;
    bool all_stopped = true;
    bool any_stopped = false;
    std::string lost;
    for (int i = 0; i < options_.num_workers; ++i) {
      const Worker& worker = workers_[static_cast<size_t>(i)];
      all_stopped = all_stopped && !NeededLocked(worker);
      any_stopped = any_stopped || worker.stopped;
      if (LostLocked(worker)) {
        lost += base::Concat(lost.empty() ? "" : ", ", "worker ", i);
      }
    }
    if (all_stopped && any_stopped) return OkStatus();
    if (!lost.empty() && (all_stopped || !options_.go_on_without_lost)) {
      return Unavailable(lost,
                         " is lost: its connections ended without a "
                         "good-bye");
    }
    if (deadline.expired()) {
      return DeadlineExceeded("have not stopped: ", MissingLocked({}));
    }
    changed_.WaitUntil(mutex_, Earlier(deadline, NextLossLocked()));
  }
}

Status Roster::WaitUntilAlone(Deadline deadline) {
  base::MutexLock lock(mutex_);
  while (true) {
    if (!aborted_.ok()) return aborted_;
    std::string here;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i].num_connections == 0) continue;
      here += base::Concat(here.empty() ? "" : ", ", "worker ", i);
    }
    if (here.empty()) return OkStatus();
    if (deadline.expired()) return DeadlineExceeded("still here: ", here);
    changed_.WaitUntil(mutex_, deadline);
  }
}

void Roster::Abort(const Status& why) {
  base::MutexLock lock(mutex_);
  if (aborted_.ok()) aborted_ = why;
  changed_.NotifyAll();
}

}  // namespace fleet::ps
