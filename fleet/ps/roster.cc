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
  Worker& it = workers_[static_cast<size_t>(worker)];
  it.incarnation = std::max(it.incarnation, incarnation);
  it.known = true;
  it.was_at_barrier = true;
}

void Roster::KnowStopped(int worker, uint64_t incarnation) {
  base::MutexLock lock(mutex_);
  if (worker < 0 || worker >= options_.num_workers) return;
  Worker& it = workers_[static_cast<size_t>(worker)];
  if (it.incarnation > incarnation) return;
  highest_incarnation_ = std::max(highest_incarnation_, incarnation);
  it.incarnation = incarnation;
  it.seen = true;
  it.stopped = true;
  it.may_say_again = true;
  it.left = std::chrono::steady_clock::now();
  changed_.NotifyAll();
}

void Roster::KnowServer(uint32_t server, uint64_t epoch) {
  // Nearly always: nothing has changed.
  if (epoch <= 1) return;
  base::MutexLock lock(mutex_);
  uint64_t& known = epochs_[server];
  if (epoch <= known) return;
  known = epoch;
  ++view_;
}

uint64_t Roster::view() const {
  base::MutexLock lock(mutex_);
  return view_;
}

std::map<int, uint64_t> Roster::Incarnations() const {
  base::MutexLock lock(mutex_);
  std::map<int, uint64_t> all;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i].seen) continue;
    all[static_cast<int>(i)] = workers_[i].incarnation;
  }
  return all;
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

Status Roster::Enter(int worker, uint64_t incarnation, uint64_t turn) {
  base::MutexLock lock(mutex_);
  if (worker < 0 || worker >= options_.num_workers) {
    return InvalidArgument("worker ", worker, " of a job with ",
                           options_.num_workers, " workers");
  }
  RETURN_IF_ERROR(CheckNewestLocked(worker, incarnation));
  highest_incarnation_ = std::max(highest_incarnation_, incarnation);
  Worker& it = workers_[static_cast<size_t>(worker)];
  const bool is_first = !it.seen || it.incarnation != incarnation;
  if (returning_.is_infinite()) {
    returning_ = Deadline::After(options_.return_grace);
  }
  if (it.incarnation == incarnation && it.known) is_known_here_ = true;
  if (is_first && turn != 0) {
    // No cut has begun: it would have waited for this worker.
    Numbers& mine = turns_[{worker, incarnation}];
    mine.begun = std::max(mine.begun, turn);
  }
  if (it.incarnation != incarnation) {
    it.incarnation = incarnation;
    it.num_connections = 0;
    it.stopped = false;
    it.may_say_again = false;
    ++view_;
    it.is_back = it.is_back || it.was_at_barrier;
    it.was_at_barrier = false;
    for (auto& [name, round] : rounds_) round.here.erase(worker);
  }
  it.seen = true;
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
  it.may_say_again = false;
  changed_.NotifyAll();
}

bool Roster::LostLocked(const Worker& worker) const {
  if (worker.stopped || worker.num_connections > 0) return false;
  if (!worker.seen) {
    return worker.known && is_known_here_ && returning_.expired();
  }
  return std::chrono::steady_clock::now() - worker.left >= options_.grace;
}

bool Roster::MayReturnLocked(const Worker& worker) const {
  return worker.known && !worker.seen && !worker.stopped &&
         !returning_.expired();
}

std::string Roster::ReturningLocked() const {
  std::string names;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!MayReturnLocked(workers_[i])) continue;
    names += base::Concat(names.empty() ? "" : ", ", "worker ", i);
  }
  return names;
}

bool Roster::NeededLocked(const Worker& worker) const {
  if (worker.stopped) return false;
  return !(options_.go_on_without_lost && LostLocked(worker));
}

bool Roster::AllHereLocked(const Round& round) const {
  for (int i = 0; i < options_.num_workers; ++i) {
    if (NeededLocked(workers_[static_cast<size_t>(i)]) &&
        !round.here.contains(i) && !JoinsLater(round, i)) {
      return false;
    }
  }
  return true;
}

bool Roster::JoinsLater(const Round& round, int worker) {
  const auto from = round.from.find(worker);
  return from != round.from.end() && from->second > round.number;
}

Status Roster::CheckLostLocked(const std::string& name,
                               const Round& round) const {
  if (options_.go_on_without_lost) return OkStatus();
  std::string lost;
  for (int i = 0; i < options_.num_workers; ++i) {
    if (round.here.contains(i)) continue;
    if (!LostLocked(workers_[static_cast<size_t>(i)])) continue;
    lost += base::Concat(lost.empty() ? "" : ", ", "worker ", i);
  }
  if (lost.empty()) return OkStatus();
  return Unavailable("barrier ", name, ": ", lost,
                     " is lost: its connections ended without a good-bye");
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
    if (MayReturnLocked(worker)) next = Earlier(next, returning_);
    if (!worker.seen || worker.stopped || worker.num_connections > 0) continue;
    if (LostLocked(worker)) continue;
    next = Earlier(next, Deadline::At(worker.left + options_.grace));
  }
  return next;
}

void Roster::SetRounds(const std::string& name, const Rounds& rounds) {
  base::MutexLock lock(mutex_);
  static_cast<Rounds&>(rounds_[name]) = rounds;
}

