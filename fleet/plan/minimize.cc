// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/minimize.h"

#include <algorithm>
#include <map>
#include <utility>

#include "fleet/plan/backward.h"
#include "fleet/plan/recompute.h"
#include "fleet/plan/update_ops.h"
#include "fleet/program/op_role.h"
#include "fleet/program/shape_rules.h"

namespace fleet::plan {

using program::Block;
using program::Builder;
using program::DType;
using program::Operation;
using program::OpRole;
using program::ParamAttr;
using program::Scope;
using program::Value;
using program::Variable;

namespace {

// Marks the operation that makes `loss`, so that others find where forward
// ends.
void MarkLoss(Block& block, const std::string& loss) {
  for (size_t i = block.num_ops(); i > 0; --i) {
    Operation& op = block.op(i - 1);
    for (const program::Slot& slot : op.outputs) {
      if (std::ranges::count(slot.arguments, loss) == 0) continue;
      return SetRole(op, OpRole::kLoss);
    }
  }
}

// ---- clipping

bool IsClipped(const Builder& b, const Value& parameter) {
  const ParamAttr* attr = b.attr_of(parameter.name());
  return attr == nullptr || attr->need_clip;
}

// The gradient with each row once: one that occurs twice counts with its sum.
Value Merged(Builder& b, const Value& gradient) {
  const Variable* variable = b.block().Find(gradient.name());
  const bool rows = variable != nullptr &&
                    variable->kind == program::VariableKind::kSelectedRows;
  return rows ? b.MergeSelectedRows(gradient) : gradient;
}

// What gradients are multiplied by so that their norm is at most `norm`.
Value FactorOf(Builder& b, const Value& squares, double norm, DType dtype) {
  const Value limit =
      b.FillConstant({.shape = {1}, .value = norm, .dtype = dtype});
  const Value length = b.ElementwiseMax(b.Sqrt(squares), limit);
  return b.ElementwiseDiv(limit, length);
}

void ClipAll(Builder& b, const Clip& clip, Gradients& gradients) {
  std::vector<Value*> clipped;
  for (ParameterGradient& pair : gradients) {
    if (IsClipped(b, pair.parameter)) clipped.push_back(&pair.gradient);
  }
  if (clipped.empty()) return;
  if (const auto* by_value = std::get_if<ClipByValue>(&clip)) {
    for (Value* gradient : clipped) {
      *gradient = b.Clip(*gradient, by_value->min, by_value->max);
    }
  } else if (const auto* by_norm = std::get_if<ClipByNorm>(&clip)) {
    for (Value* gradient : clipped) {
      *gradient = Merged(b, *gradient);
      const Value squares = b.SquaredL2Norm(*gradient);
      const Value factor =
          FactorOf(b, squares, by_norm->norm, gradient->dtype());
      *gradient = b.ElementwiseMul(*gradient, factor);
    }
  } else if (const auto* global = std::get_if<ClipByGlobalNorm>(&clip)) {
    for (Value* gradient : clipped) *gradient = Merged(b, *gradient);
    program::Values squares;
    for (Value* gradient : clipped) {
      squares.push_back(b.SquaredL2Norm(*gradient));
    }
    const Value total = b.Sum(squares);
    const Value factor = FactorOf(b, total, global->norm, clipped[0]->dtype());
    for (Value* gradient : clipped) {
      *gradient = b.ElementwiseMul(*gradient, factor);
    }
  }
}

// ---- decay

Value Decayed(Builder& b, const ParameterGradient& pair,
              const program::Decay& decay) {
  const auto* l1 = std::get_if<program::L1Decay>(&decay);
  const auto* l2 = std::get_if<program::L2Decay>(&decay);
  const double coefficient = l1 != nullptr   ? l1->coefficient
                             : l2 != nullptr ? l2->coefficient
                                             : 0.0;
  if (coefficient == 0.0) return pair.gradient;
  const Value source = l1 != nullptr ? b.Sign(pair.parameter) : pair.parameter;
  const Value share = b.Scale(source, {.scale = coefficient});
  return b.Sum({pair.gradient, share});
}

// ---- updates

// The type of numbers that go with parameters: the rate, the powers of betas.
DType NumberType(DType dtype) {
  return dtype == DType::kFloat64 ? dtype : DType::kFloat32;
}

class Updates {
 public:
  Updates(Builder& b, const Optimizer& optimizer, const Value& skip)
      : b_(b), optimizer_(optimizer), skip_(skip) {}

