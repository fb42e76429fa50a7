// SPDX-License-Identifier: Apache-2.0

// The contexts of paddle.amp.auto_cast, of each thread its own.

#ifndef FLEET_PYTHON_SRC_AUTO_CAST_H_
#define FLEET_PYTHON_SRC_AUTO_CAST_H_

#include "fleet/ops/eager/auto_cast.h"

namespace fleet::python {

// What eager calls of this thread cast their inputs to: what the last context
// that was entered here and not left asks for. nullptr: nothing.
const ops::AutoCast* CurrentAutoCast();

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_AUTO_CAST_H_
