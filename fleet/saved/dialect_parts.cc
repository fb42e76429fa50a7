// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/dialect_parts.h"

namespace fleet::saved {

using program::AttrMap;
using program::AttrValue;
using program::Block;
using program::Operation;
using program::Slots;
using program::TensorType;
using program::Variable;

namespace {

// Slots that have another name there.
struct SlotNames {
  std::string_view op;
  std::string_view ours;
  std::string_view theirs;
};
constexpr SlotNames kSlotNames[] = {
    {"atan2", "X", "X1"},
    {"atan2", "Y", "X2"},
    {"expand_v2", "ShapeTensor", "Shape"},
    {"reshape2", "ShapeTensor", "Shape"},
    {"top_k_v2", "KTensor", "K"},
};

}  // namespace

Ints Spread(Ints numbers, size_t count) {
  if (numbers.size() == 1) numbers.assign(count, numbers.front());
  return numbers;
}

bool IsChannelLast(const Operation& op) {
  return AttrOr<std::string>(op, "data_format").ends_with('C');
}

void RenameSlots(Operation& op, bool to_theirs) {
  for (const SlotNames& names : kSlotNames) {
    if (op.type != names.op) continue;
    const std::string_view from = to_theirs ? names.ours : names.theirs;
    const std::string_view to = to_theirs ? names.theirs : names.ours;
    if (op.input(from).empty()) continue;
    std::erase_if(op.inputs,
                  [&](const program::Slot& slot) { return slot.name == to; });
    for (program::Slot& slot : op.inputs) {
      if (slot.name == from) slot.name = to;
    }
  }
}

Replacement::Replacement(Block& block, Operation op, Paddle version)
    : op(std::move(op)), version(version), block_(block) {}

void Replacement::Add(std::string type, Slots inputs, Slots outputs,
                      AttrMap attrs) {
  Operation next{.type = std::move(type),
                 .inputs = std::move(inputs),
                 .outputs = std::move(outputs),
                 .attrs = std::move(attrs),
                 .made_at = op.made_at};
  for (const char* name : {"op_role", "op_device", "op_namescope"}) {
    if (const AttrValue* attr = op.attr(name)) {
      next.attrs.insert_or_assign(name, *attr);
    }
  }
  done.push_back(std::move(next));
}

std::string Replacement::In(std::string_view slot) const {
  const std::vector<std::string>& names = op.input(slot);
  return names.empty() ? "" : names.front();
}

std::string Replacement::Out(std::string_view slot) const {
  const std::vector<std::string>& names = op.output(slot);
  return names.empty() ? "" : names.front();
}

TensorType Replacement::TypeOf(const std::string& name) const {
  const Variable* variable = block_.Find(name);
  return variable == nullptr ? TensorType{} : variable->type;
}

size_t Replacement::RankOf(const std::string& name) const {
  return TypeOf(name).dims.size();
}

std::string Replacement::Temporary(const std::string& after, TensorType type) {
  std::string name;
  for (int i = 0; name.empty() || block_.Find(name) != nullptr; ++i) {
    name = base::Concat(after, ".saved_", i);
  }
  block_.AddVariable({.name = name, .type = std::move(type)});
  return name;
}

Slots Replacement::WithShapeBefore(const std::string& x,
                                   const std::string& out) {
  TensorType type = TypeOf(x);
  type.dims.insert(type.dims.begin(), 0);
  return {{"Out", {out}}, {"XShape", {Temporary(out, std::move(type))}}};
}

std::string Replacement::Unsqueeze(const std::string& x, int64_t axis) {
  TensorType type = TypeOf(x);
  type.dims.insert(type.dims.begin() + axis, 1);
  std::string out = Temporary(x, std::move(type));
  Add("unsqueeze2", {{"X", {x}}}, WithShapeBefore(x, out),
      {{"axes", ListAttr({axis})}});
  return out;
}

void Replacement::Squeeze(const std::string& x, int64_t axis,
                          const std::string& out) {
  Add("squeeze2", {{"X", {x}}}, WithShapeBefore(x, out),
      {{"axes", ListAttr({axis})}});
}

void Replacement::AddBias(const std::string& x, const std::string& bias,
                          const std::string& out, int64_t axis) {
  Add("elementwise_add", {{"X", {x}}, {"Y", {bias}}}, {{"Out", {out}}},
      {{"axis", IntAttr(axis)}});
}

bool Replacement::IsUsed(const std::string& name) const {
  for (size_t i = 0; i < block_.num_ops(); ++i) {
    if (block_.op(i).id == op.id) continue;
    for (const program::Slot& slot : block_.op(i).inputs) {
      for (const std::string& argument : slot.arguments) {
        if (argument == name) return true;
      }
    }
  }
  return false;
}

}  // namespace fleet::saved
