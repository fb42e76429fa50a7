// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

// Optimizer ops: one update of one parameter. They work in place: an output
// "ParamOut" names the same variable as the input "Param", so its type is that
// of the input. LearningRate and Beta1Pow, Beta2Pow are float32 of shape [1].
// SkipUpdate is a bool of shape [1]: where it is true, everything stays as it
// is.

namespace fleet::program {
namespace {

using Types = Result<std::vector<TensorType>>;

Status CheckOne(const OpTypes& t, std::string_view slot) {
  for (const TensorType& type : t.list(slot)) {
    const int64_t n = NumElements(type.dims);
    if (n != 1 && n != -1) {
      return InvalidArgument(slot, " must have one element, not ",
                             ToString(type.dims));
    }
  }
  return OkStatus();
}

// The input that output `slot` updates: ParamOut updates Param.
// SquaredAccumOut and LinearAccumOut are short for Accumulator.
std::string UpdatedBy(std::string_view slot) {
  std::string name(slot.substr(0, slot.size() - 3));
  return name.ends_with("Accum") ? name + "ulator" : name;
}

// Every output as the input that it updates.
Types UpdateShape(const OpTypes& t) {
  for (const char* slot : {"LearningRate", "Beta1Pow", "Beta2Pow"}) {
    if (t.def().InputSlot(slot) >= 0) RETURN_IF_ERROR(CheckOne(t, slot));
  }
  RETURN_IF_ERROR(CheckOne(t, "SkipUpdate"));
  if (t.has("SkipUpdate") && t.in("SkipUpdate").dtype != DType::kBool) {
    return InvalidArgument("SkipUpdate must be bool, not ",
                           Name(t.in("SkipUpdate").dtype));
  }
  std::span<const TensorType> params = t.list("Param");
  std::span<const TensorType> grads = t.list("Grad");
  if (params.size() != grads.size()) {
    return InvalidArgument("there are ", params.size(), " Param but ",
                           grads.size(), " Grad");
  }
  for (size_t i = 0; i < params.size(); ++i) {
    if (!CanBeOne(params[i].dims, grads[i].dims)) {
      return InvalidArgument("Grad ", ToString(grads[i].dims),
                             " must have the shape of Param ",
                             ToString(params[i].dims));
    }
  }
  std::vector<TensorType> out;
  for (const SlotDef& slot : t.def().outputs) {
    std::span<const TensorType> from = t.list(UpdatedBy(slot.name));
    if (from.empty() && !slot.variadic) {
      out.emplace_back();
    } else {
      out.insert(out.end(), from.begin(), from.end());
    }
  }
  return out;
}

}  // namespace

void DefineOptimizerOps(OpDefiner& ops) {
  ops.DefineExternal("sgd(Param, LearningRate, Grad, SkipUpdate?) -> ParamOut!",
                     UpdateShape);
  // `regularization_method` "l2_decay" adds regularization_coeff * Param to
  // the gradient.
  ops.DefineExternal(
      "momentum(Param, Grad, Velocity, LearningRate, SkipUpdate?; mu: float, "
      "use_nesterov: bool = false, regularization_method: string = '', "
      "regularization_coeff: float = 0.0) -> ParamOut!, VelocityOut!",
      UpdateShape);
  const std::string adam_slots =
      "(Param, Grad, LearningRate, Moment1, Moment2, Beta1Pow, Beta2Pow, "
      "SkipUpdate?; ";
  const std::string adam_outputs =
      ") -> ParamOut!, Moment1Out!, Moment2Out!, Beta1PowOut!, Beta2PowOut!";
  ops.DefineExternal("adam" + adam_slots +
                         "beta1: float = 0.9, beta2: float = 0.999, "
                         "epsilon: float = 1e-8, lazy_mode: bool = false" +
                         adam_outputs,
                     UpdateShape);
  ops.DefineExternal("adamw" + adam_slots +
                         "beta1: float = 0.9, beta2: float = 0.999, "
                         "epsilon: float = 1e-8, lazy_mode: bool = false, "
                         "coeff: float = 0.01, with_decay: bool = false, "
                         "lr_ratio: float = 1.0" +
                         adam_outputs,
                     UpdateShape);
  ops.DefineExternal("lamb" + adam_slots +
                         "weight_decay: float, beta1: float = 0.9, "
                         "beta2: float = 0.999, epsilon: float = 1e-6, "
                         "always_adapt: bool = false" +
                         adam_outputs,
                     UpdateShape);
  ops.DefineExternal(
      "adagrad(Param, Grad, Moment, LearningRate, SkipUpdate?; epsilon: float "
      "= 1e-6) -> "
      "ParamOut!, MomentOut!",
      UpdateShape);
  ops.DefineExternal(
      "adamax(Param, Grad, LearningRate, Moment, InfNorm, Beta1Pow, "
      "SkipUpdate?; "
      "beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> "
      "ParamOut!, MomentOut!, InfNormOut!",
      UpdateShape);
  ops.DefineExternal(
      "adadelta(Param, Grad, AvgSquaredGrad, AvgSquaredUpdate, LearningRate?, "
      "SkipUpdate?; "
      "rho: float = 0.95, epsilon: float = 1e-6) -> ParamOut!, "
      "AvgSquaredGradOut!, AvgSquaredUpdateOut!",
      UpdateShape);
  ops.DefineExternal(
      "rmsprop(Param, MeanSquare, Grad, Moment, LearningRate, MeanGrad?, "
      "SkipUpdate?; "
      "epsilon: float = 1e-10, decay: float = 0.9, momentum: float = 0.0, "
      "centered: bool = false) -> ParamOut!, MomentOut!, MeanSquareOut!, "
      "MeanGradOut!",
      UpdateShape);
  // Several parameters at once, if `Param` names several.
  ops.DefineExternal(
      "lars_momentum(Param*, Grad*, Velocity*, LearningRate*, SkipUpdate?; mu: "
      "float, "
      "lars_coeff: float = 0.001, lars_weight_decay: floats = [0.0005], "
      "epsilon: float = 0.0, rescale_grad: float = 1.0) -> ParamOut!*, "
      "VelocityOut!*",
      UpdateShape);
  ops.DefineExternal(
      "ftrl(Param, SquaredAccumulator, LinearAccumulator, Grad, LearningRate, "
      "SkipUpdate?; "
      "l1: float = 0.0, l2: float = 0.0, lr_power: float = -0.5) -> "
      "ParamOut!, SquaredAccumOut!, LinearAccumOut!",
      UpdateShape);
}

}  // namespace fleet::program
