// SPDX-License-Identifier: Apache-2.0

// Deadlines of tests.

#ifndef FLEET_TESTING_DEADLINES_H_
#define FLEET_TESTING_DEADLINES_H_

#include <chrono>

#include "fleet/base/deadline.h"
#include "fleet/testing/testing.h"

namespace fleet::testing {

// Long enough for the slowest machine: reached only when something is broken,
// so nothing waits for it when all is well.
inline base::Deadline Soon() {
  return base::Deadline::After(std::chrono::seconds(60));
}

}  // namespace fleet::testing

#endif  // FLEET_TESTING_DEADLINES_H_