  void MakeRate(const Gradients& gradients) {
    if (const auto* rate = std::get_if<Value>(&optimizer_.learning_rate)) {
      rate_ = *rate;
      return;
    }
    DType dtype = DType::kFloat32;
    for (const ParameterGradient& pair : gradients) {
      if (pair.parameter.dtype() == DType::kFloat64) dtype = DType::kFloat64;
    }
    rate_ = b_.NewPersistable(b_.NewName("learning_rate"), {1}, dtype,
                              std::get<double>(optimizer_.learning_rate));
  }

  // Appends the update of one parameter.
  void Append(const Value& parameter, const Value& gradient) {
    const UpdateOp update = UpdateOpOf(optimizer_.rule, DecayOf(parameter));
    std::map<std::string, std::string> inputs{
        {"Param", parameter.name()},
        {"Grad", gradient.name()},
        {"LearningRate", RateOf(parameter).name()}};
    std::map<std::string, std::string> outputs{{"ParamOut", parameter.name()}};
    for (const UpdateState& state : update.states) {
      const std::string name = StateOf(parameter, state);
      inputs[state.slot] = name;
      const std::string output = state.output.value_or(state.slot + "Out");
      if (!output.empty()) outputs[output] = name;
    }
    if (skip_) inputs["SkipUpdate"] = skip_.name();
    b_.Append(OperationOf(update, inputs, outputs));
    if (!update.scaled_slot.empty()) {
      ScaleState(inputs[update.scaled_slot], update.scale);
    }
  }

 private:
  std::optional<double> DecayOf(const Value& parameter) const {
    const std::optional<double>& decay = optimizer_.decoupled_decay;
    const bool adam = std::holds_alternative<optim::Adam>(optimizer_.rule);
    if (adam && !decay.has_value()) return decay;
    if (optimizer_.decays == nullptr) return decay;
    return optimizer_.decays(parameter.name()) ? decay : 0.0;
  }

  Value RateOf(const Value& parameter) {
    const ParamAttr* attr = b_.attr_of(parameter.name());
    if (attr == nullptr || attr->learning_rate == 1.0) return rate_;
    return b_.Scale(rate_, {.scale = attr->learning_rate});
  }

  std::string StateOf(const Value& parameter, const UpdateState& state) {
    const std::string name = b_.NewName(parameter.name() + '_' + state.name);
    const DType dtype = parameter.dtype();
    b_.NewPersistable(name, state.scalar ? program::Dims{1} : parameter.dims(),
                      state.scalar ? NumberType(dtype) : dtype, state.initial);
    return name;
  }

  static Operation OperationOf(
      const UpdateOp& update, const std::map<std::string, std::string>& inputs,
      const std::map<std::string, std::string>& outputs) {
    const program::OpDef& def = *program::AllOps().Find(update.type);
    Operation op{.type = update.type};
    const auto add = [](const auto& slots, const auto& names,
                        program::Slots& to) {
      for (const program::SlotDef& slot : slots) {
        const auto name = names.find(slot.name);
        if (name != names.end()) to.push_back({slot.name, {name->second}});
      }
    };
    add(def.inputs, inputs, op.inputs);
    add(def.outputs, outputs, op.outputs);
    for (const auto& [name, value] : update.attrs) {
      const auto index = static_cast<size_t>(def.AttrIndex(name));
      op.attrs[name] = ToAttrValue(def.attrs[index], value);
    }
    return op;
  }

