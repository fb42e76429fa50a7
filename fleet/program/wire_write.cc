// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>
#include <vector>

#include "fleet/program/lod.h"
#include "fleet/program/wire.h"
#include "fleet/program/wire_fields.h"

namespace fleet::program {
namespace {

using protozero::pbf_writer;

std::string TensorDesc(const TensorType& type) {
  std::string bytes;
  pbf_writer w(bytes);
  w.add_int32(1, static_cast<int>(type.dtype));
  for (int64_t dim : type.dims) w.add_int64(2, dim);
  return bytes;
}

std::string LodTensorDesc(const Variable& variable) {
  std::string bytes;
  pbf_writer w(bytes);
  w.add_message(1, TensorDesc(variable.type));
  w.add_int32(2, variable.lod_level);
  return bytes;
}

std::string VarType(const Variable& variable) {
  std::string bytes;
  pbf_writer w(bytes);
  w.add_int32(Number(VarTypeField::kKind), static_cast<int>(variable.kind));
  switch (variable.kind) {
    case VariableKind::kTensor:
      w.add_message(Number(VarTypeField::kTensor), LodTensorDesc(variable));
      break;
    case VariableKind::kSelectedRows:
      w.add_message(Number(VarTypeField::kSelectedRows),
                    TensorDesc(variable.type));
      break;
    case VariableKind::kTensorArray:
      w.add_message(Number(VarTypeField::kTensorArray),
                    LodTensorDesc(variable));
      break;
    default:
      break;
  }
  return bytes;
}

std::string Serialize(const Variable& variable) {
  std::string bytes;
  pbf_writer w(bytes);
  w.add_string(Number(VarField::kName), variable.name);
  w.add_message(Number(VarField::kType), VarType(variable));
  w.add_bool(Number(VarField::kPersistable), variable.persistable);
  if (variable.is_data) w.add_bool(Number(VarField::kNeedCheckFeed), true);
  if (variable.is_parameter) w.add_bool(Number(VarField::kIsParameter), true);
  if (variable.stop_gradient) w.add_bool(Number(VarField::kStopGradient), true);
  return bytes;
}

// Repeated fields are written one by one, as Paddle's proto2 does.
std::string Serialize(const std::string& name, const AttrValue& attr) {
  std::string bytes;
  pbf_writer w(bytes);
  w.add_string(Number(AttrField::kName), name);
  w.add_int32(Number(AttrField::kKind), static_cast<int>(attr.kind));
  auto whole = [&] { return std::get<int64_t>(attr.value); };
  auto real = [&] { return std::get<double>(attr.value); };
  auto wholes = [&] { return std::get<std::vector<int64_t>>(attr.value); };
  auto reals = [&] { return std::get<std::vector<double>>(attr.value); };
  switch (attr.kind) {
    case AttrKind::kInt:
      w.add_int32(Number(AttrField::kInt), static_cast<int32_t>(whole()));
      break;
    case AttrKind::kFloat:
      w.add_float(Number(AttrField::kFloat), static_cast<float>(real()));
      break;
    case AttrKind::kString:
      w.add_string(Number(AttrField::kString),
                   std::get<std::string>(attr.value));
      break;
    case AttrKind::kInts:
      for (int64_t v : wholes()) {
        w.add_int32(Number(AttrField::kInts), static_cast<int32_t>(v));
      }
      break;
    case AttrKind::kFloats:
      for (double v : reals()) {
        w.add_float(Number(AttrField::kFloats), static_cast<float>(v));
      }
      break;
    case AttrKind::kStrings:
      for (const std::string& v :
           std::get<std::vector<std::string>>(attr.value)) {
        w.add_string(Number(AttrField::kStrings), v);
      }
      break;
    case AttrKind::kBool:
      w.add_bool(Number(AttrField::kBool), std::get<bool>(attr.value));
      break;
    case AttrKind::kBools:
      for (bool v : std::get<std::vector<bool>>(attr.value)) {
        w.add_bool(Number(AttrField::kBools), v);
      }
      break;
    case AttrKind::kBlock:
      w.add_int32(Number(AttrField::kBlock), static_cast<int32_t>(whole()));
      break;
    case AttrKind::kLong:
      w.add_int64(Number(AttrField::kLong), whole());
      break;
    case AttrKind::kBlocks:
      for (int64_t v : wholes()) {
        w.add_int32(Number(AttrField::kBlocks), static_cast<int32_t>(v));
      }
      break;
    case AttrKind::kLongs:
      for (int64_t v : wholes()) w.add_int64(Number(AttrField::kLongs), v);
      break;
    case AttrKind::kFloat64s:
      for (double v : reals()) w.add_double(Number(AttrField::kFloat64s), v);
      break;
    case AttrKind::kFloat64:
      w.add_double(Number(AttrField::kFloat64), real());
      break;
  }
  return bytes;
}

std::string Serialize(const Slot& slot) {
  std::string bytes;
  pbf_writer w(bytes);
  w.add_string(1, slot.name);
  for (const std::string& argument : slot.arguments) w.add_string(2, argument);
  return bytes;
}

std::string Serialize(const Operation& op) {
  std::string bytes;
  pbf_writer w(bytes);
  for (const Slot& slot : op.inputs) {
    if (IsLodSlot(slot.name)) continue;
    w.add_message(Number(OpField::kInputs), Serialize(slot));
  }
  for (const Slot& slot : op.outputs) {
    if (IsLodSlot(slot.name)) continue;
    w.add_message(Number(OpField::kOutputs), Serialize(slot));
  }
  w.add_string(Number(OpField::kType), op.type);
  for (const auto& [name, attr] : op.attrs) {
    w.add_message(Number(OpField::kAttrs), Serialize(name, attr));
  }
  return bytes;
}

std::string Serialize(const Block& block) {
  std::string bytes;
  pbf_writer w(bytes);
  w.add_int32(Number(BlockField::kIndex), block.index());
  w.add_int32(Number(BlockField::kParent), block.parent());
  std::set<std::string> offsets;
  for (const Variable* variable : block.variables()) {
    offsets.insert(variable->lod);
  }
  for (const Variable* variable : block.variables()) {
    if (offsets.contains(variable->name)) continue;
    w.add_message(Number(BlockField::kVars), Serialize(*variable));
  }
  for (size_t i = 0; i < block.num_ops(); ++i) {
    w.add_message(Number(BlockField::kOps), Serialize(block.op(i)));
  }
  w.add_int32(Number(BlockField::kForwardBlock), block.forward_block());
  return bytes;
}

}  // namespace

std::string Serialize(const Program& program) {
  std::string bytes;
  pbf_writer w(bytes);
  for (size_t b = 0; b < program.num_blocks(); ++b) {
    w.add_message(Number(ProgramField::kBlocks), Serialize(program.block(b)));
  }
  std::string version;
  pbf_writer(version).add_int64(1, 0);
  w.add_message(Number(ProgramField::kVersion), version);
  return bytes;
}

std::string Serialize(const TensorType& type) { return TensorDesc(type); }

}  // namespace fleet::program
