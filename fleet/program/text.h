// SPDX-License-Identifier: Apache-2.0

// The text of a program, for people and for tests of passes. One operation is
// one line, in the manner of Paddle:
//
//   { // block 0
//       var x : LOD_TENSOR.shape(-1, 4).dtype(float32).stop_gradient(True)
//       persist trainable param w : LOD_TENSOR.shape(4, 2).dtype(float32)
//       {Out=['y']} = matmul_v2(inputs={X=['x'], Y=['w']}, trans_x = False)
//   }
//
// Attributes stand in the order of their names. 3 is an int, 3.0 a float, 'a' a
// string, True a bool, [1, 2] ints and so on; the rarer kinds, and empty lists,
// say what they are: long(3), longs[1, 2], float64(0.1), block[1], ints[].

#ifndef FLEET_PROGRAM_TEXT_H_
#define FLEET_PROGRAM_TEXT_H_

#include <memory>
#include <string>
#include <string_view>

#include "fleet/base/status.h"
#include "fleet/program/program.h"

namespace fleet::program {

struct TextOptions {
  // Without them only operations are shown, which is enough for most tests.
  bool variables = true;
  // Behind an operation the user's line: "  // at train.py:17".
  bool lines = false;
};

// A program always has the same text.
std::string ToString(const Program& program, const TextOptions& options = {});
std::string ToString(const Block& block, const TextOptions& options = {});
// Without the line's end.
std::string ToString(const Operation& op, const TextOptions& options = {});
std::string ToString(const Variable& variable);

// The inverse of ToString(). Variables that operations name need not be
// declared. InvalidArgument says in which line and what was expected.
Result<std::unique_ptr<Program>> ParseText(std::string_view text);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_TEXT_H_
