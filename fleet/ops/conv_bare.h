// SPDX-License-Identifier: Apache-2.0

// What the form of a convolution shares with the fusions around it.

#ifndef FLEET_OPS_CONV_BARE_H_
#define FLEET_OPS_CONV_BARE_H_

#include <optional>

#include "fleet/ops/bare.h"
#include "fleet/ops/conv.h"

namespace fleet::ops {

// The shape of a call of conv2d or of its gradient; nothing where there are no
// fast convolutions for its types.
std::optional<ConvShape> ReadConv(const BareCall& call);

// The work of a convolution of values that have the channels last; `bias` may
// be kNone. Null where there is no fast convolution of that shape.
Bare ConvWork(const ConvShape& shape, int x, int filter, int bias, int y,
              bool relu);

}  // namespace fleet::ops

#endif  // FLEET_OPS_CONV_BARE_H_
