// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/backward.h"

#include <algorithm>
#include <utility>

namespace fleet::program {
namespace {

class Backward {
 public:
  Backward(const OpRegistry& registry, Program& program,
           const std::set<std::string>& no_grad)
      : registry_(registry), block_(program.block(0)), no_grad_(no_grad) {}

  Result<std::map<std::string, std::string>> Run(
      const std::vector<BackwardTarget>& targets) {
    num_forward_ = block_.num_ops();
    FindDifferentiable();
    for (const BackwardTarget& target : targets) {
      RETURN_IF_ERROR(Begin(target));
    }
    FindUses(targets);
    for (size_t i = num_forward_; i-- > 0;) {
      RETURN_IF_ERROR(Visit(i));
    }
    // What no operation made: parameters and data.
    std::vector<std::string> left;
    for (const auto& [name, parts] : parts_) left.push_back(name);
    for (const std::string& name : left) Settle(name);
    return std::move(gradients_);
  }

 private:
  bool Stops(const std::string& name) const {
    const Variable* variable = block_.Find(name);
    return variable == nullptr || variable->stop_gradient ||
           no_grad_.contains(name) || !IsFloating(variable->type.dtype);
  }

  // The variables by which a gradient can be asked for: those that do not stop
  // it, and what operations make of them.
  void FindDifferentiable() {
    for (size_t i = 0; i < num_forward_; ++i) {
      const Operation& op = block_.op(i);
      const OpDef* def = registry_.Find(op.type);
      bool any = false;
      for (const Slot& slot : op.inputs) {
        for (const std::string& name : slot.arguments) {
          if (IsMade(name) ? depends_.contains(name) : !Stops(name)) any = true;
        }
      }
      for (const Slot& slot : op.outputs) {
        const int number = def == nullptr ? -1 : def->OutputSlot(slot.name);
        const bool constant = number >= 0 && def->outputs[number].constant;
        for (const std::string& name : slot.arguments) {
          made_.insert(name);
          if (any && !constant && !Stops(name)) depends_.insert(name);
        }
      }
    }
  }

  bool IsMade(const std::string& name) const { return made_.contains(name); }

  bool Wanted(const std::string& name) const {
    return IsMade(name) ? depends_.contains(name) : !Stops(name);
  }

  Status Begin(const BackwardTarget& target) {
    const Variable* variable = block_.Find(target.variable);
    if (variable == nullptr) {
      return NotFound("backward: there is no variable ", target.variable);
    }
    if (!target.gradient.empty()) {
      if (block_.Find(target.gradient) == nullptr) {
        return NotFound("backward: there is no variable ", target.gradient);
      }
      parts_[target.variable].push_back(target.gradient);
      return OkStatus();
    }
    const std::string gradient = NewPart(target.variable);
    Operation ones{.type = "fill_any_like",
                   .inputs = {{"X", {target.variable}}},
                   .outputs = {{"Out", {gradient}}},
                   .attrs = {{"value", {AttrKind::kFloat, 1.0}},
                             {"dtype", {AttrKind::kInt, int64_t{-1}}}}};
    SetRole(ones, OpRole::kBackward);
    Append(std::move(ones));
    return OkStatus();
  }

  // In reverse, the operations that a target depends on.
  void FindUses(const std::vector<BackwardTarget>& targets) {
    std::set<std::string> needed;
    for (const BackwardTarget& target : targets) needed.insert(target.variable);
    on_path_.assign(num_forward_, false);
    for (size_t i = num_forward_; i-- > 0;) {
      const Operation& op = block_.op(i);
      for (const Slot& slot : op.outputs) {
        for (const std::string& name : slot.arguments) {
          if (needed.contains(name) && depends_.contains(name)) {
            on_path_[i] = true;
          }
        }
      }
      if (!on_path_[i]) continue;
      for (const Slot& slot : op.inputs) {
        needed.insert(slot.arguments.begin(), slot.arguments.end());
      }
    }
  }

  // The gradient operation of operation `i`, if it is on the way.
  Status Visit(size_t i) {
    if (!on_path_[i]) return OkStatus();
    const Operation op = block_.op(i);  // appending moves the block's list
    bool any = false;
    for (const Slot& slot : op.outputs) {
      for (const std::string& name : slot.arguments) {
        Settle(name);
        any |= gradients_.contains(name);
      }
    }
    if (!any) return OkStatus();
    const OpDef* def = registry_.Find(op.type);
    if (def == nullptr || !def->grad.exists()) {
      return Unimplemented(op.made_at, op.made_at.empty() ? "" : ": ", op.type,
                           " has no gradient, but ", op.outputs[0].arguments[0],
                           " needs one; set stop_gradient on its inputs if "
                           "none should flow through it");
    }
    Operation grad{
        .type = op.type + "_grad", .attrs = op.attrs, .made_at = op.made_at};
    SetRole(grad, OpRole::kBackward);
    for (const GradSource& use : def->grad.uses) {
      AddUse(op, *def, use, grad);
    }
    bool gives = false;
    for (int slot : def->grad.gives) {
      const std::string& name = def->inputs[slot].name;
      Slot out{name + std::string(kGradSuffix), {}};
      for (const std::string& argument : op.input(name)) {
        const bool wanted = Wanted(argument);
        out.arguments.push_back(wanted ? NewPart(argument) : "@EMPTY@");
        gives |= wanted;
      }
      if (!out.arguments.empty()) grad.outputs.push_back(std::move(out));
    }
    // An output that an operation wrote in place over its input has had its
    // gradient; that of the input is another one.
    for (const Slot& slot : op.outputs) {
      for (const std::string& name : slot.arguments) {
        if (!IsAlsoInput(op, name)) continue;
        gradients_.erase(name);
      }
    }
    if (gives) Append(std::move(grad));
    return OkStatus();
  }