Status Roster::CheckNameLocked(const std::string& name) const {
  if (name.size() > kMaxNameByteSize) {
    return InvalidArgument("a barrier whose name has ", name.size(),
                           " bytes, of at most ", kMaxNameByteSize);
  }
  if (rounds_.contains(name) || rounds_.size() < kMaxNames) return OkStatus();
  return FailedPrecondition("barrier ", name, ": there are ", kMaxNames,
                            " barriers of other names; use one again");
}

Status Roster::CheckName(const std::string& name) const {
  base::MutexLock lock(mutex_);
  return CheckNameLocked(name);
}

Result<Roster::Ended> Roster::Barrier(const std::string& name, uint64_t round,
                                      int worker, uint64_t incarnation,
                                      Deadline deadline,
                                      const Complete& complete) {
  base::MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckNewestLocked(worker, incarnation));
  RETURN_IF_ERROR(CheckNameLocked(name));
  workers_[static_cast<size_t>(worker)].was_at_barrier = true;
  Round& it = rounds_[name];
  if (round == kNextRound) {
    auto& [known, given] = it.given[worker];
    if (known != incarnation) {
      known = incarnation;
      given = it.number;
    }
    round = given;
  }
  const auto from = it.from.find(worker);
  if (from != it.from.end() && from->second == round) {
    // It joins in this one; the others are at the one before.
    while (it.number < round) {
      if (it.here.empty() && AllHereLocked(it)) {
        // Nobody is left who would end it.
        ++it.number;
        it.took_part.clear();
        changed_.NotifyAll();
        continue;
      }
      RETURN_IF_ERROR(CheckLostLocked(name, it));
      if (!aborted_.ok()) return aborted_;
      if (deadline.expired()) {
        return DeadlineExceeded("barrier ", name, ": the others are at round ",
                                it.number, ", and worker ", worker,
                                " joins at ", round);
      }
      changed_.WaitUntil(mutex_, Earlier(deadline, NextLossLocked()));
      RETURN_IF_ERROR(CheckNewestLocked(worker, incarnation));
    }
  }
  if (round > it.number) {
    if (it.completed > 0) {
      return FailedPrecondition("barrier ", name, ": worker ", worker,
                                " is at round ", round, ", and the others at ",
                                it.number);
    }
    it.number = round;
    it.outcome = OkStatus();
    it.here.clear();
    it.took_part.clear();
  }
  if (round < it.number) {
    RETURN_IF_ERROR(it.outcome);
    return Ended{it.number - 1,
                 round + 1 == it.number && it.took_part.contains(worker)};
  }
  it.here.insert(worker);
  changed_.NotifyAll();
  while (it.number == round) {
    if (AllHereLocked(it)) {
      Came came{it.number, it.here, {}, it};
      ++came.after.number;
      it.took_part = came.after.took_part = it.here;
      for (const auto& [joiner, first] : it.from) {
        if (first > it.number) came.later.insert(joiner);
      }
      it.outcome = complete ? complete(came) : OkStatus();
      it.here.clear();
      it.completed = ++it.number;
      changed_.NotifyAll();
      break;
    }
    if (const Status lost = CheckLostLocked(name, it); !lost.ok()) {
      it.here.erase(worker);
      return lost;
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
  RETURN_IF_ERROR(it.outcome);
  return Ended{it.number - 1, it.completed > round};
}

Result<uint64_t> Roster::Join(const std::string& name, int worker,
                              uint64_t from, const Note& note) {
  base::MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckNameLocked(name));
  Round& it = rounds_[name];
  if (from == kNextRound) from = it.number + 1;
  it.from[worker] = from;
  if (note) RETURN_IF_ERROR(note(it));
  changed_.NotifyAll();
  return from;
}

bool Roster::IsGone(int worker, uint64_t incarnation) const {
  base::MutexLock lock(mutex_);
  return GoneLocked({worker, incarnation});
}

bool Roster::IsBack(int worker) const {
  base::MutexLock lock(mutex_);
  return workers_[static_cast<size_t>(worker)].is_back;
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
  // Turns that this server does not know of yet; meanwhile others begin.
  for (std::string back = ReturningLocked(); !back.empty();
       back = ReturningLocked()) {
    RETURN_IF_ERROR(CheckNewestLocked(caller.worker, caller.incarnation));
    RETURN_IF_ERROR(aborted_);
    if (deadline.expired()) {
      return DeadlineExceeded(back,
                              " may be in the middle of a step, and has not "
                              "come back since the server was started again");
    }
    changed_.WaitUntil(mutex_, Earlier(deadline, NextLossLocked()));
  }
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
    Deadline next = NextLossLocked();
    for (int i = 0; i < options_.num_workers; ++i) {
      const Worker& worker = workers_[static_cast<size_t>(i)];
      all_stopped = all_stopped && !NeededLocked(worker);
      any_stopped = any_stopped || worker.stopped;
      const Deadline again = Deadline::At(worker.left + options_.grace);
      if (worker.may_say_again && !again.expired()) {
        all_stopped = false;
        next = Earlier(next, again);
      }
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
    changed_.WaitUntil(mutex_, Earlier(deadline, next));
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
