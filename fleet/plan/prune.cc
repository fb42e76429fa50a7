// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/prune.h"

#include <set>
#include <utility>

#include "fleet/program/control.h"
#include "fleet/program/op_role.h"

namespace fleet::plan {
namespace {

using program::AttrKind;
using program::AttrValue;
using program::Block;
using program::OpDef;
using program::Operation;
using program::OpRegistry;
using program::OpRole;
using program::Program;
using program::Uses;
using program::Variable;
using program::VariableKind;

bool IsTraining(const Operation& op) {
  constexpr int kTraining = static_cast<int>(OpRole::kBackward) |
                            static_cast<int>(OpRole::kOptimize) |
                            static_cast<int>(OpRole::kSchedule);
  return (static_cast<int>(RoleOf(op)) & kTraining) != 0;
}

// Keeps the blocks that can be reached from block 0 and numbers them anew.
std::unique_ptr<Program> DropUnreachable(const Program& program) {
  std::vector<bool> reached(program.num_blocks(), false);
  std::vector<int> open = {0};
  while (!open.empty()) {
    const int index = open.back();
    open.pop_back();
    if (reached[index]) continue;
    reached[index] = true;
    const Block& block = program.block(index);
    if (block.parent() >= 0) open.push_back(block.parent());
    for (size_t i = 0; i < block.num_ops(); ++i) {
      for (int body : BodiesOf(block.op(i))) open.push_back(body);
    }
  }
  std::vector<int> number(program.num_blocks(), -1);
  auto out = std::make_unique<Program>();
  out->random_seed = program.random_seed;
  for (size_t b = 0; b < program.num_blocks(); ++b) {
    if (!reached[b]) continue;
    const Block& from = program.block(b);
    Block& to = b == 0 ? out->block(0) : out->AddBlock(number[from.parent()]);
    number[b] = to.index();
    if (from.forward_block() >= 0) {
      to.set_forward_block(number[from.forward_block()]);
    }
    for (const Variable* variable : from.variables()) to.AddVariable(*variable);
    for (size_t i = 0; i < from.num_ops(); ++i) to.Append(from.op(i));
  }
  for (size_t b = 0; b < out->num_blocks(); ++b) {
    for (size_t i = 0; i < out->block(b).num_ops(); ++i) {
      for (auto& [name, attr] : out->block(b).op(i).attrs) {
        if (attr.kind == AttrKind::kBlock) {
          attr.value = int64_t{number[std::get<int64_t>(attr.value)]};
        } else if (attr.kind == AttrKind::kBlocks) {
          for (int64_t& i : std::get<std::vector<int64_t>>(attr.value)) {
            i = number[i];
          }
        }
      }
    }
  }
  return out;
}

// Removes from block 0 the variables that `gone` used and no operation uses
// any more.
void RemoveVariables(Program& program, const std::set<std::string>& gone,
                     const std::set<std::string>& keep) {
  Block& main = program.block(0);
  std::set<std::string> used = keep;
  for (size_t i = 0; i < main.num_ops(); ++i) {
    Uses of = UsesOf(program, main.op(i));
    used.merge(of.reads);
    used.merge(of.writes);
  }
  // Where sequences begin belongs to the rows.
  for (const Variable* variable : main.variables()) {
    if (used.contains(variable->name)) used.insert(variable->lod);
  }
  for (const std::string& name : gone) {
    if (!used.contains(name)) main.RemoveVariable(name);
  }
}

}  // namespace

Result<std::unique_ptr<Program>> Prune(
    const Program& program, const std::vector<std::string>& feeds,
    const std::vector<std::string>& targets) {
  std::unique_ptr<Program> copy = program.Clone();
  Block& main = copy->block(0);
  std::set<std::string> fed;
  for (const std::string& name : feeds) {
    const Variable* variable = main.FindHere(name);
    if (variable == nullptr) {
      return NotFound("the program has no variable ", name, " to feed");
    }
    fed.insert(name);
    if (!variable->lod.empty()) fed.insert(variable->lod);
  }
  std::set<std::string> needed;
  for (const std::string& name : targets) {
    if (main.FindHere(name) == nullptr) {
      return NotFound("the program has no variable ", name);
    }
    if (!fed.contains(name)) needed.insert(name);
  }
  for (size_t i = main.num_ops(); i-- > 0;) {
    const Operation& op = main.op(i);
    Uses uses = UsesOf(*copy, op);
    bool is_needed = false;
    for (const std::string& name : uses.writes) {
      is_needed |= needed.contains(name);
    }
    if (!is_needed || op.type == "feed" || op.type == "fetch") {
      main.Remove(i, i + 1);
      continue;
    }
    for (const std::string& name : uses.writes) {
      // An op with a body may write it or not; of an array it is one place.
      const Variable* variable = main.FindHere(name);
      if (!uses.reads.contains(name) && BodiesOf(op).empty() &&
          (variable == nullptr ||
           variable->kind != VariableKind::kTensorArray)) {
        needed.erase(name);
      }
    }
    for (const std::string& name : uses.reads) {
      if (!fed.contains(name)) needed.insert(name);
    }
  }
  for (const std::string& name : needed) {
    const Variable* variable = main.FindHere(name);
    if (variable != nullptr && variable->is_data) {
      return InvalidArgument(
          "the targets depend on the data ", name,
          ", which is not among what will be fed; feed it, or ask for targets "
          "that do not need it");
    }
  }
  std::set<std::string> all;
  for (const Variable* variable : main.variables()) all.insert(variable->name);
  std::set<std::string> keep = fed;
  keep.insert(targets.begin(), targets.end());
  RemoveVariables(*copy, all, keep);
  return DropUnreachable(*copy);
}

std::unique_ptr<Program> CloneForTest(const OpRegistry& registry,
                                      const Program& program) {
  std::unique_ptr<Program> copy = program.Clone();
  Block& main = copy->block(0);
  std::set<std::string> gone;
  for (size_t b = 0; b < copy->num_blocks(); ++b) {
    Block& block = copy->block(b);
    for (size_t i = block.num_ops(); i-- > 0;) {
      if (!IsTraining(block.op(i))) continue;
      Uses uses = UsesOf(*copy, block.op(i));
      gone.merge(uses.reads);
      gone.merge(uses.writes);
      block.Remove(i, i + 1);
    }
  }
  // Bodies may have saved what only their gradients needed.
  for (size_t i = 0; i < main.num_ops(); ++i) {
    FillBodySlots(*copy, main.op(i));
  }
  RemoveVariables(*copy, gone, {});
  std::unique_ptr<Program> out = DropUnreachable(*copy);
  for (size_t b = 0; b < out->num_blocks(); ++b) {
    for (size_t i = 0; i < out->block(b).num_ops(); ++i) {
      Operation& op = out->block(b).op(i);
      // Evaluation needs no other rank.
      if (op.type == "sync_batch_norm") op.type = "batch_norm";
      const OpDef* def = registry.Find(op.type);
      if (op.attr("is_test") != nullptr ||
          (def != nullptr && def->AttrIndex("is_test") >= 0)) {
        op.attrs.insert_or_assign("is_test", AttrValue{AttrKind::kBool, true});
      }
    }
  }
  return out;
}

}  // namespace fleet::plan
