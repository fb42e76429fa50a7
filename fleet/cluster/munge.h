// SPDX-License-Identifier: Apache-2.0

// MUNGE, by which Slurm's processes know the users of each other: a credential
// that munged of one node made can be opened on all nodes of the cluster, and
// by one user only. libmunge is loaded on first use.

#ifndef FLEET_CLUSTER_MUNGE_H_
#define FLEET_CLUSTER_MUNGE_H_

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/channel/secret.h"
#include "fleet/cluster/environment.h"

namespace fleet::cluster {

// Thread-safe.
class Munge final {
 public:
  // Asks munged for a first credential, at FLEET_MUNGE_SOCKET or where the
  // library looks for it. Unimplemented without libmunge, Unavailable when
  // munged does not answer.
  static Result<std::shared_ptr<Munge>> Open(const Environment& env);

  // For Open.
  struct Library;
  Munge(const Library& library, std::string socket)
      : library_(library), socket_(std::move(socket)) {}

  // `secret` in a credential that only this user can open. One credential is
  // given to all who ask within a minute.
  Result<std::string> Seal(const channel::Secret& secret);

  // What is in a credential. FailedPrecondition when it is another user's, or
  // for another one; DataLoss when it is none.
  Result<channel::Secret> Open(const std::string& credential) const;

 private:
  Result<std::string> Encode(std::string_view text) const;

  const Library& library_;
  const std::string socket_;
  base::Mutex mutex_;
  std::string sealed_ GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point sealed_at_ GUARDED_BY(mutex_);
};

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_MUNGE_H_
