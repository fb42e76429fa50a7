// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of clipping by norm. A clip never touches a gradient: it
// yields the scale of a Transform, which the update applies.

#ifndef FLEET_OPTIM_CLIP_H_
#define FLEET_OPTIM_CLIP_H_

#include <span>

namespace fleet::optim {

// The sum of squares, accumulated in double in an order that depends only on
// the size. T is float or double.
template <class T>
double SumOfSquares(std::span<const T> values);

extern template double SumOfSquares(std::span<const float>);
extern template double SumOfSquares(std::span<const double>);

// The factor that brings a gradient, or all gradients together, whose squares
// sum to `sum_of_squares`, down to a norm of `max_norm`: 1 where the norm is
// not above it. A gradient with NaN makes it NaN, so that nobody trains on.
double ScaleToNorm(double sum_of_squares, double max_norm);

}  // namespace fleet::optim

#endif  // FLEET_OPTIM_CLIP_H_
