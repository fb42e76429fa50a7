// SPDX-License-Identifier: Apache-2.0

// Elementwise operations over blocks of floats, each a function of one type,
// so that a program of them can be a list (exec/chain.h). As simd.h, two files
// implement them and the build picks one.
//
// Every sum, product, quotient and root below is rounded by itself, as plain
// C++ without contraction does it: the same program gives the same bits with
// and without Highway, except for tanh, sigmoid, exp and log.

#ifndef FLEET_BASE_SIMD_BLOCKS_H_
#define FLEET_BASE_SIMD_BLOCKS_H_

#include <cstddef>
#include <cstdint>

namespace fleet::base {

// What out[i] becomes, with a for a[i] and so on; s and t are numbers.
enum class BlockOp : uint8_t {
  kFill,            // s
  kCopy,            // a
  kAdd,             // a + b
  kAddNumber,       // a + s
  kSubtract,        // a - b
  kSubtractNumber,  // a - s
  kSubtractFrom,    // s - a
  kMultiply,        // a * b
  kMultiplyNumber,  // a * s
  kDivide,          // a / b
  kDivideNumber,    // a / s
  kDivideInto,      // s / a
  kMaximum,         // the larger of a and b; NaN if one of them is
  kMaximumNumber,   // the same of a and s
  kMinimum,         // the smaller
  kMinimumNumber,
  kScale,          // a * s + t
  kShift,          // (a + s) * t
  kClip,           // a, but at least s and at most t; NaN stays
  kInside,         // 1 where s < a < t, else 0
  kIfGreater,      // c where a > b, else 0
  kUnlessGreater,  // 0 where a > b, else c
  kAbs,
  kSign,  // -1, 0 or 1; 0 for NaN
  kSquare,
  kSqrt,
  kRelu,         // 0 where a <= 0, else a
  kReluGrad,     // 0 where a <= 0, else b
  kTanh,         // simd.h has the next five
  kTanhGrad,     // of a = tanh(x), b = the gradient of a
  kSigmoid,      //
  kSigmoidGrad,  // as kTanhGrad
  kExp,
  kLog,  // natural; relative or absolute error at most 4 units in the last
         // place of the result or of 1; -inf for 0, NaN below
  kLast = kLog,
};

struct BlockArguments {
  const float* a = nullptr;  // `size` floats each; unused ones may be null
  const float* b = nullptr;
  const float* c = nullptr;
  float s = 0;
  float t = 0;
  float* out = nullptr;  // may be a, b or c; overlaps with them in no other way
  size_t size = 0;
};

using BlockFunction = void (*)(const BlockArguments&);

// The function for this machine. Both are thread-safe.
BlockFunction FindBlockFunction(BlockOp op);

}  // namespace fleet::base

#endif  // FLEET_BASE_SIMD_BLOCKS_H_
