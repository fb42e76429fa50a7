// SPDX-License-Identifier: Apache-2.0

// The links of one rank to all others of its group.

#ifndef FLEET_COMM_TCP_LINKS_H_
#define FLEET_COMM_TCP_LINKS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"
#include "fleet/comm/meeting.h"
#include "fleet/comm/tcp_link.h"
#include "fleet/comm/whereabouts.h"

namespace fleet::comm {

// Threads as for Link.
class Links final {
 public:
  // `to[i]` goes to rank i; that of this rank itself is null.
  Links(std::vector<std::unique_ptr<Link>> to, Whereabouts whereabouts)
      : to_(std::move(to)), whereabouts_(std::move(whereabouts)) {}

  Link& to(int rank) { return *to_[rank]; }
  const std::vector<std::unique_ptr<Link>>& all() const { return to_; }
  Whereabouts& whereabouts() { return whereabouts_; }

  void TellFailure(uint64_t call_number, const Status& why);
  void Fail(const Status& why);
  void WaitIdle();
  // Until what was posted has gone out, and of letters been received but for
  // the last ones; or cannot be any more.
  void Flush(base::Deadline deadline);

 private:
  const std::vector<std::unique_ptr<Link>> to_;
  Whereabouts whereabouts_;
};

// Called by all ranks of the meeting; returns when all have come. Of two ranks
// the higher listens. DeadlineExceeded names those that did not come.
// `meeting.store` outlives what it returns.
Result<std::unique_ptr<Links>> ConnectLinks(const Meeting& meeting,
                                            const CommunicatorOptions& options,
                                            Deadline deadline);

}  // namespace fleet::comm

#endif  // FLEET_COMM_TCP_LINKS_H_
