// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/overlap.h"

#include "fleet/base/cores.h"

namespace fleet::sync {

bool HasCoresToSpare(int ranks_on_host) {
  return base::NumCores() > ranks_on_host;
}

bool Overlaps(const comm::Communicator& communicator, Overlap wish,
              int ranks_on_host) {
  // A GPU's calls do not wait, and belong to the stream of the thread.
  if (communicator.on_device()) return false;
  if (wish != Overlap::kAuto) return wish == Overlap::kYes;
  return HasCoresToSpare(ranks_on_host > 0 ? ranks_on_host
                                           : communicator.size());
}

}  // namespace fleet::sync
