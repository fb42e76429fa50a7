// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/loss_scaling.h"

#include <string>
#include <utility>
#include <vector>

#include "fleet/program/op_role.h"

namespace fleet::plan {

using program::AttrKind;
using program::Builder;
using program::DType;
using program::OpRole;
using program::Scope;
using program::Value;

namespace {

std::vector<std::string> NamesOf(const Gradients& gradients) {
  std::vector<std::string> names;
  for (const ParameterGradient& pair : gradients) {
    names.push_back(pair.gradient.name());
  }
  return names;
}

void UpdateScaling(Builder& b, const std::vector<std::string>& gradients,
                   const Value& scaling, const Value& found,
                   const LossScaling& options) {
  const auto count = [&b](const char* key) {
    return b.NewPersistable(b.NewName(key), {1}, DType::kInt32, 0).name();
  };
  const std::string good = count("num_good_steps");
  const std::string bad = count("num_bad_steps");
  b.Append({.type = "update_loss_scaling",
            .inputs = {{"X", gradients},
                       {"FoundInfinite", {found.name()}},
                       {"PrevLossScaling", {scaling.name()}},
                       {"InGoodSteps", {good}},
                       {"InBadSteps", {bad}}},
            .outputs = {{"Out", gradients},
                        {"LossScaling", {scaling.name()}},
                        {"OutGoodSteps", {good}},
                        {"OutBadSteps", {bad}}},
            .attrs = {{"incr_every_n_steps",
                       {AttrKind::kInt, options.incr_every_n_steps}},
                      {"decr_every_n_nan_or_inf",
                       {AttrKind::kInt, options.decr_every_n_nan_or_inf}},
                      {"incr_ratio", {AttrKind::kFloat, options.incr_ratio}},
                      {"decr_ratio", {AttrKind::kFloat, options.decr_ratio}}}});
}

}  // namespace

Status CheckScaling(const LossScaling& options) {
  for (const auto& [name, count] :
       {std::pair("incr_every_n_steps", options.incr_every_n_steps),
        std::pair("decr_every_n_nan_or_inf",
                  options.decr_every_n_nan_or_inf)}) {
    if (count < 1) {
      return InvalidArgument("amp: ", name,
                             " must be a whole number from 1 on, not ", count);
    }
  }
  if (!(options.initial > 0)) {
    return InvalidArgument("amp: init_loss_scaling must be positive, not ",
                           options.initial);
  }
  if (!(options.incr_ratio > 1)) {
    return InvalidArgument("amp: incr_ratio must be above 1, not ",
                           options.incr_ratio);
  }
  if (!(options.decr_ratio > 0 && options.decr_ratio < 1)) {
    return InvalidArgument("amp: decr_ratio must lie between 0 and 1, not ",
                           options.decr_ratio);
  }
  return OkStatus();
}

bool ScalesLoss(const Amp& amp) {
  return amp.precision.dtype == DType::kFloat16 &&
         amp.precision.level != program::AmpLevel::kNone &&
         (amp.scaling.dynamic || amp.scaling.initial != 1.0);
}

Result<ScaledLoss> ScaleLoss(Builder& b, const Value& loss, const Amp& amp) {
  RETURN_IF_ERROR(b.status());
  RETURN_IF_ERROR(CheckScaling(amp.scaling));
  RETURN_IF_ERROR(
      UseMixedPrecision(program::AllOps(), b.main(), amp.precision).status());
  const bool scales = ScalesLoss(amp);
  ScaledLoss scaled{.loss = loss};
  scaled.scaling =
      b.NewPersistable(b.NewName("loss_scaling"), {1}, DType::kFloat32,
                       scales ? amp.scaling.initial : 1.0);
  if (loss.dtype() == DType::kFloat16 || loss.dtype() == DType::kBfloat16) {
    scaled.loss = b.Cast(loss, DType::kFloat32);
  }
  if (scales) scaled.loss = b.ElementwiseMul(scaled.loss, scaled.scaling);
  RETURN_IF_ERROR(b.status());
  return scaled;
}

Value UnscaleGradients(Builder& b, const Gradients& gradients,
                       const Value& scaling, const LossScaling& options) {
  if (!b.status().ok()) return {};
  Scope scope(b);
  scope.Role(OpRole::kOptimize);
  const std::vector<std::string> names = NamesOf(gradients);
  const std::string name = b.NewName("found_infinite");
  b.block().AddVariable(
      {.name = name, .type = {DType::kBool, {1}}, .stop_gradient = true});
  const Value found(b, name);
  b.Append({.type = "check_finite_and_unscale",
            .inputs = {{"X", names}, {"Scale", {scaling.name()}}},
            .outputs = {{"Out", names}, {"FoundInfinite", {name}}}});
  if (options.dynamic) UpdateScaling(b, names, scaling, found, options);
  return found;
}

}  // namespace fleet::plan
