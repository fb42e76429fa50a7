// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PYTHON_SRC_EXTENSIONS_H_
#define FLEET_PYTHON_SRC_EXTENSIONS_H_

#include <ATen/core/Tensor.h>

#include "fleet/exec/executor.h"

namespace fleet::python {

// All operations that need more than kernels: calls into Python, collectives.
// For every executor of this process, also those of trainer threads.
void AddExtensions(exec::Executor& executor, at::Device device);

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_EXTENSIONS_H_
