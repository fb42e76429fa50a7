// SPDX-License-Identifier: Apache-2.0

// The binary form of a program: Paddle's ProgramDesc message, so that saved
// models open there and those of Paddle open here. docs/program_format.md has
// the fields.

#ifndef FLEET_PROGRAM_WIRE_H_
#define FLEET_PROGRAM_WIRE_H_

#include <memory>
#include <string>
#include <string_view>

#include "fleet/base/status.h"
#include "fleet/program/program.h"

namespace fleet::program {

std::string Serialize(const Program& program);

// DataLoss for bytes that are no program, or that contradict themselves; says
// where. What other versions of Paddle add and we do not know is left out.
Result<std::unique_ptr<Program>> Parse(std::string_view bytes);

// A tensor's type alone, as Paddle's files have it before the data.
std::string Serialize(const TensorType& type);
Result<TensorType> ParseTensorType(std::string_view bytes);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_WIRE_H_