  static bool IsAlsoInput(const Operation& op, const std::string& name) {
    return std::any_of(
        op.inputs.begin(), op.inputs.end(), [&](const Slot& slot) {
          return std::find(slot.arguments.begin(), slot.arguments.end(),
                           name) != slot.arguments.end();
        });
  }

  void AddUse(const Operation& op, const OpDef& def, const GradSource& use,
              Operation& grad) {
    if (use.kind == GradSource::kInput) {
      const std::string& name = def.inputs[use.slot].name;
      if (!op.input(name).empty())
        grad.inputs.push_back({name, op.input(name)});
      return;
    }
    const std::string& name = def.outputs[use.slot].name;
    if (use.kind == GradSource::kOutput) {
      grad.inputs.push_back({name, op.output(name)});
      return;
    }
    Slot slot{name + std::string(kGradSuffix), {}};
    for (const std::string& argument : op.output(name)) {
      slot.arguments.push_back(GradientOrZeros(argument));
    }
    grad.inputs.push_back(std::move(slot));
  }

  // An output that the targets do not depend on has a gradient of zeros.
  std::string GradientOrZeros(const std::string& name) {
    auto found = gradients_.find(name);
    if (found != gradients_.end()) return found->second;
    const std::string zeros = Unused(GradName(name));
    AddGradient(name, zeros);
    Operation fill{.type = "fill_any_like",
                   .inputs = {{"X", {name}}},
                   .outputs = {{"Out", {zeros}}},
                   .attrs = {{"value", {AttrKind::kFloat, 0.0}},
                             {"dtype", {AttrKind::kInt, int64_t{-1}}}}};
    SetRole(fill, OpRole::kBackward);
    Append(std::move(fill));
    return zeros;
  }

  // A new variable for one more part of the gradient of `name`.
  std::string NewPart(const std::string& name) {
    std::vector<std::string>& parts = parts_[name];
    std::string part = GradName(name);
    if (!parts.empty() || block_.FindHere(part) != nullptr) {
      part = Unused(part + "@RENAME@block0@" + std::to_string(parts.size()));
    }
    parts.push_back(part);
    AddGradient(name, part);
    return part;
  }

  std::string Unused(std::string name) const {
    while (block_.FindHere(name) != nullptr) name += "@AGAIN";
    return name;
  }

  void AddGradient(const std::string& name, const std::string& gradient) {
    const Variable* variable = block_.Find(name);
    block_.AddVariable({.name = gradient,
                        .type = variable->type,
                        .lod_level = variable->lod_level});
  }

  // The parts of the gradient of `name` are all there: adds them up.
  void Settle(const std::string& name) {
    auto found = parts_.find(name);
    if (found == parts_.end()) return;
    std::vector<std::string> parts = std::move(found->second);
    parts_.erase(found);
    if (parts.size() == 1) {
      gradients_[name] = parts[0];
      return;
    }
    // The sum gets the plain name, which people ask for.
    const std::string sum = parts[0];
    parts[0] = Unused(sum + "@RENAME@block0@0");
    AddGradient(name, parts[0]);
    Rename(sum, parts[0]);
    gradients_[name] = sum;
    Operation add{.type = "sum",
                  .inputs = {{"X", std::move(parts)}},
                  .outputs = {{"Out", {sum}}}};
    SetRole(add, OpRole::kBackward);
    Append(std::move(add));
  }

  // In the operations that were appended here.
  void Rename(const std::string& from, const std::string& to) {
    for (size_t i = num_forward_; i < block_.num_ops(); ++i) {
      for (Slots* slots : {&block_.op(i).inputs, &block_.op(i).outputs}) {
        for (Slot& slot : *slots) {
          std::replace(slot.arguments.begin(), slot.arguments.end(), from, to);
        }
      }
    }
  }

  void Append(Operation op) { block_.Append(std::move(op)); }

  const OpRegistry& registry_;
  Block& block_;
  const std::set<std::string>& no_grad_;
  size_t num_forward_ = 0;
  std::set<std::string> made_;
  std::set<std::string> depends_;
  std::vector<bool> on_path_;
  std::map<std::string, std::vector<std::string>> parts_;
  std::map<std::string, std::string> gradients_;
};

}  // namespace

std::string GradName(std::string_view variable) {
  return std::string(variable) + std::string(kGradSuffix);
}

OpRole RoleOf(const Operation& op) {
  const AttrValue* role = op.attr(kOpRole);
  const auto* number =
      role == nullptr ? nullptr : std::get_if<int64_t>(&role->value);
  return number == nullptr ? OpRole::kForward : static_cast<OpRole>(*number);
}

void SetRole(Operation& op, OpRole role) {
  op.attrs.insert_or_assign(
      std::string(kOpRole),
      AttrValue{AttrKind::kInt, static_cast<int64_t>(role)});
}

Result<std::map<std::string, std::string>> AppendBackward(
    const OpRegistry& registry, Program& program,
    const std::vector<BackwardTarget>& targets,
    const std::set<std::string>& no_grad) {
  return Backward(registry, program, no_grad).Run(targets);
}

}  // namespace fleet::program
