// SPDX-License-Identifier: Apache-2.0

// What an operation is there for, and how gradients are called: the words by
// which those who rewrite programs understand each other.

#ifndef FLEET_PROGRAM_OP_ROLE_H_
#define FLEET_PROGRAM_OP_ROLE_H_

#include <string>
#include <string_view>

#include "fleet/program/program.h"

namespace fleet::program {

inline constexpr std::string_view kGradSuffix = "@GRAD";
std::string GradName(std::string_view variable);  // "x" -> "x@GRAD"

// What an operation is there for; the attribute op_role, with Paddle's numbers.
enum class OpRole : int {
  kForward = 0,
  kBackward = 1,
  kOptimize = 2,
  kDistribute = 8,
  kSchedule = 16,
  kLoss = 256,
};
inline constexpr std::string_view kOpRole = "op_role";
OpRole RoleOf(const Operation& op);
void SetRole(Operation& op, OpRole role);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_OP_ROLE_H_
