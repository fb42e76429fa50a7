// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/gradients.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "fleet/program/op_role.h"

namespace fleet::plan {
namespace {

using program::Block;
using program::DType;
using program::Operation;
using program::OpRole;
using program::Variable;

bool IsBackward(const Operation& op) {
  return (static_cast<int>(program::RoleOf(op)) &
          static_cast<int>(OpRole::kBackward)) != 0;
}

// The trainable parameter that `name` is a gradient of, or null. A second
// gradient of the same parameter has a longer name, "w@GRAD@RENAME@block0@0".
const Variable* ParameterOf(const Block& block, std::string_view name) {
  const size_t end = name.find(program::kGradSuffix);
  if (end == std::string_view::npos) return nullptr;
  const Variable* variable = block.Find(name.substr(0, end));
  const bool fits = variable != nullptr && variable->is_parameter &&
                    variable->trainable && !variable->stop_gradient;
  return fits ? variable : nullptr;
}

size_t ByteSizeOf(const program::TensorType& type) {
  size_t size = sizeof(float);
  if (type.dtype == DType::kFloat64) size = sizeof(double);
  if (type.dtype == DType::kFloat16 || type.dtype == DType::kBfloat16) {
    size = sizeof(uint16_t);
  }
  for (int64_t dim : type.dims) size *= static_cast<size_t>(dim);
  return size;
}

Gradient MakeGradient(const Block& block, const std::string& name,
                      const Variable& parameter) {
  const Variable* variable = block.Find(name);
  return {.name = name,
          .parameter = parameter.name,
          .dtype =
              variable == nullptr ? parameter.type.dtype : variable->type.dtype,
          .byte_size = ByteSizeOf(parameter.type),
          .rows = variable != nullptr &&
                  variable->kind == program::VariableKind::kSelectedRows};
}

}  // namespace

std::vector<Gradient> FindGradients(const Block& block) {
  std::map<std::string, Gradient, std::less<>> made;
  std::set<std::string, std::less<>> used;
  for (size_t i = 0; i < block.num_ops(); ++i) {
    const Operation& op = block.op(i);
    if (op.type == "c_allreduce_start") {
      for (const std::string& name : op.input("X")) {
        made.erase(name);
        used.erase(name);
      }
      continue;
    }
    if (op.type == "c_allreduce_wait") continue;
    if (!IsBackward(op)) {
      for (const program::Slot& slot : op.inputs) {
        for (const std::string& name : slot.arguments) {
          auto found = made.find(name);
          if (found == made.end() || !used.insert(name).second) continue;
          found->second.used_by = i;
        }
      }
      continue;
    }
    for (const program::Slot& slot : op.outputs) {
      for (const std::string& name : slot.arguments) {
        const Variable* parameter = ParameterOf(block, name);
        if (parameter == nullptr) continue;
        auto [entry, is_new] = made.try_emplace(name);
        if (is_new) entry->second = MakeGradient(block, name, *parameter);
        entry->second.made_by = i;
        used.erase(name);
      }
    }
  }
  std::vector<Gradient> gradients;
  for (auto& [name, gradient] : made) {
    if (used.contains(name)) gradients.push_back(std::move(gradient));
  }
  // By name where one operation makes several, so that all ranks agree.
  std::stable_sort(gradients.begin(), gradients.end(),
                   [](const Gradient& a, const Gradient& b) {
                     return a.made_by < b.made_by;
                   });
  return gradients;
}

}  // namespace fleet::plan
