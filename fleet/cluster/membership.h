// SPDX-License-Identifier: Apache-2.0

// This process among the workers of its job: where they meet, what they tell
// each other, and who is still alive.
//
//   ASSIGN_OR_RETURN(auto membership,
//                    Membership::Join(role, options, Deadline::After(300s)));
//   membership->store().Set(...);
//
// Rank 0 listens and serves the store; every other rank keeps one connection to
// it from Join to Leave. The kernel closes that connection when a process
// dies, so a death is known within milliseconds; heartbeats on it find a host
// that vanished. What rank 0 learns, all ranks are told.

#ifndef FLEET_CLUSTER_MEMBERSHIP_H_
#define FLEET_CLUSTER_MEMBERSHIP_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/status.h"
#include "fleet/channel/trust.h"
#include "fleet/cluster/role.h"
#include "fleet/cluster/store.h"

namespace fleet::cluster {

class Munge;

struct JoinOptions {
  // How the ranks know each other. Without a secret they come to one by
  // themselves where they can: ranks that meet inside a host take that of rank
  // 0, because only processes of this user reach it there; and see `munge`.
  channel::Trust trust;
  // Not null: without a secret, ranks that meet over the network take that of
  // rank 0, which it gives to everybody in a credential of MUNGE. All ranks
  // have it or none.
  std::shared_ptr<Munge> munge;
  // A job whose ranks come to no secret is refused with FailedPrecondition;
  // otherwise rank 0 warns of it, unless a launcher has done so.
  bool requires_secret = false;
  bool launcher_warned = false;
  // A socket that the launcher gave this process, or -1. Rank 0 takes it if it
  // listens where the ranks meet, and after Leave it is open for the next job
  // of this process. Else it is left alone: a process may start others, or join
  // twice, and the number then means something else.
  int listen_fd = -1;
  std::chrono::milliseconds heartbeat_interval = std::chrono::seconds(1);
  // Without a sign of life for so long, a rank counts as dead.
  std::chrono::milliseconds heartbeat_patience = std::chrono::seconds(10);
  // Asked while Join and the store's calls wait, so that ^C ends them.
  base::InterruptCheck interrupt;
};

// What all ranks are told, each once, in the order in which rank 0 learned it.
struct News {
  enum class Kind {
    kDied,    // `rank` is gone without a word, or its heartbeats stopped
    kLeft,    // `rank` called Leave: its program ended well
    kFailed,  // `rank` called Report
  };
  Kind kind;
  int rank;
  std::string topic;  // kFailed: what Report was given, say a group's name
  Status why;         // names the rank, its host and process
};

// Thread-safe. In a forked child, which is no rank, the store's calls are
// FailedPrecondition and the rest does nothing.
class Membership {
 public:
  // Meets all workers of `role` at the place that meeting_place.h finds.
  // Returns when all are there; DeadlineExceeded names those that never came
  // (who waits with rank 0 may get it two seconds late, and in its words).
  // FailedPrecondition when a rank came with another number of workers or
  // another list of endpoints, and shows what differs, to all ranks; for a
  // second process of the same rank, and a wrong or missing secret, to that one
  // only. A job of one worker needs no network and always succeeds.
  static Result<std::unique_ptr<Membership>> Join(const Role& role,
                                                  JoinOptions options,
                                                  base::Deadline deadline);

  virtual ~Membership() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // A random name that all ranks of this job have in common and nobody else.
  virtual const std::string& job_id() const = 0;
  // The address of this host on the way to rank 0: where others can reach it.
  virtual const std::string& host() const = 0;
  // That of JoinOptions, with the secret to which the ranks came.
  virtual const channel::Trust& trust() const = 0;

  // Common to all ranks. Once a rank has died, calls that wait, or would have
  // to, fail with Unavailable and name it: what they wait for may never come.
  // Once rank 0 is gone, all calls do.
  virtual Store& store() = 0;

  // Calls `listener` for all news, also those from before this call, on a
  // thread of this object that must not be kept. Returns a number for
  // Unsubscribe, after which `listener` is not running and will not run.
  virtual int Subscribe(std::function<void(const News&)> listener) = 0;
  virtual void Unsubscribe(int subscription) = 0;

  // Tells all other ranks of a failure here. Does not wait.
  virtual void Report(std::string topic, Status why) = 0;

  // Says good-bye: what ends now ends well. Rank 0 stays for the others until
  // they have left, or until `deadline`, and no longer listens then: the same
  // processes may join another job. Called once, by no destructor: a process
  // that ends without it has failed.
  virtual void Leave(base::Deadline deadline) = 0;
};

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_MEMBERSHIP_H_
