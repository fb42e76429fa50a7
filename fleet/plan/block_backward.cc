// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/block_backward.h"

#include <algorithm>

#include "fleet/program/control.h"
#include "fleet/program/op_role.h"

namespace fleet::plan {
namespace {

using program::AttrKind;
using program::AttrValue;
using program::Block;
using program::GradName;
using program::GradSource;
using program::kEmptyName;
using program::kGradSuffix;
using program::OpDef;
using program::Operation;
using program::OpRole;
using program::Slot;
using program::Slots;
using program::Variable;
using program::VariableKind;

std::string Where(const Operation& op) {
  return op.made_at.empty() ? op.type : op.made_at + ": " + op.type;
}

}  // namespace

Result<BlockBackward::Gradients> BlockBackward::Run(
    size_t begin, const std::vector<BackwardTarget>& starts) {
  begin_ = begin;
  end_ = from_.num_ops();
  appended_ = &from_ == &to_ ? end_ : 0;
  FindDifferentiable();
  for (const BackwardTarget& start : starts) RETURN_IF_ERROR(Begin(start));
  FindUses(starts);
  for (size_t i = end_; i-- > begin_;) RETURN_IF_ERROR(Visit(i));
  // What no operation made: parameters and data.
  std::vector<std::string> left;
  for (const auto& [name, parts] : parts_) left.push_back(name);
  for (const std::string& name : left) Settle(name);
  return std::move(gradients_);
}

std::set<std::string> BlockBackward::FindDepending(size_t begin) {
  begin_ = begin;
  end_ = from_.num_ops();
  FindDifferentiable();
  std::set<std::string> names;
  for (const auto& [name, versions] : depends_) {
    if (versions.back()) names.insert(name);
  }
  return names;
}

bool BlockBackward::Stops(const std::string& name) const {
  const Variable* variable = from_.Find(name);
  return variable == nullptr || variable->stop_gradient ||
         no_grad_.contains(name) || !IsFloating(variable->type.dtype);
}

bool BlockBackward::WantedFromOutside(const std::string& name) const {
  return !Stops(name) && wants_outer_(name);
}

void BlockBackward::FindDifferentiable() {
  made_.clear();
  depends_.clear();
  for (size_t i = begin_; i < end_; ++i) {
    const Operation& op = from_.op(i);
    const OpDef* def = registry_.Find(op.type);
    bool any = false;
    for (const Slot& slot : op.inputs) {
      for (const std::string& name : slot.arguments) any |= Wanted(name);
    }
    const std::set<std::string> looped =
        op.type == "while" ? DependingOnLoop(op) : std::set<std::string>();
    for (const Slot& slot : op.outputs) {
      const int number = def == nullptr ? -1 : def->OutputSlot(slot.name);
      const bool constant = number >= 0 && def->outputs[number].constant;
      for (const std::string& name : slot.arguments) {
        if (!Counts(name)) continue;
        bool reached = op.type == "while" ? looped.contains(name) : any;
        // The other places of an array stay.
        reached |= IsArray(name) && Wanted(name);
        ++made_[name];
        depends_[name].push_back(reached && !constant && !Stops(name));
      }
    }
  }
}

bool BlockBackward::Counts(const std::string& name) const {
  const Variable* variable = from_.Find(name);
  return name != kEmptyName && (variable == nullptr || !variable->is_parameter);
}

bool BlockBackward::IsMade(const std::string& name) const {
  auto found = made_.find(name);
  return found != made_.end() && found->second > 0;
}

bool BlockBackward::IsArray(const std::string& name) const {
  return records_.arrays.contains(name);
}

bool BlockBackward::Wanted(const std::string& name) const {
  if (!IsMade(name)) {
    const bool empty = IsArray(name) && from_.FindHere(name) != nullptr;
    return !empty && WantedFromOutside(name);
  }
  return depends_.at(name)[made_.at(name) - 1];
}

Status BlockBackward::Begin(const BackwardTarget& target) {
  if (from_.Find(target.variable) == nullptr) {
    return NotFound("backward: there is no variable ", target.variable);
  }
  if (!target.gradient.empty()) {
    if (to_.Find(target.gradient) == nullptr) {
      return NotFound("backward: there is no variable ", target.gradient);
    }
    parts_[target.variable].push_back(target.gradient);
    return OkStatus();
  }
  Append(Fill(target.variable, NewPart(target.variable), 1.0));
  return OkStatus();
}

void BlockBackward::FindUses(const std::vector<BackwardTarget>& targets) {
  std::set<std::string> needed;
  for (const BackwardTarget& target : targets) needed.insert(target.variable);
  for (const auto& [name, gradients] : records_.arrays) needed.insert(name);
  on_path_.assign(end_, false);
  for (size_t i = end_; i-- > begin_;) {
    const Operation& op = from_.op(i);
    for (const Slot& slot : op.outputs) {
      for (const std::string& name : slot.arguments) {
        if (!Counts(name)) continue;
        const std::vector<bool>& versions = depends_.at(name);
        const bool any =
            std::find(versions.begin(), versions.end(), true) != versions.end();
        if (needed.contains(name) && any) on_path_[i] = true;
      }
    }
    if (!on_path_[i]) continue;
    for (const Slot& slot : op.inputs) {
      needed.insert(slot.arguments.begin(), slot.arguments.end());
    }
  }
}

Status BlockBackward::Visit(size_t i) {
  Operation& op = from_.op(i);
  bool any = false;
  for (const Slot& slot : op.outputs) {
    for (const std::string& name : slot.arguments) {
      if (!Counts(name)) continue;
      Settle(name);
      any |= gradients_.contains(name) || IsArray(name);
    }
  }
  if (!any || !on_path_[i]) {
    TakeGradients(op);
    return OkStatus();
  }
  if (op.type == "conditional_block") return VisitConditional(op);
  if (op.type == "while") return VisitLoop(i);
  if (op.type == "select_input") return VisitSelect(op);
  if (op.type == "read_from_array") return VisitRead(i);
  if (op.type == "write_to_array") return VisitWrite(i);
  const OpDef* def = registry_.Find(op.type);
  if (def == nullptr || !def->grad.exists()) return NoGradient(op);
  Operation grad{
      .type = op.type + "_grad", .attrs = op.attrs, .made_at = op.made_at};
  for (const GradSource& use : def->grad.uses) {
    RETURN_IF_ERROR(CheckUse(op, *def, use));
    AddUse(op, *def, use, grad);
  }
  TakeGradients(op);
  bool gives = false;
  for (int slot : def->grad.gives) {
    const std::string& name = def->inputs[slot].name;
    Slot out{name + std::string(kGradSuffix), {}};
    for (const std::string& argument : op.input(name)) {
      const bool wanted = Wanted(argument);
      out.arguments.push_back(wanted ? NewPart(argument)
                                     : std::string(kEmptyName));
      if (wanted && GivesRows(op, name)) {
        to_.Find(out.arguments.back())->kind = VariableKind::kSelectedRows;
      }
      gives |= wanted;
    }
    if (!out.arguments.empty()) grad.outputs.push_back(std::move(out));
  }
  if (gives) Append(std::move(grad));
  return OkStatus();
}

bool BlockBackward::GivesRows(const Operation& op, const std::string& slot) {
  const AttrValue* sparse = op.attr("is_sparse");
  return op.type.starts_with("lookup_table") && slot == "W" &&
         sparse != nullptr && std::get<bool>(sparse->value);
}

Status BlockBackward::NoGradient(const Operation& op) const {
  return Unimplemented(Where(op), " has no gradient, but ",
                       op.outputs[0].arguments[0],
                       " needs one; set stop_gradient on its inputs if none "
                       "should flow through it");
}

BlockBackward::Gradients BlockBackward::TakeGradients(const Operation& op) {
  Gradients taken;
  for (const Slot& slot : op.outputs) {
    for (const std::string& name : slot.arguments) {
      auto found = gradients_.find(name);
      if (found == gradients_.end() || !Counts(name)) continue;
      taken.emplace(*found);
      if (IsIn(op.inputs, name) || made_[name] > 1) gradients_.erase(found);
    }
  }
  for (const Slot& slot : op.outputs) {
    for (const std::string& name : slot.arguments) {
      if (Counts(name)) --made_[name];
    }
  }
  return taken;
}

bool BlockBackward::IsIn(const Slots& slots, const std::string& name) {
  return std::any_of(slots.begin(), slots.end(), [&](const Slot& slot) {
    return std::find(slot.arguments.begin(), slot.arguments.end(), name) !=
           slot.arguments.end();
  });
}

Status BlockBackward::CheckUse(const Operation& op, const OpDef& def,
                               const GradSource& use) const {
  if (use.kind == GradSource::kOutputGrad) return OkStatus();
  const bool is_input = use.kind == GradSource::kInput;
  const std::vector<std::string>& names =
      is_input ? op.input(def.inputs[use.slot].name)
               : op.output(def.outputs[use.slot].name);
  for (const std::string& name : names) {
    if (IsUnchanged(op, name, is_input)) continue;
    return Unimplemented(
        Where(op), ": its gradient needs the value that the variable ", name,
        " had then, but a later operation overwrites it; give that one's "
        "result another name");
  }
  return OkStatus();
}

bool BlockBackward::IsUnchanged(const Operation& op, const std::string& name,
                                bool is_input) const {
  auto found = made_.find(name);
  if (found == made_.end()) return true;
  int version = found->second;
  if (is_input && IsIn(op.outputs, name)) --version;
  const auto last = static_cast<int>(depends_.at(name).size());
  const Variable* variable = from_.Find(name);
  return version == last || variable == nullptr || variable->persistable;
}

void BlockBackward::AddUse(Operation& op, const OpDef& def,
                           const GradSource& use, Operation& grad) {
  if (use.kind == GradSource::kInput) {
    const std::string& name = def.inputs[use.slot].name;
    if (!op.input(name).empty()) grad.inputs.push_back({name, op.input(name)});
    return;
  }
  const std::string& name = def.outputs[use.slot].name;
  if (use.kind == GradSource::kOutput) {
    if (op.output(name).empty() && !def.outputs[use.slot].variadic) {
      AddOutput(op, name);
    }
    grad.inputs.push_back({name, op.output(name)});
    return;
  }
  Slot slot{name + std::string(kGradSuffix), {}};
  for (const std::string& argument : op.output(name)) {
    slot.arguments.push_back(GradientOrZeros(argument));
  }
  grad.inputs.push_back(std::move(slot));
}

void BlockBackward::AddOutput(Operation& op, const std::string& slot) {
  const std::string name =
      Unused(op.outputs[0].arguments[0] + "@" + slot, from_);
  std::erase_if(op.outputs, [&](const Slot& s) { return s.name == slot; });
  op.outputs.push_back({slot, {name}});
  from_.AddVariable({.name = name, .stop_gradient = true});
  // It was possible before, so it is now; its types are of no consequence.
  static_cast<void>(from_.InferTypes(registry_, op));
}

std::string BlockBackward::GradientOrZeros(const std::string& name) {
  auto found = gradients_.find(name);
  if (found != gradients_.end()) return found->second;
  const std::string zeros = Unused(PlainName(name), to_);
  AddGradient(name, zeros);
  Append(Fill(name, zeros, 0.0));
  return zeros;
}

std::string BlockBackward::PlainName(const std::string& name) const {
  std::string plain = GradName(name);
  if (&from_ != &to_) plain += "@block" + std::to_string(to_.index());
  return plain;
}

std::string BlockBackward::NewPart(const std::string& name) {
  std::vector<std::string>& parts = parts_[name];
  std::string part = PlainName(name);
  if (!parts.empty() || to_.Find(part) != nullptr) {
    part = Unused(part + "@RENAME@block" + std::to_string(to_.index()) + "@" +
                      std::to_string(parts.size()),
                  to_);
  }
  parts.push_back(part);
  own_.insert(part);
  AddGradient(name, part);
  return part;
}

std::string BlockBackward::Unused(std::string name, const Block& block) {
  while (block.Find(name) != nullptr) name += "@AGAIN";
  return name;
}

void BlockBackward::AddGradient(const std::string& name,
                                const std::string& gradient) {
  const Variable* variable = from_.Find(name);
  to_.AddVariable({.name = gradient,
                   .type = variable->type,
                   .lod_level = variable->lod_level,
                   .lod = variable->lod});
}

void BlockBackward::Settle(const std::string& name) {
  auto found = parts_.find(name);
  if (found == parts_.end()) return;
  std::vector<std::string> parts = std::move(found->second);
  parts_.erase(found);
  if (parts.size() == 1) {
    gradients_[name] = parts[0];
    return;
  }
  // The sum gets the plain name, which people ask for.
  std::string sum = PlainName(name);
  auto plain = std::find(parts.begin(), parts.end(), sum);
  if (plain != parts.end() && own_.contains(sum)) {
    *plain =
        Unused(sum + "@RENAME@block" + std::to_string(to_.index()) + "@0", to_);
    AddGradient(name, *plain);
    to_.Find(*plain)->kind = to_.Find(sum)->kind;
    RenameIn(program_, to_, appended_, to_.num_ops(), sum, *plain);
  } else {
    sum = Unused(sum + "@SUM", to_);
    AddGradient(name, sum);
  }
  const bool rows =
      std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
        return to_.Find(part)->kind == VariableKind::kSelectedRows;
      });
  to_.Find(sum)->kind =
      rows ? VariableKind::kSelectedRows : VariableKind::kTensor;
  gradients_[name] = sum;
  Append({.type = "sum",
          .inputs = {{"X", std::move(parts)}},
          .outputs = {{"Out", {sum}}}});
}

void BlockBackward::AppendTo(Block& block, Operation op) {
  SetRole(op, OpRole::kBackward);
  block.Append(std::move(op));
}

Operation BlockBackward::Fill(const std::string& like, const std::string& out,
                              double value) {
  return {.type = "fill_any_like",
          .inputs = {{"X", {like}}},
          .outputs = {{"Out", {out}}},
          .attrs = {{"value", {AttrKind::kFloat, value}},
                    {"dtype", {AttrKind::kInt, int64_t{-1}}}}};
}

Operation BlockBackward::Assign(const std::string& from,
                                const std::string& to) {
  return {
      .type = "assign", .inputs = {{"X", {from}}}, .outputs = {{"Out", {to}}}};
}

}  // namespace fleet::plan
