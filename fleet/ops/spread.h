// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_SPREAD_H_
#define FLEET_OPS_SPREAD_H_

#include <cstdint>
#include <optional>

#include "fleet/ops/bare.h"

namespace fleet::ops {

// How the smaller operand Y of an elementwise operation lies over the larger
// one: X is seen as [outer, middle, inner], Y as [middle], which is spread over
// the others. Y of X's shape has outer = inner = 1.
struct Spread {
  int64_t outer = 1;
  int64_t middle = 1;
  int64_t inner = 1;
  int64_t numel() const { return outer * middle * inner; }
  bool same() const { return outer == 1 && inner == 1; }
};

// The spread of Y over X for an operation with this `axis`; nothing where it
// has not that form.
std::optional<Spread> SpreadOf(const Dims& x, Dims y, int64_t axis);

// The spread of a call of two operands, with an attribute `axis` or none, whose
// result is as large as X, for the types and layouts that forms take.
std::optional<Spread> ReadSpread(const BareCall& call, int x, int y, int out);

}  // namespace fleet::ops

#endif  // FLEET_OPS_SPREAD_H_
