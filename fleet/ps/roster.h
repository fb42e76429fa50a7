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
  // after this, unless it is back. One that said good-bye in an earlier life of
  // the server may not have been answered: for so long it may say it again.
  std::chrono::milliseconds grace = std::chrono::seconds(1);
  // For so long workers of an earlier life of the server may be on their way
  // back, counted from the first hello in this one.
  std::chrono::milliseconds return_grace = std::chrono::seconds(30);
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
  // lower ones do not enter, and it is waited for. Those that live say hello
  // within a beat. One that has not done so for the return grace counts as
  // lost, if another one of an earlier life is back: where all begin anew, it
  // may be about to.
  void Know(int worker, uint64_t incarnation);
  // This incarnation of the worker said good-bye in an earlier life of the
  // server. Nothing changes where a later one was here.
  void KnowStopped(int worker, uint64_t incarnation);
  // A worker has heard this epoch of a server: 0 for none yet.
  void KnowServer(uint32_t server, uint64_t epoch);
  // Ascends with every incarnation that comes, and with every server that was
  // started again.
  uint64_t view() const;

  // By worker that was here: its newest incarnation.
  std::map<int, uint64_t> Incarnations() const;

  // A connection of a worker begins or ends. InvalidArgument for a worker that
  // is none of the job's. A higher `incarnation` is a worker that was started
  // again: the turns, cuts and places at barriers of the one before are gone,
  // and its calls fail with FailedPrecondition, as Enter of a lower one does.
  // `turn` is the one that it has, 0 for none: the first that enters of an
  // incarnation tells it to a server that may have been started again since.
  Status Enter(int worker, uint64_t incarnation = 0, uint64_t turn = 0);
  void Leave(int worker, uint64_t incarnation = 0);
  // The worker is finished; its connections may end.
  void Stop(int worker, uint64_t incarnation = 0);
  // FailedPrecondition, with both numbers, when a newer incarnation of the
  // worker was here.
  Status CheckNewest(int worker, uint64_t incarnation) const;

  // Rounds of a barrier are counted from 0, by the job: a worker that does not
  // know them yet says kNextRound and takes part in the one at which the others
  // are.
  static constexpr uint64_t kNextRound = ~uint64_t{0};
  // Rounds of a barrier are remembered for good, so there are not any number of
  // barriers: InvalidArgument for a longer name, FailedPrecondition for one
  // more.
  static constexpr size_t kMaxNameByteSize = 4096;
  static constexpr size_t kMaxNames = 16384;
  // How a round ended for a worker.
  struct Ended {
    uint64_t round = 0;  // that is over; the worker's next is the one after it
    // Whether `complete` ran, here or in an earlier life of the server, for the
    // round with the worker in it.
    bool took_part = false;
  };
  // What there is to know of a barrier, for a server that begins again.
  struct Rounds {
    uint64_t number = 0;  // of the next round
    // By worker: the incarnation that came last without knowing its round, and
    // the round that it got.
    std::map<int, std::pair<uint64_t, uint64_t>> given;
    std::map<int, uint64_t> from;  // by worker that joined: see Join
    std::set<int> took_part;       // in the round before, if it ended here
    friend bool operator==(const Rounds&, const Rounds&) = default;
  };
  // Who takes part in a round.
  struct Came {
    uint64_t round = 0;
    std::set<int> workers;
    // Workers that were started again and join in a later round (Join).
    std::set<int> later;
    Rounds after;  // the barrier when the round is over
  };
  using Complete = std::function<Status(const Came& came)>;
  // Ok when there is a barrier of this name or may be another one.
  Status CheckName(const std::string& name) const;
  // Waits until all workers that have not stopped are at round `round` of the
  // barrier `name`. The last to come runs `complete` (may be empty) with those
  // that came, and all get what it returned. A round that is over answers at
  // once, so that a call can be repeated. A server that was started again has
  // no rounds: who comes with one tells that those before it are over, also for
  // workers that wait there. DeadlineExceeded and Unavailable name who is
  // missing, or was lost; the caller is then not there either.
  Result<Ended> Barrier(const std::string& name, uint64_t round, int worker,
                        uint64_t incarnation, Deadline deadline,
                        const Complete& complete);
  // A worker that was started again takes part in the barrier from round `from`
  // on, or, for kNextRound, from the one after the present one: returns which.
  // `note` (may be empty) is told of the barrier before anyone acts on it; what
  // it returns ends the call.
  using Note = std::function<Status(const Rounds& after)>;
  Result<uint64_t> Join(const std::string& name, int worker, uint64_t from,
                        const Note& note = {});
  // Whether this incarnation of the worker has stopped, is lost, or a newer one
  // is here: what it began it does not end.
  bool IsGone(int worker, uint64_t incarnation) const;
  // Whether an earlier incarnation of the worker has been at a barrier.
  bool IsBack(int worker) const;

  // For a server that has begun again: rounds before this one are over.
  void SetRounds(const std::string& name, const Rounds& rounds);

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
  // Waits until all turns have ended; new ones wait. A worker of an earlier
  // life of the server may have a turn until it is back, or counts as gone.
  // DeadlineExceeded names those that are waited for.
  Status BeginCut(const Caller& caller, Deadline deadline);
  void EndCut(const Caller& caller);
  // A turn of the server itself, which changes tables of its own accord. False,
  // and no turn, while there is a cut or one is wanted.
  bool TryBeginOwnTurn();
  void EndOwnTurn();
  // Whether a cut waits for turns to end.
  bool cut_wanted() const { return num_cuts_wanted_ > 0; }

  // Ok when every worker has stopped, and had the time to say good-bye again
  // where that was in an earlier life. DeadlineExceeded names those that have
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
    bool known = false;  // from an earlier life of the server
    bool seen = false;
    bool stopped = false;
    bool may_say_again = false;  // its good-bye, of an earlier life
    bool was_at_barrier = false;
    bool is_back = false;  // an earlier incarnation was at a barrier
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
  struct Round : Rounds {
    // After the last that was completed here, not told by workers; 0: none.
    uint64_t completed = 0;
    std::set<int> here;
    Status outcome;  // of the round before
  };

  Status CheckNewestLocked(int worker, uint64_t incarnation) const
      REQUIRES(mutex_);
  Status CheckNameLocked(const std::string& name) const REQUIRES(mutex_);
  bool LostLocked(const Worker& worker) const REQUIRES(mutex_);
  // Whether the worker, of an earlier life of the server, may be on its way
  // back.
  bool MayReturnLocked(const Worker& worker) const REQUIRES(mutex_);
  // Those of which this is so: "worker 1, worker 2".
  std::string ReturningLocked() const REQUIRES(mutex_);
  bool NeededLocked(const Worker& worker) const REQUIRES(mutex_);
  // "worker 2 (not seen yet)", "worker 3 (lost)".
  std::string MissingLocked(const std::set<int>& here) const REQUIRES(mutex_);
  bool AllHereLocked(const Round& round) const REQUIRES(mutex_);
  // Whether the worker joins in a later round.
  static bool JoinsLater(const Round& round, int worker);
  // Unavailable, with their names, when workers are lost for whom the round
  // would have to wait.
  Status CheckLostLocked(const std::string& name, const Round& round) const
      REQUIRES(mutex_);
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
  std::map<uint32_t, uint64_t> epochs_ GUARDED_BY(mutex_);  // above 1
  std::vector<Worker> workers_ GUARDED_BY(mutex_);
  // Until when workers may return; infinite before the first hello.
  Deadline returning_ GUARDED_BY(mutex_) = Deadline::Infinite();
  bool is_known_here_ GUARDED_BY(mutex_) = false;  // one that is back
  std::map<std::string, Round> rounds_ GUARDED_BY(mutex_);
  std::map<Who, Numbers> turns_ GUARDED_BY(mutex_);
  std::map<Who, Numbers> cuts_ GUARDED_BY(mutex_);  // one is open at most
  bool own_turn_ GUARDED_BY(mutex_) = false;
  std::atomic<int> num_cuts_wanted_ = 0;  // written under mutex_
};

}  // namespace fleet::ps

#endif  // FLEET_PS_ROSTER_H_
