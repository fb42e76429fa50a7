// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/overlap.h"

#include "fleet/base/cores.h"

namespace fleet::sync {

bool Overlaps(const comm::Communicator& communicator, Overlap wish,
              int ranks_on_host) {
  // A GPU's calls do not wait, and belong to the stream of the thread.
  if (communicator.on_device()) return false;
  if (wish != Overlap::kAuto) return wish == Overlap::kYes;
  const int ranks = ranks_on_host > 0 ? ranks_on_host : communicator.size();
  return base::NumCores() > ranks;
}

}  // namespace fleet::sync
