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

void ClipAll(Builder& b, const Clip& clip, const std::vector<Value*>& clipped) {
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

// ---- settings of parameters

// What holds for one parameter: the optimizer's word, unless its ParamAttr or
// the optimizer says otherwise for it.
struct Settings {
  const optim::UpdateRule* rule;
  std::optional<double> decoupled_decay;
  double learning_rate = 1.0;
  program::Decay decay;
  bool need_clip = true;
};

std::optional<double> DecoupledDecayOf(const Optimizer& optimizer,
                                       const std::string& parameter) {
  const std::optional<double>& decay = optimizer.decoupled_decay;
  const bool adam = std::holds_alternative<optim::Adam>(optimizer.rule);
  if (adam && !decay.has_value()) return decay;
  if (optimizer.decays == nullptr) return decay;
  return optimizer.decays(parameter) ? decay : 0.0;
}

Settings SettingsOf(const Builder& b, const Optimizer& optimizer,
                    const std::string& parameter) {
  Settings settings{.rule = &optimizer.rule,
                    .decoupled_decay = DecoupledDecayOf(optimizer, parameter),
                    .decay = optimizer.decay};
  if (const ParamAttr* attr = b.attr_of(parameter); attr != nullptr) {
    settings.learning_rate = attr->learning_rate;
    settings.need_clip = attr->need_clip;
    if (attr->decay.has_value()) settings.decay = *attr->decay;
  }
  const auto own = optimizer.parameters.find(parameter);
  if (own == optimizer.parameters.end()) return settings;
  const ParameterSettings& said = own->second;
  if (said.rule.has_value()) {
    // The decay that goes with the optimizer's rule may mean another rule here.
    settings.rule = &*said.rule;
    settings.decoupled_decay = said.decoupled_decay;
  }
  if (said.decoupled_decay) settings.decoupled_decay = said.decoupled_decay;
  if (said.learning_rate) settings.learning_rate = *said.learning_rate;
  if (said.decay) settings.decay = *said.decay;
  if (said.need_clip) settings.need_clip = *said.need_clip;
  return settings;
}

// ---- updates

// The type of numbers that go with parameters: the rate, the powers of betas.
DType NumberType(DType dtype) {
  return dtype == DType::kFloat64 ? dtype : DType::kFloat32;
}

class Updates {
 public:
  Updates(Builder& b, const Value& skip, OptimizerVariables& made)
      : b_(b), skip_(skip), made_(made) {}

  void MakeRate(const Optimizer& optimizer, const Gradients& gradients) {
    if (const auto* rate = std::get_if<Value>(&optimizer.learning_rate)) {
      rate_ = *rate;
      return;
    }
    if (made_.learning_rate.empty()) {
      DType dtype = DType::kFloat32;
      for (const ParameterGradient& pair : gradients) {
        if (pair.parameter.dtype() == DType::kFloat64) dtype = DType::kFloat64;
      }
      made_.learning_rate = b_.NewName("learning_rate");
      b_.NewPersistable(made_.learning_rate, {1}, dtype,
                        std::get<double>(optimizer.learning_rate));
    }
    rate_ = b_.Find(made_.learning_rate);
  }

  // Appends the update of one parameter.
  void Append(const Value& parameter, const Value& gradient,
              const Settings& settings) {
    const UpdateOp update =
        UpdateOpOf(*settings.rule, settings.decoupled_decay);
    std::map<std::string, std::string> inputs{
        {"Param", parameter.name()},
        {"Grad", gradient.name()},
        {"LearningRate", RateTimes(settings.learning_rate).name()}};
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
  Value RateTimes(double factor) {
    return factor == 1.0 ? rate_ : b_.Scale(rate_, {.scale = factor});
  }

  std::string StateOf(const Value& parameter, const UpdateState& state) {
    std::string& name = made_.states[{parameter.name(), state.name}];
    if (!name.empty()) return name;
    name = b_.NewName(parameter.name() + '_' + state.name);
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
  const Value& skip_;
  OptimizerVariables& made_;
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

void ClipGradients(Builder& b, const Clip& clip, Gradients& gradients) {
  std::vector<Value*> clipped;
  for (ParameterGradient& pair : gradients) clipped.push_back(&pair.gradient);
  ClipAll(b, clip, clipped);
}

Status ApplyGradients(Builder& b, const Gradients& gradients,
                      const Optimizer& optimizer, const Value& skip,
                      OptimizerVariables* made) {
  RETURN_IF_ERROR(b.status());
  RETURN_IF_ERROR(CheckOptimizer(optimizer));
  if (gradients.empty()) return OkStatus();
  Scope scope(b);
  scope.Role(OpRole::kOptimize);
  OptimizerVariables variables;
  Updates updates(b, skip, made == nullptr ? variables : *made);
  updates.MakeRate(optimizer, gradients);
  Gradients changed = gradients;
  std::vector<Settings> settings;
  std::vector<Value*> clipped;
  for (ParameterGradient& pair : changed) {
    settings.push_back(SettingsOf(b, optimizer, pair.parameter.name()));
    if (settings.back().need_clip) clipped.push_back(&pair.gradient);
  }
  ClipAll(b, optimizer.clip, clipped);
  if (optimizer.rescale != 1.0) {
    for (ParameterGradient& pair : changed) {
      pair.gradient = b.Scale(pair.gradient, {.scale = optimizer.rescale});
    }
  }
  for (size_t i = 0; i < changed.size(); ++i) {
    changed[i].gradient = Decayed(b, changed[i], settings[i].decay);
  }
  for (size_t i = 0; i < changed.size(); ++i) {
    updates.Append(changed[i].parameter, changed[i].gradient, settings[i]);
  }
  return b.status();
}

Status Minimize(Builder& b, const Value& loss, const Optimizer& optimizer,
                const MinimizeOptions& options) {
  ScaledLoss scaled{.loss = loss};
  if (options.amp.has_value()) {
    ASSIGN_OR_RETURN(scaled, ScaleLoss(b, loss, *options.amp));
  }
  ASSIGN_OR_RETURN(const Gradients gradients,
                   Backward(b, scaled.loss,
                            {.no_grad = options.no_grad,
                             .checkpoints = options.checkpoints}));
  const auto merge = [&](const Value& skip) {
    return MergeGradients(b, gradients, options.merge,
                          [&](const Gradients& merged) {
                            return ApplyGradients(b, merged, optimizer, skip);
                          });
  };
  if (!options.amp || !ScalesLoss(*options.amp) || gradients.empty()) {
    return merge({});
  }
  const Value bad =
      UnscaleGradients(b, gradients, scaled.scaling, options.amp->scaling);
  if (options.merge.steps == 1) return merge(bad);
  // What the merge keeps stays as it is in a bad step.
  Scope scope(b);
  scope.Role(OpRole::kOptimize);
  Status updated = OkStatus();
  b.If(b.LogicalNot(bad), [&] { updated = merge({}); });
  RETURN_IF_ERROR(updated);
  return b.status();
}

}  // namespace fleet::plan
