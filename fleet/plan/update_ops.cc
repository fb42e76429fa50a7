// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/update_ops.h"

#include <utility>
#include <variant>

namespace fleet::plan {
namespace {

using Attrs = std::map<std::string, program::Attr>;

// Adam's states and attributes, which AdamW and Lamb share.
template <class Rule>
UpdateOp AdamLike(const Rule& rule, std::string type) {
  return {.type = std::move(type),
          .states = {{"Moment1", "moment1"},
                     {"Moment2", "moment2"},
                     {"Beta1Pow", "beta1_pow_acc", rule.beta1, true},
                     {"Beta2Pow", "beta2_pow_acc", rule.beta2, true}},
          .attrs = {{"beta1", rule.beta1},
                    {"beta2", rule.beta2},
                    {"epsilon", rule.epsilon}}};
}

UpdateOp OpOf(const optim::Sgd&, std::optional<double>) {
  return {.type = "sgd"};
}

UpdateOp OpOf(const optim::Momentum& rule, std::optional<double>) {
  return {.type = "momentum",
          .states = {{"Velocity", "velocity"}},
          .attrs = {{"mu", rule.mu}, {"use_nesterov", rule.nesterov}}};
}

UpdateOp OpOf(const optim::Adam& rule, std::optional<double> decay) {
  UpdateOp op = AdamLike(rule, decay.has_value() ? "adamw" : "adam");
  op.attrs["lazy_mode"] = rule.lazy;
  if (decay.has_value()) {
    op.attrs["coeff"] = *decay;
    op.attrs["with_decay"] = *decay != 0.0;
  }
  return op;
}

UpdateOp OpOf(const optim::Adagrad& rule, std::optional<double>) {
  return {.type = "adagrad",
          .states = {{"Moment", "moment", rule.initial}},
          .attrs = {{"epsilon", rule.epsilon}}};
}

UpdateOp OpOf(const optim::Adamax& rule, std::optional<double>) {
  return {.type = "adamax",
          .states = {{"Moment", "moment"},
                     {"InfNorm", "inf_norm"},
                     {"Beta1Pow", "beta1_pow_acc", rule.beta1, true, ""}},
          .attrs = {{"beta1", rule.beta1},
                    {"beta2", rule.beta2},
                    {"epsilon", rule.epsilon}},
          .scaled_slot = "Beta1Pow",
          .scale = rule.beta1};
}

UpdateOp OpOf(const optim::RmsProp& rule, std::optional<double>) {
  return {.type = "rmsprop",
          .states = {{"Moment", "momentum"},
                     {"MeanSquare", "mean_square"},
                     {"MeanGrad", "mean_grad"}},
          .attrs = {{"decay", rule.rho},
                    {"epsilon", rule.epsilon},
                    {"momentum", rule.momentum},
                    {"centered", rule.centered}}};
}

UpdateOp OpOf(const optim::Adadelta& rule, std::optional<double>) {
  return {.type = "adadelta",
          .states = {{"AvgSquaredGrad", "_avg_squared_grad"},
                     {"AvgSquaredUpdate", "_avg_squared_update"}},
          .attrs = {{"rho", rule.rho}, {"epsilon", rule.epsilon}}};
}

UpdateOp OpOf(const optim::Lamb& rule, std::optional<double> decay) {
  UpdateOp op = AdamLike(rule, "lamb");
  op.attrs["weight_decay"] = decay.value_or(0.01);
  op.attrs["always_adapt"] = rule.always_adapt;
  return op;
}

UpdateOp OpOf(const optim::Lars& rule, std::optional<double> decay) {
  return {.type = "lars_momentum",
          .states = {{"Velocity", "velocity"}},
          .attrs = {{"mu", rule.mu},
                    {"lars_coeff", rule.coefficient},
                    {"lars_weight_decay",
                     std::vector<double>{decay.value_or(0.0005)}},
                    {"epsilon", rule.epsilon}}};
}

UpdateOp OpOf(const optim::Ftrl& rule, std::optional<double>) {
  return {
      .type = "ftrl",
      .states = {{"SquaredAccumulator", "squared", 0.0, false,
                  "SquaredAccumOut"},
                 {"LinearAccumulator", "linear", 0.0, false, "LinearAccumOut"}},
      .attrs = {{"l1", rule.l1}, {"l2", rule.l2}, {"lr_power", rule.power}}};
}

}  // namespace

UpdateOp UpdateOpOf(const optim::UpdateRule& rule,
                    std::optional<double> decay) {
  return std::visit([decay](const auto& r) { return OpOf(r, decay); }, rule);
}

}  // namespace fleet::plan
