// SPDX-License-Identifier: Apache-2.0

// What a call says of ranks that it needs and that have ended well.

#ifndef FLEET_COMM_LEFT_H_
#define FLEET_COMM_LEFT_H_

#include <string>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/comm/types.h"

namespace fleet::comm {

// Unavailable, with what is mostly the cause, and the ways out of it.
inline Status LeftBefore(const std::string& call,
                         const std::vector<int>& ranks) {
  return Unavailable(call, ": ", RankList(ranks),
                     " left before it. If the ranks have different numbers of "
                     "batches, train inside the model's join(), or give all "
                     "the same number (drop_last)");
}

}  // namespace fleet::comm

#endif  // FLEET_COMM_LEFT_H_