  // Multiplies a state where it is, unless the step is skipped.
  void ScaleState(const std::string& name, double factor) {
    if (!skip_) {
      b_.Append({.type = "scale",
                 .inputs = {{"X", {name}}},
                 .outputs = {{"Out", {name}}},
                 .attrs = {{"scale", {program::AttrKind::kFloat, factor}}}});
      return;
    }
    const Value before = b_.Find(name);
    const Value scaled = b_.Scale(before, {.scale = factor});
    const Value after = b_.Where(skip_, before, scaled);
    b_.Append({.type = "assign",
               .inputs = {{"X", {after.name()}}},
               .outputs = {{"Out", {name}}}});
  }

  Builder& b_;
  const Optimizer& optimizer_;
  const Value& skip_;
  Value rate_;
};

Status CheckOptimizer(const Optimizer& optimizer) {
  const optim::UpdateRule& rule = optimizer.rule;
  const bool decouples = std::holds_alternative<optim::Adam>(rule) ||
                         std::holds_alternative<optim::Lamb>(rule) ||
                         std::holds_alternative<optim::Lars>(rule);
  if (optimizer.decoupled_decay.has_value() && !decouples) {
    return InvalidArgument(
        "only Adam, Lamb and Lars have decoupled_decay; other rules have "
        "decay, "
        "an L1Decay or L2Decay");
  }
  if (const auto* rate = std::get_if<double>(&optimizer.learning_rate)) {
    if (!(*rate >= 0)) {
      return InvalidArgument("the learning rate must be at least 0, but is ",
                             *rate);
    }
  }
  return OkStatus();
}

}  // namespace

Result<Gradients> Backward(Builder& b, const Value& loss,
                           const BackwardOptions& options) {
  RETURN_IF_ERROR(b.status());
  const int64_t size = program::NumElements(loss.dims());
  if (!loss || size != 1) {
    return InvalidArgument("Backward: the loss ", loss.name(),
                           " must have one element, but its shape is ",
                           program::ToString(loss.dims()),
                           "; take its mean first");
  }
  MarkLoss(b.block(), loss.name());
  ASSIGN_OR_RETURN(auto found,
                   AppendBackward(program::AllOps(), b.main(),
                                  {{loss.name(), ""}}, options.no_grad));
  if (!options.checkpoints.empty()) {
    std::set<std::string> names;
    for (const Value& value : options.checkpoints) names.insert(value.name());
    RETURN_IF_ERROR(
        Recompute(program::AllOps(), b.main(), {names.begin(), names.end()})
            .status());
  }
  Gradients gradients;
  for (const Variable* variable : b.main().block(0).variables()) {
    if (!variable->is_parameter || !variable->trainable) continue;
    const auto gradient = found.find(variable->name);
    if (gradient == found.end()) continue;
    gradients.push_back({{b, variable->name}, {b, gradient->second}});
  }
  return gradients;
}

Status ApplyGradients(Builder& b, const Gradients& gradients,
                      const Optimizer& optimizer, const Value& skip) {
  RETURN_IF_ERROR(b.status());
  RETURN_IF_ERROR(CheckOptimizer(optimizer));
  if (gradients.empty()) return OkStatus();
  Scope scope(b);
  scope.Role(OpRole::kOptimize);
  Updates updates(b, optimizer, skip);
  updates.MakeRate(gradients);
  Gradients changed = gradients;
  ClipAll(b, optimizer.clip, changed);
  if (optimizer.rescale != 1.0) {
    for (ParameterGradient& pair : changed) {
      pair.gradient = b.Scale(pair.gradient, {.scale = optimizer.rescale});
    }
  }
  for (ParameterGradient& pair : changed) {
    const ParamAttr* attr = b.attr_of(pair.parameter.name());
    const bool own = attr != nullptr && attr->decay.has_value();
    pair.gradient = Decayed(b, pair, own ? *attr->decay : optimizer.decay);
  }
  for (const ParameterGradient& pair : changed) {
    updates.Append(pair.parameter, pair.gradient);
  }
  return b.status();
}

Status Minimize(Builder& b, const Value& loss, const Optimizer& optimizer,
                const BackwardOptions& options) {
  ASSIGN_OR_RETURN(Gradients gradients, Backward(b, loss, options));
  return ApplyGradients(b, gradients, optimizer);
}

}  // namespace fleet::plan
