// SPDX-License-Identifier: Apache-2.0

// Who is late. A rank that waits in a ring sees only its neighbour, which may
// itself be waiting. So ranks that have waited for some time say in the store
// at which call they are; who has not said so by the deadline is late.

#ifndef FLEET_COMM_WHEREABOUTS_H_
#define FLEET_COMM_WHEREABOUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fleet/cluster/store.h"

namespace fleet::comm {

// `store` outlives it. One thread.
class Whereabouts final {
 public:
  Whereabouts(cluster::Store& store, std::string prefix, int rank, int size);

  // That this rank is in call `number`. Quick; a store that fails is ignored.
  void Say(uint64_t number);
  // The others that have not said that they are in call `number` or a later
  // one; empty when nobody is late, or the store cannot tell.
  std::vector<int> Late(uint64_t number);

 private:
  cluster::Store& store_;
  const std::string prefix_;
  const int rank_;
  const int size_;
  uint64_t said_ = 0;
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_WHEREABOUTS_H_
