// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/kernel.h"

#include "fleet/base/check.h"

namespace fleet::ops {
namespace {

using program::AttrDef;
using program::AttrType;
using program::GradSource;
using program::OpDef;
using program::SlotDef;

char Letter(const SlotDef& slot) { return slot.variadic ? 'l' : 't'; }

char Letter(AttrType type) {
  switch (type) {
    case AttrType::kBool:
      return 'b';
    case AttrType::kInt:
      return 'i';
    case AttrType::kFloat:
      return 'f';
    case AttrType::kString:
      return 's';
    case AttrType::kInts:
      return 'I';
    case AttrType::kFloats:
      return 'F';
    case AttrType::kDType:
      return 'd';
  }
  return '?';
}

KernelSignature AttrSignature(const OpDef& def) {
  KernelSignature text;
  for (const AttrDef& attr : def.attrs) text += Letter(attr.type);
  return text;
}

KernelSignature ForwardSignature(const OpDef& def) {
  KernelSignature text;
  for (const SlotDef& slot : def.inputs) text += Letter(slot);
  return text + AttrSignature(def);
}

KernelSignature BackwardSignature(const OpDef& def) {
  KernelSignature text;
  for (const GradSource& use : def.grad.uses) {
    text += Letter(use.kind == GradSource::kInput ? def.inputs[use.slot]
                                                  : def.outputs[use.slot]);
  }
  return text + AttrSignature(def);
}

}  // namespace

const at::Tensor kernel_internal::ArgReader::kAbsent;

at::ScalarType ToScalarType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return at::kBool;
    case DType::kInt16:
      return at::kShort;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt64:
      return at::kLong;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kUint8:
      return at::kByte;
    case DType::kInt8:
      return at::kChar;
    case DType::kBfloat16:
      return at::kBFloat16;
    case DType::kComplex64:
      return at::kComplexFloat;
    case DType::kComplex128:
      return at::kComplexDouble;
    case DType::kNone:
      break;
  }
  TORCH_CHECK(false, "no element type is given");
  return at::kFloat;
}

DType ToDType(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return DType::kBool;
    case at::kShort:
      return DType::kInt16;
    case at::kInt:
      return DType::kInt32;
    case at::kLong:
      return DType::kInt64;
    case at::kHalf:
      return DType::kFloat16;
    case at::kFloat:
      return DType::kFloat32;
    case at::kDouble:
      return DType::kFloat64;
    case at::kByte:
      return DType::kUint8;
    case at::kChar:
      return DType::kInt8;
    case at::kBFloat16:
      return DType::kBfloat16;
    case at::kComplexFloat:
      return DType::kComplex64;
    case at::kComplexDouble:
      return DType::kComplex128;
    default:
      return DType::kNone;
  }
}

void KernelTable::AddChecked(const char* name, KernelFn forward,
                             const KernelSignature& forward_signature,
                             KernelFn backward,
                             const KernelSignature& backward_signature) {
  const OpDef* def = registry_.Find(name);
  FLEET_CHECK(def != nullptr, "kernel for undefined op ", name);
  FLEET_CHECK(forward_signature == ForwardSignature(*def), name,
              ": forward kernel takes ", forward_signature,
              ", the definition says ", ForwardSignature(*def));
  FLEET_CHECK((backward != nullptr) == def->grad.exists(), name,
              ": gradient rule and backward kernel do not go together");
  if (backward != nullptr) {
    FLEET_CHECK(backward_signature == BackwardSignature(*def), name,
                ": backward kernel takes ", backward_signature,
                ", the definition says ", BackwardSignature(*def));
  }
  bool added = ops_.emplace(name, Op{def, forward, backward}).second;
  FLEET_CHECK(added, "kernel added twice: ", name);
}

void KernelTable::OnMemory(std::string_view name, BareForm forward,
                           BareForm backward, LayoutRule layout) {
  auto it = ops_.find(name);
  FLEET_CHECK(it != ops_.end(), "a form over bare memory of an op without ",
              "kernel: ", name);
  Op& op = it->second;
  FLEET_CHECK(op.bare_forward == nullptr && op.bare_backward == nullptr,
              "forms added twice: ", name);
  FLEET_CHECK(backward == nullptr || op.backward != nullptr, name,
              " has no backward kernel");
  op.bare_forward = forward;
  op.bare_backward = backward;
  op.layout = layout;
}

const Op* KernelTable::Find(std::string_view name) const {
  auto it = ops_.find(name);
  return it == ops_.end() ? nullptr : &it->second;
}

std::vector<const Op*> KernelTable::All() const {
  std::vector<const Op*> all;
  for (const auto& [name, op] : ops_) all.push_back(&op);
  return all;
}

}  // namespace fleet::ops
