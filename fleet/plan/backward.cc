// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/backward.h"

#include "fleet/plan/block_backward.h"
#include "fleet/program/control.h"
#include "fleet/program/op_role.h"

namespace fleet::plan {
namespace {

using program::Block;
using program::Operation;
using program::OpRegistry;
using program::OpRole;
using program::Program;
using program::Slot;
using program::Slots;
using program::Variable;
using program::VariableKind;

// The arrays of the main block that `targets` may depend on, without gradients.
// Names are looked at without regard to order, in all blocks.
std::map<std::string, std::string> FindArrays(
    const Program& program, const std::vector<BackwardTarget>& targets) {
  std::set<std::string> needed;
  for (const BackwardTarget& target : targets) needed.insert(target.variable);
  auto needs = [&](const Slots& slots) {
    for (const Slot& slot : slots) {
      for (const std::string& name : slot.arguments) {
        if (needed.contains(name)) return true;
      }
    }
    return false;
  };
  for (size_t before = 0; before != needed.size();) {
    before = needed.size();
    for (size_t b = program.num_blocks(); b-- > 0;) {
      const Block& block = program.block(b);
      for (size_t i = block.num_ops(); i-- > 0;) {
        const Operation& op = block.op(i);
        if (!BodiesOf(op).empty() || !needs(op.outputs)) continue;
        for (const Slot& slot : op.inputs) {
          needed.insert(slot.arguments.begin(), slot.arguments.end());
        }
      }
    }
  }
  std::map<std::string, std::string> arrays;
  for (const Variable* variable : program.block(0).variables()) {
    if (variable->kind == VariableKind::kTensorArray &&
        needed.contains(variable->name)) {
      arrays.emplace(variable->name, "");
    }
  }
  return arrays;
}

}  // namespace

Result<std::map<std::string, std::string>> AppendBackward(
    const OpRegistry& registry, Program& program,
    const std::vector<BackwardTarget>& targets,
    const std::set<std::string>& no_grad) {
  Block& main = program.block(0);
  BackwardRecords records{.arrays = FindArrays(program, targets)};
  BlockBackward backward(registry, program, main, main, no_grad, records,
                         [](const std::string&) { return true; });
  Result<BlockBackward::Gradients> gradients = backward.Run(0, targets);
  for (Operation& op : records.beginnings) {
    SetRole(op, OpRole::kBackward);
    main.Insert(0, std::move(op));
  }
  return gradients;
}

}  // namespace fleet::plan
