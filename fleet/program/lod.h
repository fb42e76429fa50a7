// SPDX-License-Identifier: Apache-2.0

// Sequences of different lengths. The rows of all sequences lie one behind the
// other in an ordinary tensor; where each of them begins is a second variable,
// int64 offsets [sequences + 1], which Variable::lod names. An op that needs it
// has it as an input: slot "Lod" belongs to slot X, "YLod" to Y; an op that
// cuts rows into new sequences gives it as its output "OutLod". Ops that keep
// the rows of their input pass the name on.
//
// In Paddle a tensor carries its offsets with it, so its wire form has neither
// these slots nor these variables: Serialize() leaves them out, and
// RestoreLod() makes them again.

#ifndef FLEET_PROGRAM_LOD_H_
#define FLEET_PROGRAM_LOD_H_

#include <string>
#include <string_view>

#include "fleet/base/status.h"
#include "fleet/program/op_def.h"
#include "fleet/program/program.h"

namespace fleet::program {

inline constexpr std::string_view kLodSuffix = "@LOD";
// Whether a slot of this name holds offsets.
inline bool IsLodSlot(std::string_view slot) { return slot.ends_with("Lod"); }

// Makes the variable `name` of `block` a sequence of its own, with the
// companion "<name>@LOD", which is data if the variable is.
void MakeSequence(Block& block, const std::string& name);

// Fills the slots of `op` that hold offsets and are empty: inputs with those of
// the variables in their slot, outputs with new variables. Call it before
// InferTypes(). InvalidArgument when an input is no sequence but must be one;
// names the op, the variable and the user's line.
Status CompleteLod(const OpRegistry& registry, Block& block, Operation& op);

// Sets `lod` and `lod_level` of the outputs of `op`. InferTypes() calls it.
void PassLodOn(const OpRegistry& registry, Block& block, const Operation& op);

// For a program that was read from Paddle's form: companions for the data
// with lod_level 1, then offsets for all operations in order.
Status RestoreLod(const OpRegistry& registry, Program& program);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_LOD_H_
