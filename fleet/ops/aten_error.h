// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_ATEN_ERROR_H_
#define FLEET_OPS_ATEN_ERROR_H_

#include <exception>

#include "fleet/base/status.h"

namespace fleet::ops {

// What went wrong below us, for a user to read: without backtrace, with our
// names of element types. InvalidArgument, or errno ENOMEM where memory ran
// out.
Status FromException(const std::exception& error);

}  // namespace fleet::ops

#endif  // FLEET_OPS_ATEN_ERROR_H_
