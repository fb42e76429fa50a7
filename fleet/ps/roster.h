// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PS_ROSTER_H_
#define FLEET_PS_ROSTER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"

namespace fleet::ps {

using base::Deadline;

struct RosterOptions {
  int num_workers = 1;
  // Incarnations that are given begin above those of lower epochs.
  uint64_t epoch = 1;
  // A worker whose last connection ended without a good-bye counts as lost
  // after this, unless it is back.
  std::chrono::milliseconds grace = std::chrono::seconds(1);
  // Barriers do not wait for lost workers, and go on. Otherwise they fail.
  bool go_on_without_lost = false;
};

// Who of the workers is here, as a server sees it, and where they wait for each
// other. Thread-safe.
class Roster final {
 public:
  explicit Roster(const RosterOptions& options);

  // A number for a worker that begins, above all that were given or came here:
  // of two incarnations of a worker the higher one is the newer.
  uint64_t NewIncarnation();

  // This incarnation of the worker was here in an earlier life of the server:
  // lower ones do not enter.
  void Know(int worker, uint64_t incarnation);
  // Ascends with every incarnation that comes.
  uint64_t view() const;

  // A connection of a worker begins or ends. InvalidArgument for a worker that
  // is none of the job's. A higher `incarnation` is a worker that was started
  // again: the turns, cuts and places at barriers of the one before are gone,
  // and its calls fail with FailedPrecondition, as Enter of a lower one does.
  Status Enter(int worker, uint64_t incarnation = 0);
  void Leave(int worker, uint64_t incarnation = 0);
  // The worker is finished; its connections may end.
  void Stop(int worker, uint64_t incarnation = 0);
  // FailedPrecondition, with both numbers, when a newer incarnation of the
  // worker was here.
  Status CheckNewest(int worker, uint64_t incarnation) const;

  // Waits until all workers that have not stopped are at round `round` of the
  // barrier `name`; a worker counts its rounds from 0. One that was started
  // again, which another `incarnation` shows, counts anew, and its first round
  // is the one at which the others are. The last to come runs
  // `complete` (may be empty) with their number, and all get what it returned.
  // A round that is over answers at once, so that a call can be repeated.
  // DeadlineExceeded and Unavailable name who is missing, or was lost; the
  // caller is then not there either.
  Status Barrier(const std::string& name, uint64_t round, int worker,
                 uint64_t incarnation, Deadline deadline,
                 const std::function<Status(int num_workers)>& complete);

  // Turns and cuts, which keep a save of all tables and servers consistent. A
  // worker has its turn while updates that belong together are on their way;
  // several have theirs at a time. While there is a cut nobody has one, so that
  // the tables stand still. A worker that is lost or has stopped has neither.
  //
  // Calls of one incarnation of a worker are numbered, from 1, so that one that
  // comes again does no harm, and one that nobody waits for any more begins
  // nothing: what has ended does not begin.
  struct Caller {
    int worker = 0;
    uint64_t incarnation = 0;
    uint64_t number = 0;
  };
  // Waits for the end of a cut, and for one that is wanted. DeadlineExceeded
  // names whose it is. Who waits when a cut ends has its turn before the next.
  Status BeginTurn(const Caller& caller, Deadline deadline);
  void EndTurn(const Caller& caller);
  // Waits until all turns have ended; new ones wait. DeadlineExceeded names
  // those that have not.
  Status BeginCut(const Caller& caller, Deadline deadline);
  void EndCut(const Caller& caller);
  // A turn of the server itself, which changes tables of its own accord. False,
  // and no turn, while there is a cut or one is wanted.
  bool TryBeginOwnTurn();
  void EndOwnTurn();
  // Whether a cut waits for turns to end.
  bool cut_wanted() const { return num_cuts_wanted_ > 0; }

  // Ok when every worker has stopped. DeadlineExceeded names those that have
  // not; Unavailable those that were lost, or that all were where barriers go
  // on without them.
  Status WaitUntilStopped(Deadline deadline);
  // Ok when no worker has a connection. DeadlineExceeded names those that have.
  Status WaitUntilAlone(Deadline deadline);

  // Wakes all waiters with `why`.
  void Abort(const Status& why);

  // "worker 2, worker 3": those of whom nothing was ever seen.
  std::string NotSeen() const;

 private:
  using TimePoint = Deadline::TimePoint;
  struct Worker {
    bool seen = false;
    bool stopped = false;
    int num_connections = 0;
    uint64_t incarnation = 0;
    TimePoint left{};  // when the last connection ended
  };
  // By worker and incarnation: which calls have begun and ended.
  using Who = std::pair<int, uint64_t>;
  struct Numbers {
    uint64_t begun = 0;
    uint64_t ended = 0;
    uint64_t waiting = 0;  // a turn that waits for a cut to end; 0: none
    bool open() const { return begun > ended; }
  };
  struct Round {
    uint64_t number = 0;
    std::set<int> here;
    Status outcome;  // of the round before
    // By worker: which incarnation came last, and the number that its round 0
    // has here.
    std::map<int, std::pair<uint64_t, uint64_t>> begun;
  };

  Status CheckNewestLocked(int worker, uint64_t incarnation) const
      REQUIRES(mutex_);
  bool LostLocked(const Worker& worker) const REQUIRES(mutex_);
  bool NeededLocked(const Worker& worker) const REQUIRES(mutex_);
  // "worker 2 (not seen yet)", "worker 3 (lost)".
  std::string MissingLocked(const std::set<int>& here) const REQUIRES(mutex_);
  bool AllHereLocked(const Round& round) const REQUIRES(mutex_);
  // Whether it can end what it began.
  bool GoneLocked(const Who& who) const REQUIRES(mutex_);
  // Who has begun and not ended: "worker 1, worker 2".
  std::string OpenLocked(const std::map<Who, Numbers>& calls) const
      REQUIRES(mutex_);
  // When the next worker may turn from gone to lost.
  Deadline NextLossLocked() const REQUIRES(mutex_);

  const RosterOptions options_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  Status aborted_ GUARDED_BY(mutex_);
  uint64_t highest_incarnation_ GUARDED_BY(mutex_);
  uint64_t view_ GUARDED_BY(mutex_);
  std::vector<Worker> workers_ GUARDED_BY(mutex_);
  std::map<std::string, Round> rounds_ GUARDED_BY(mutex_);
  std::map<Who, Numbers> turns_ GUARDED_BY(mutex_);
  std::map<Who, Numbers> cuts_ GUARDED_BY(mutex_);  // one is open at most
  bool own_turn_ GUARDED_BY(mutex_) = false;
  std::atomic<int> num_cuts_wanted_ = 0;  // written under mutex_
};

}  // namespace fleet::ps

#endif  // FLEET_PS_ROSTER_H_
