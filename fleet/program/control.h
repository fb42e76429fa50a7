// SPDX-License-Identifier: Apache-2.0

// Bodies of control flow: blocks that an operation runs.

#ifndef FLEET_PROGRAM_CONTROL_H_
#define FLEET_PROGRAM_CONTROL_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/program/program.h"

namespace fleet::program {

inline constexpr std::string_view kSubBlock = "sub_block";
// In place of a variable that nobody wants.
inline constexpr std::string_view kEmptyName = "@EMPTY@";

// The blocks that `op` runs, by their numbers.
std::vector<int> BodiesOf(const Operation& op);

struct Uses {
  std::set<std::string> reads;   // before it writes them
  std::set<std::string> writes;  // perhaps
};
// The uses of an operation with its bodies; the uses of block `index` without
// the variables that it declares itself.
Uses UsesOf(const Program& program, const Operation& op);
Uses UsesOf(const Program& program, int index);

// The slots of a conditional_block (Input, Out) or while (X, Out), by what its
// body reads and writes; bodies inside it first. Call it when the body is
// complete, and after every change of it. Others stay as they are.
void FillBodySlots(Program& program, Operation& op);

// Before the body `index` is differentiated: makes it read what was there when
// it began under another name, "x@IN", if it writes x itself. Returns the
// variables x.
std::set<std::string> SplitCarried(Program& program, int index);

// Replaces the variable `from` by `to` in the operations [begin, end) of
// `block` and in their bodies.
void RenameIn(Program& program, Block& block, size_t begin, size_t end,
              const std::string& from, const std::string& to);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_CONTROL_H_
