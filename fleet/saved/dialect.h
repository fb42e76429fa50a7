// SPDX-License-Identifier: Apache-2.0

// Our ops have Paddle's names and meanings, with exceptions: some do in one
// what Paddle does in several (a convolution with bias, losses), some are named
// by what they do (avg_pool2d for pool2d). This brings a program that is saved
// into ops that Paddle has, and one that Paddle saved into ours.

#ifndef FLEET_SAVED_DIALECT_H_
#define FLEET_SAVED_DIALECT_H_

#include "fleet/base/status.h"
#include "fleet/program/op_def.h"
#include "fleet/program/program.h"

namespace fleet::saved {

// Who shall read it. What the older one knows, the newer one knows too.
enum class Paddle { k1_8, k2 };

// Rewrites `program`, which is for inference: ops by ops that Paddle has, all
// attributes written out, all outputs named that Paddle wants. Values of
// variables stay the same. What Paddle has no ops for stays as it is: such a
// program opens only here. InvalidArgument for an op whose attributes are
// wrong.
Status ToPaddle(const program::OpRegistry& registry, program::Program& program,
                Paddle version);

// Rewrites what Paddle saved: ops that we have under another name.
void FromPaddle(program::Program& program);

}  // namespace fleet::saved

#endif  // FLEET_SAVED_DIALECT_H_
