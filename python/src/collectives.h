// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PYTHON_SRC_COLLECTIVES_H_
#define FLEET_PYTHON_SRC_COLLECTIVES_H_

#include "fleet/exec/executor.h"

namespace fleet::python {

// Collective operations of programs run over the default job; a group of it
// where they have a ring_id.
void AddCollectives(exec::Executor& executor);

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_COLLECTIVES_H_
