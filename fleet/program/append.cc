// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/append.h"

#include <utility>
#include <variant>

#include "fleet/program/lod.h"
#include "fleet/program/op_role.h"

namespace fleet::program {
namespace {

// How many outputs there are in all, by the shape rule.
Result<size_t> CountOutputs(const Block& block, const OpCall& call) {
  std::vector<std::vector<TensorType>> types;
  for (const std::vector<std::string>& names : call.inputs) {
    types.emplace_back();
    for (const std::string& name : names) {
      const Variable* variable = block.Find(name);
      if (variable == nullptr) {
        return InvalidArgument(call.def.name, ": variable ", name,
                               " belongs to another program");
      }
      types.back().push_back(variable->type);
    }
  }
  const OpTypes op(call.def, std::move(types), call.attrs);
  ASSIGN_OR_RETURN(std::vector<TensorType> outputs, call.def.InferTypes(op));
  return outputs.size();
}

Result<Slots> NameOutputs(const Block& block, const OpCall& call,
                          const AppendOptions& options,
                          const NameMaker& new_name) {
  const std::vector<SlotDef>& slots = call.def.outputs;
  size_t count = slots.size();
  for (const SlotDef& slot : slots) {
    if (!slot.variadic) continue;
    ASSIGN_OR_RETURN(count, CountOutputs(block, call));
  }
  const std::string owner =
      options.owner.empty() ? new_name(call.def.name) : options.owner;
  Slots outputs;
  size_t next = 0;
  for (const SlotDef& slot : slots) {
    Slot out{slot.name, {}};
    const size_t end =
        slot.variadic ? next + count - (slots.size() - 1) : next + 1;
    for (; next < end; ++next) {
      out.arguments.push_back(next < options.outputs.size()
                                  ? options.outputs[next]
                                  : new_name(owner + ".tmp"));
    }
    outputs.push_back(std::move(out));
  }
  return outputs;
}

}  // namespace

Status AppendOperation(const OpRegistry& registry, Block& block, Operation op,
                       const AppendOptions& options) {
  const auto mark = [&op](std::string_view name, AttrValue value) {
    op.attrs.try_emplace(std::string(name), std::move(value));
  };
  if (options.role != 0) mark(kOpRole, {AttrKind::kInt, options.role});
  if (!options.device.empty()) {
    mark("op_device", {AttrKind::kString, options.device});
  }
  if (!options.name_scope.empty()) {
    mark("op_namescope", {AttrKind::kString, options.name_scope});
  }
  if (op.made_at.empty()) op.made_at = options.made_at;
  if (registry.Find(op.type) == nullptr) {
    block.Append(std::move(op));
    return OkStatus();
  }
  RETURN_IF_ERROR(CompleteLod(registry, block, op));
  const Operation& added = block.Append(std::move(op));
  Status status = block.InferTypes(registry, added);
  if (!status.ok()) block.Remove(block.num_ops() - 1, block.num_ops());
  return status;
}

Result<Slots> AppendCall(const OpRegistry& registry, Program& program,
                         int block, OpCall call, const AppendOptions& options,
                         const NameMaker& new_name) {
  const OpDef& def = call.def;
  Operation op{.type = def.name};
  for (size_t i = 0; i < def.attrs.size(); ++i) {
    const AttrDef& attr = def.attrs[i];
    if (attr.name == "seed" && call.attrs[i] == Attr(int64_t{0})) {
      call.attrs[i] = program.random_seed;
    }
    op.attrs[attr.name] = ToAttrValue(attr, call.attrs[i]);
  }
  ASSIGN_OR_RETURN(Slots outputs,
                   NameOutputs(program.block(block), call, options, new_name));
  op.outputs = outputs;
  for (size_t i = 0; i < def.inputs.size(); ++i) {
    if (call.inputs[i].empty()) continue;
    op.inputs.push_back({def.inputs[i].name, std::move(call.inputs[i])});
  }
  RETURN_IF_ERROR(
      AppendOperation(registry, program.block(block), std::move(op), options));
  return outputs;
}

}  // namespace fleet::program
