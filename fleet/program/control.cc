// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/control.h"

#include <algorithm>
#include <map>
#include <utility>

namespace fleet::program {
namespace {

void Collect(const Slots& slots, std::set<std::string>& names) {
  for (const Slot& slot : slots) {
    for (const std::string& name : slot.arguments) {
      if (name != kEmptyName) names.insert(name);
    }
  }
}

void Replace(Slots& slots, const std::string& from, const std::string& to) {
  for (Slot& slot : slots) {
    std::replace(slot.arguments.begin(), slot.arguments.end(), from, to);
  }
}

void SetSlot(Slots& slots, const std::string& name,
             const std::set<std::string>& arguments) {
  std::erase_if(slots, [&](const Slot& slot) { return slot.name == name; });
  slots.push_back({name, {arguments.begin(), arguments.end()}});
}

bool HasBodySlots(const Operation& op) {
  return op.type == "conditional_block" || op.type == "while";
}

}  // namespace

std::vector<int> BodiesOf(const Operation& op) {
  std::vector<int> bodies;
  for (const auto& [name, attr] : op.attrs) {
    if (attr.kind == AttrKind::kBlock) {
      bodies.push_back(static_cast<int>(std::get<int64_t>(attr.value)));
    } else if (attr.kind == AttrKind::kBlocks) {
      for (int64_t i : std::get<std::vector<int64_t>>(attr.value)) {
        bodies.push_back(static_cast<int>(i));
      }
    }
  }
  return bodies;
}

Uses UsesOf(const Program& program, const Operation& op) {
  Uses uses;
  Collect(op.inputs, uses.reads);
  Collect(op.outputs, uses.writes);
  for (int body : BodiesOf(op)) {
    Uses inner = UsesOf(program, body);
    uses.reads.merge(inner.reads);
    uses.writes.merge(inner.writes);
  }
  return uses;
}

Uses UsesOf(const Program& program, int index) {
  const Block& block = program.block(index);
  Uses uses;
  for (size_t i = 0; i < block.num_ops(); ++i) {
    Uses of = UsesOf(program, block.op(i));
    for (const std::string& name : of.reads) {
      if (!uses.writes.contains(name)) uses.reads.insert(name);
    }
    uses.writes.merge(of.writes);
  }
  if (index == 0) return uses;
  for (const Variable* variable : block.variables()) {
    uses.reads.erase(variable->name);
    uses.writes.erase(variable->name);
  }
  return uses;
}

void FillBodySlots(Program& program, Operation& op) {
  for (int index : BodiesOf(op)) {
    Block& body = program.block(index);
    for (size_t i = 0; i < body.num_ops(); ++i) {
      FillBodySlots(program, body.op(i));
    }
  }
  if (!HasBodySlots(op)) return;
  Uses uses;
  for (int index : BodiesOf(op)) {
    Uses of = UsesOf(program, index);
    uses.reads.merge(of.reads);
    uses.writes.merge(of.writes);
  }
  SetSlot(op.inputs, op.type == "while" ? "X" : "Input", uses.reads);
  SetSlot(op.outputs, "Out", uses.writes);
}

std::set<std::string> SplitCarried(Program& program, int index) {
  Block& body = program.block(index);
  std::map<std::string, size_t> written;  // by which operation
  std::set<std::string> carried;
  for (size_t i = 0; i < body.num_ops(); ++i) {
    const Operation& op = body.op(i);
    Uses uses = UsesOf(program, op);
    for (const std::string& name : uses.reads) {
      if (!written.contains(name)) carried.insert(name);
    }
    for (const std::string& name : uses.writes) {
      const Variable* variable = body.Find(name);
      if (variable != nullptr && variable->kind == VariableKind::kTensorArray) {
        continue;
      }
      written.emplace(name, i);  // the first time
    }
  }
  std::erase_if(carried, [&](const std::string& name) {
    const Variable* variable = body.Find(name);
    return !written.contains(name) || variable == nullptr ||
           variable->kind == VariableKind::kTensorArray;
  });
  size_t copies = 0;  // at the front of the body
  for (const std::string& name : carried) {
    const std::string before = name + "@IN";
    if (body.FindHere(before) != nullptr) continue;  // done before
    Variable copy = *body.Find(name);
    copy.name = before;
    copy.persistable = false;
    body.AddVariable(std::move(copy));
    const size_t end = written.at(name) + copies;
    RenameIn(program, body, copies, end, name, before);
    Replace(body.op(end).inputs, name, before);
    body.Insert(0, {.type = "assign",
                    .inputs = {{"X", {name}}},
                    .outputs = {{"Out", {before}}}});
    ++copies;
  }
  return carried;
}

void RenameIn(Program& program, Block& block, size_t begin, size_t end,
              const std::string& from, const std::string& to) {
  for (size_t i = begin; i < end; ++i) {
    Operation& op = block.op(i);
    Replace(op.inputs, from, to);
    Replace(op.outputs, from, to);
    for (int index : BodiesOf(op)) {
      Block& body = program.block(index);
      if (body.FindHere(from) != nullptr) continue;  // another one
      RenameIn(program, body, 0, body.num_ops(), from, to);
    }
  }
}

}  // namespace fleet::program
