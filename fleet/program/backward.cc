// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/backward.h"

#include "fleet/program/block_backward.h"
#include "fleet/program/control.h"

namespace fleet::program {
namespace {

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

std::string GradName(std::string_view variable) {
  return std::string(variable) + std::string(kGradSuffix);
}

OpRole RoleOf(const Operation& op) {
  const AttrValue* role = op.attr(kOpRole);
  const auto* number =
      role == nullptr ? nullptr : std::get_if<int64_t>(&role->value);
  return number == nullptr ? OpRole::kForward : static_cast<OpRole>(*number);
}

void SetRole(Operation& op, OpRole role) {
  op.attrs.insert_or_assign(
      std::string(kOpRole),
      AttrValue{AttrKind::kInt, static_cast<int64_t>(role)});
}

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

}  // namespace fleet::program
