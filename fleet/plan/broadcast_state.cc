// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/broadcast_state.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace fleet::plan {

using program::Block;
using program::Operation;
using program::Variable;

bool BroadcastState(program::Program& startup) {
  constexpr std::string_view kType = "c_broadcast_state";
  Block& block = startup.block(0);
  program::Slot state{"X", {}};
  std::set<std::string> seen;
  for (size_t i = 0; i < block.num_ops();) {
    const Operation& op = block.op(i);
    if (op.type == kType) {
      block.Remove(i, i + 1);
      continue;
    }
    for (const program::Slot& slot : op.outputs) {
      for (const std::string& name : slot.arguments) {
        const Variable* variable = block.Find(name);
        if (variable == nullptr || !variable->persistable) continue;
        if (seen.insert(name).second) state.arguments.push_back(name);
      }
    }
    ++i;
  }
  if (state.arguments.empty()) return false;
  program::Slot out{"Out", state.arguments};
  block.Append({.type = std::string(kType),
                .inputs = {std::move(state)},
                .outputs = {std::move(out)},
                .attrs = {{"root", {program::AttrKind::kInt, int64_t{0}}}}});
  return true;
}

}  // namespace fleet::plan
