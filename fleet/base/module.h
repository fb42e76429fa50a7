// SPDX-License-Identifier: Apache-2.0

// Parts of Fleet that stand on a library which many machines lack (MPI, NCCL,
// UCX) are shared objects of their own, loaded on first use: a program starts
// fast and works where they are absent.

#ifndef FLEET_BASE_MODULE_H_
#define FLEET_BASE_MODULE_H_

#include <string>

#include "fleet/base/status.h"

namespace fleet::base {

// The address of `entry`, a function with C linkage, in `file`
// ("libfleet_mpi.so"), which lies beside libfleet_core and stays loaded until
// the process ends. Unimplemented when the file or a library that it needs is
// absent; the message ends with `remedy`, which says how to get it.
// Thread-safe.
Result<void*> LoadModule(const std::string& file, const char* entry,
                         const std::string& remedy);

}  // namespace fleet::base

#endif  // FLEET_BASE_MODULE_H_
