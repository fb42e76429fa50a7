// SPDX-License-Identifier: Apache-2.0

// How the ranks of a group on one host get the same memory. Rank 0 listens at
// an abstract unix socket with a random name, which the others read in the
// store together with a random token: who knows the token is a member, since
// only members reach the store. The connections stay: memory made later comes
// over them, and the kernel closes them when a process dies.

#ifndef FLEET_COMM_SHARED_MEMORY_MEETING_H_
#define FLEET_COMM_SHARED_MEMORY_MEETING_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/status.h"
#include "fleet/channel/socket.h"
#include "fleet/comm/meeting.h"

namespace fleet::comm {

// One rank's side of handing memory around. One thread at a time.
class MemoryExchange final {
 public:
  // Returns when all ranks have come; DeadlineExceeded names those that did
  // not. `interrupt` may be empty.
  static Result<std::unique_ptr<MemoryExchange>> Connect(
      const Meeting& meeting, const base::InterruptCheck& interrupt,
      base::Deadline deadline);

  // From rank 0 to all others: `memory`, or why there is none. Does not wait.
  // Returns what `memory` holds, or Unavailable when a rank is gone.
  Status Give(const Result<base::Descriptor>& memory);
  // By the others. What Give was given.
  Result<base::Descriptor> Take(const base::InterruptCheck& interrupt,
                                base::Deadline deadline);

  // Ranks whose connection to this one is gone: rank 0 sees all, the others
  // see rank 0.
  std::vector<int> Gone() const;

 private:
  struct Peer {
    int rank;
    base::Descriptor fd;
  };

  std::vector<Peer> peers_;
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_SHARED_MEMORY_MEETING_H_
