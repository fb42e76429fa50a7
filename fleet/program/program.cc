// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/program.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "fleet/program/lod.h"

namespace fleet::program {
namespace {

const std::vector<std::string>& Arguments(const Slots& slots,
                                          std::string_view name) {
  static const std::vector<std::string> none;
  for (const Slot& slot : slots) {
    if (slot.name == name) return slot.arguments;
  }
  return none;
}

// The value of the wire as the type that a definition asks for. A list on the
// wire may be empty where the definition has another kind of list, and whole
// numbers stand for floating ones: older programs say 1 for 1.0.
bool Convert(AttrType type, const AttrValue& from, Attr& to) {
  const auto* whole = std::get_if<int64_t>(&from.value);
  const auto* real = std::get_if<double>(&from.value);
  const auto* text = std::get_if<std::string>(&from.value);
  const auto* flag = std::get_if<bool>(&from.value);
  const auto* wholes = std::get_if<std::vector<int64_t>>(&from.value);
  const auto* reals = std::get_if<std::vector<double>>(&from.value);
  switch (type) {
    case AttrType::kBool:
      if (flag != nullptr) return to = *flag, true;
      if (whole != nullptr) return to = *whole != 0, true;
      return false;
    case AttrType::kInt:
    case AttrType::kDType:
      if (whole != nullptr) return to = *whole, true;
      if (flag != nullptr) return to = int64_t{*flag}, true;
      return false;
    case AttrType::kFloat:
      if (real != nullptr) return to = *real, true;
      if (whole != nullptr) return to = static_cast<double>(*whole), true;
      return false;
    case AttrType::kString:
      return text != nullptr && (to = *text, true);
    case AttrType::kInts:
      if (wholes != nullptr) return to = *wholes, true;
      if (whole != nullptr) return to = std::vector<int64_t>{*whole}, true;
      return reals != nullptr && reals->empty() &&
             (to = std::vector<int64_t>(), true);
    case AttrType::kFloats:
      if (reals != nullptr) return to = *reals, true;
      if (real != nullptr) return to = std::vector<double>{*real}, true;
      if (wholes == nullptr) return false;
      return to = std::vector<double>(wholes->begin(), wholes->end()), true;
  }
  return false;
}

std::string Where(const Operation& op) {
  return op.made_at.empty() ? op.type : op.made_at + ": " + op.type;
}

}  // namespace

const std::vector<std::string>& Operation::input(std::string_view slot) const {
  return Arguments(inputs, slot);
}

const std::vector<std::string>& Operation::output(std::string_view slot) const {
  return Arguments(outputs, slot);
}

const AttrValue* Operation::attr(std::string_view name) const {
  auto found = attrs.find(name);
  return found == attrs.end() ? nullptr : &found->second;
}

Result<Attrs> ResolveAttrs(const OpDef& def, const Operation& op) {
  Attrs attrs = def.DefaultAttrs();
  for (size_t i = 0; i < def.attrs.size(); ++i) {
    const AttrDef& attr = def.attrs[i];
    const AttrValue* value = op.attr(attr.name);
    if (value == nullptr) {
      if (attr.required) {
        return InvalidArgument(Where(op), ": attribute ", attr.name,
                               " is missing");
      }
    } else if (!Convert(attr.type, *value, attrs[i])) {
      return InvalidArgument(Where(op), ": attribute ", attr.name,
                             " has the wrong type (number ",
                             static_cast<int>(value->kind), " of the wire)");
    }
  }
  return attrs;
}

AttrValue ToAttrValue(const AttrDef& def, const Attr& value) {
  switch (def.type) {
    case AttrType::kBool:
      return {AttrKind::kBool, std::get<bool>(value)};
    case AttrType::kInt:
    case AttrType::kDType:
      return {AttrKind::kInt, std::get<int64_t>(value)};
    case AttrType::kFloat:
      return {AttrKind::kFloat, std::get<double>(value)};
    case AttrType::kString:
      return {AttrKind::kString, std::get<std::string>(value)};
    case AttrType::kInts:
      return {AttrKind::kInts, std::get<std::vector<int64_t>>(value)};
    case AttrType::kFloats:
      return {AttrKind::kFloats, std::get<std::vector<double>>(value)};
  }
  return {};
}

// ---- Block

Variable& Block::AddVariable(Variable variable) {
  program_.Touch();
  std::unique_ptr<Variable>& place = variables_[variable.name];
  if (place == nullptr) {
    place = std::make_unique<Variable>(std::move(variable));
    order_.push_back(place.get());
  } else {
    *place = std::move(variable);
  }
  return *place;
}

Variable* Block::FindHere(std::string_view name) {
  auto found = variables_.find(name);
  return found == variables_.end() ? nullptr : found->second.get();
}

const Variable* Block::FindHere(std::string_view name) const {
  return const_cast<Block*>(this)->FindHere(name);
}

Variable* Block::Find(std::string_view name) {
  for (Block* block = this;; block = &program_.block(block->parent_)) {
    Variable* found = block->FindHere(name);
    if (found != nullptr || block->parent_ < 0) return found;
  }
}

const Variable* Block::Find(std::string_view name) const {
  return const_cast<Block*>(this)->Find(name);
}

void Block::RemoveVariable(std::string_view name) {
  auto found = variables_.find(name);
  if (found == variables_.end()) return;
  program_.Touch();
  std::erase(order_, found->second.get());
  variables_.erase(found);
}

std::vector<const Variable*> Block::variables() const { return order_; }

Operation& Block::Insert(size_t at, Operation op) {
  FLEET_CHECK(at <= ops_.size());
  program_.Touch();
  op.id = program_.NextOpId();
  auto place = ops_.insert(ops_.begin() + static_cast<ptrdiff_t>(at),
                           std::make_unique<Operation>(std::move(op)));
  return **place;
}

void Block::Remove(size_t begin, size_t end) {
  FLEET_CHECK(begin <= end && end <= ops_.size());
  program_.Touch();
  ops_.erase(ops_.begin() + static_cast<ptrdiff_t>(begin),
             ops_.begin() + static_cast<ptrdiff_t>(end));
}

Status Block::InferTypes(const OpRegistry& registry, const Operation& op) {
  const OpDef* def = registry.Find(op.type);
  if (def == nullptr) return NotFound(Where(op), ": there is no such op");
  ASSIGN_OR_RETURN(Attrs attrs, ResolveAttrs(*def, op));
  std::vector<std::vector<TensorType>> inputs(def->inputs.size());
  for (size_t slot = 0; slot < inputs.size(); ++slot) {
    for (const std::string& name : op.input(def->inputs[slot].name)) {
      const Variable* variable = Find(name);
      if (variable == nullptr) {
        return InvalidArgument(Where(op), ": there is no variable ", name);
      }
      inputs[slot].push_back(variable->type);
    }
    if (inputs[slot].empty() && !def->inputs[slot].optional &&
        !def->inputs[slot].variadic) {
      return InvalidArgument(Where(op), ": input ", def->inputs[slot].name,
                             " is missing");
    }
  }
  if (def->shape == nullptr) return OkStatus();
  OpTypes types(*def, std::move(inputs), attrs);
  Result<std::vector<TensorType>> inferred = def->InferTypes(types);
  if (!inferred.ok()) {
    return op.made_at.empty() ? inferred.status()
                              : inferred.status().WithContext(op.made_at);
  }
  // Flat, in slot order; a variadic slot has as many as the op names.
  size_t next = 0;
  for (const SlotDef& slot : def->outputs) {
    const std::vector<std::string>& names = op.output(slot.name);
    const size_t count = slot.variadic ? names.size() : 1;
    for (size_t i = 0; i < count; ++i, ++next) {
      if (i >= names.size()) continue;  // an output that nobody asked for
      if (next >= inferred->size()) {
        return InvalidArgument(Where(op), ": ", slot.name, " has ",
                               names.size(), " outputs, which are too many");
      }
      Variable* variable = Find(names[i]);
      if (variable == nullptr) {
        AddVariable({.name = names[i], .type = (*inferred)[next]});
      } else if (!variable->persistable) {
        variable->type = (*inferred)[next];
      }
    }
  }
  PassLodOn(registry, *this, op);
  return OkStatus();
}

// ---- Program

namespace {

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

Program::Program() : id_(NextId()) {
  blocks_.push_back(std::make_unique<Block>(*this, 0, -1));
}

Block& Program::AddBlock(int parent) {
  Touch();
  const int index = static_cast<int>(blocks_.size());
  blocks_.push_back(std::make_unique<Block>(*this, index, parent));
  return *blocks_.back();
}

std::unique_ptr<Program> Program::Clone() const {
  auto copy = std::make_unique<Program>();
  copy->random_seed = random_seed;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const Block& from = *blocks_[b];
    Block& to = b == 0 ? copy->block(0) : copy->AddBlock(from.parent());
    to.set_forward_block(from.forward_block());
    for (const Variable* variable : from.variables()) to.AddVariable(*variable);
    for (size_t i = 0; i < from.num_ops(); ++i) {
      to.Append(from.op(i)).id = from.op(i).id;
    }
  }
  copy->last_op_id_ = last_op_id_;
  copy->version_ = version_;
  return copy;
}

}  // namespace fleet::program
