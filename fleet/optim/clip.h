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

// A sum of squares as a T holds it, or as it is where it is too large for one.
template <class T>
double RoundedSum(double sum_of_squares);

// The factor that brings a gradient, or all gradients together, whose squares
// sum to `sum_of_squares`, down to a norm of `max_norm`: 1 where the norm is
// not above it. A gradient with NaN makes it NaN, so that nobody trains on. It
// is rounded in each step to T, the type of the gradients, as the operations
// do that clip in a program.
template <class T>
T ScaleToNorm(double sum_of_squares, double max_norm);

extern template double RoundedSum<float>(double);
extern template double RoundedSum<double>(double);
extern template float ScaleToNorm<float>(double, double);
extern template double ScaleToNorm<double>(double, double);

}  // namespace fleet::optim

#endif  // FLEET_OPTIM_CLIP_H_
