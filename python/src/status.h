// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PYTHON_SRC_STATUS_H_
#define FLEET_PYTHON_SRC_STATUS_H_

#include <utility>

#include <nanobind/nanobind.h>

#include "fleet/base/status.h"

namespace fleet::python {

// The only place where a Status becomes a Python exception. Does nothing on
// success. The GIL must be held. An error that is set already, because the
// handler of a signal raised while the call waited, goes before the status.
//
//   a failed system call   OSError with its errno: FileNotFoundError, ...
//   a lack of memory       MemoryError
//   InvalidArgument        ValueError
//   NotFound               KeyError
//   Unavailable            ConnectionError
//   DeadlineExceeded       TimeoutError
//   DataLoss               DataLossError, a RuntimeError
//   Unimplemented          NotImplementedError
//   the others             RuntimeError
void ThrowIfError(const Status& status);

// The value, or the exception.
template <class T>
T ValueOrThrow(Result<T>&& result) {
  ThrowIfError(result.status());
  return *std::move(result);
}

// Adds DataLossError to the module, and has exceptions that ATen throws outside
// of ops become Python's own: IndexError, ValueError, ...
void BindStatus(nanobind::module_& m);

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_STATUS_H_
