// SPDX-License-Identifier: Apache-2.0

// The names that Job had: programs that say Fleet compile as before.

#ifndef FLEET_FLEET_H_
#define FLEET_FLEET_H_

#include "fleet/job.h"

namespace fleet {

using Fleet = Job;
using InitOptions = JobOptions;

}  // namespace fleet

#endif  // FLEET_FLEET_H_
