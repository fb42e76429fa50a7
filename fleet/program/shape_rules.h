// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PROGRAM_SHAPE_RULES_H_
#define FLEET_PROGRAM_SHAPE_RULES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "fleet/program/op_def.h"

// Shape rules that many ops share, and the arithmetic on dimensions that other
// rules are made of. A dimension of -1 is not known yet and fits everything.

namespace fleet::program {

// Every output has the type of the input `slot`.
ShapeRule SameAs(std::string slot);

// Every output has the shape of the input `slot` and the element type `dtype`.
ShapeRule SameShapeAs(std::string slot, DType dtype);

// X and Y by numpy's broadcasting, or by AlignAt() if the op has an attribute
// `axis`. `dtype` overrides the element type of the result, for comparisons.
ShapeRule BroadcastXY(DType dtype = DType::kNone);

// X reduced over attribute `dim` (or all, with `reduce_all` or an empty list),
// keeping ones with `keep_dim`. Without it a full reduction has shape [1], as
// in Paddle 2.0. `dtype` overrides the element type of the result.
ShapeRule Reduce(DType dtype = DType::kNone);

// The numpy broadcast of two shapes.
Result<Dims> BroadcastDims(const Dims& x, const Dims& y);

// `y` with ones behind it, so that its first dimension stands at dimension
// `axis` of `x`: Paddle's way of adding a bias to channels. -1 changes nothing.
Result<Dims> AlignAt(const Dims& x, Dims y, int64_t axis);

// The axis counted from the front. InvalidArgument names `what` when it does
// not lie in [-rank, rank).
Result<int64_t> NormalizeAxis(int64_t axis, size_t rank, std::string_view what);

// The element type of an operation on both: the wider, floating over integer.
DType Promote(DType x, DType y);

// The shape that the optional integer tensor in slot `slot` asks for when the
// program runs. `attr` holds what is known before: -1 where the tensor decides.
// Without it, nothing is known but the number of dimensions, or not even that.
Dims DimsFromTensor(const OpTypes& types, std::string_view slot,
                    std::string_view attr);

// Whether both are known and not the same.
inline bool KnownToDiffer(int64_t a, int64_t b) {
  return a != b && a >= 0 && b >= 0;
}

// Whether they can be one shape: as many dimensions, none known to differ.
bool CanBeOne(const Dims& a, const Dims& b);

// What is known of a shape that both describe; CanBeOne(a, b) holds.
Dims KnownOfBoth(const Dims& a, const Dims& b);

// The product of all dimensions, or -1 if one is not known.
int64_t NumElements(const Dims& dims);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_SHAPE_RULES_H_
