// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PS_ROSTER_H_
#define FLEET_PS_ROSTER_H_

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

  // A connection of a worker begins or ends. InvalidArgument for a worker that
  // is none of the job's.
  Status Enter(int worker);
  void Leave(int worker);
  // The worker is finished; its connections may end.
  void Stop(int worker);

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

  // Ok when every worker has stopped. DeadlineExceeded names those that have
  // not; Unavailable those that were lost, or that all were where barriers go
  // on without them.
  Status WaitUntilStopped(Deadline deadline);
  // Ok when no worker has a connection. DeadlineExceeded names those that have.
  Status WaitUntilAlone(Deadline deadline);

  // Wakes all waiters with `why`.
  void Abort(const Status& why);

  // "worker 2 (not seen yet)", "worker 3 (lost)"; empty when all have stopped.
  std::string Missing() const;
  // "worker 2, worker 3": those of whom nothing was ever seen.
  std::string NotSeen() const;

 private:
  using TimePoint = Deadline::TimePoint;
  struct Worker {
    bool seen = false;
    bool stopped = false;
    int num_connections = 0;
    TimePoint left{};  // when the last connection ended
  };
  struct Round {
    uint64_t number = 0;
    std::set<int> here;
    Status outcome;  // of the round before
    // By worker: which incarnation came last, and the number that its round 0
    // has here.
    std::map<int, std::pair<uint64_t, uint64_t>> begun;
  };

  bool LostLocked(const Worker& worker) const REQUIRES(mutex_);
  bool NeededLocked(const Worker& worker) const REQUIRES(mutex_);
  std::string MissingLocked(const std::set<int>& here) const REQUIRES(mutex_);
  bool AllHereLocked(const Round& round) const REQUIRES(mutex_);
  // When the next worker may turn from gone to lost.
  Deadline NextLossLocked() const REQUIRES(mutex_);

  const RosterOptions options_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  Status aborted_ GUARDED_BY(mutex_);
  std::vector<Worker> workers_ GUARDED_BY(mutex_);
  std::map<std::string, Round> rounds_ GUARDED_BY(mutex_);
};

}  // namespace fleet::ps

#endif  // FLEET_PS_ROSTER_H_
