// SPDX-License-Identifier: Apache-2.0
#include "fleet/base/cores.h"

#include <algorithm>
#include <sched.h>
#include <unistd.h>

namespace fleet::base {

int NumCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) {
    return std::max(CPU_COUNT(&cores), 1);
  }
  // More cores than the set has room for.
  return static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

}  // namespace fleet::base
