// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/read_updates.h"

#include <algorithm>
#include <utility>

#include "fleet/plan/read_rate.h"

namespace fleet::plan {
namespace {

using program::Operation;
using program::OpRole;
using table::UpdateOptions;

bool IsUpdate(const Operation& op) {
  return !op.input("Param").empty() && !op.input("Grad").empty() &&
         !op.output("ParamOut").empty();
}

// ---- rules: the attributes of define_optimizer.cc, with its defaults

optim::UpdateRule AdamOf(const Operation& op) {
  return optim::Adam{.beta1 = NumberOf(op, "beta1", 0.9),
                     .beta2 = NumberOf(op, "beta2", 0.999),
                     .epsilon = NumberOf(op, "epsilon", 1e-8),
                     .lazy = FlagOf(op, "lazy_mode")};
}

// The i-th of a list, its only element for all, or the number itself.
double ElementOf(const Operation& op, std::string_view attr, size_t i,
                 double otherwise) {
  const program::AttrValue* found = op.attr(attr);
  if (found == nullptr) return otherwise;
  const auto* list = std::get_if<std::vector<double>>(&found->value);
  if (list == nullptr) return NumberOf(op, attr, otherwise);
  if (list->empty()) return 0.0;
  return (*list)[std::min(i, list->size() - 1)];
}

class UpdateReader final {
 public:
  UpdateReader(const ProgramIndex& main, const ProgramIndex& startup,
               const std::map<std::string, table::LearningRate>& schedules)
      : main_(main), startup_(startup), schedules_(schedules) {}

  // The `i`-th parameter of the update at position `at`.
  Result<ParameterUpdate> Read(size_t at, size_t i) const {
    const Operation& op = main_.op(at);
    ParameterUpdate update{.parameter = op.input("Param")[i],
                           .op = at,
                           .gradient = op.input("Grad")[i],
                           .options = {},
                           .folded = {}};
    RETURN_IF_ERROR(ReadRule(op, i, update.options));
    if (const auto& rates = op.input("LearningRate"); rates.empty()) {
      update.options.learning_rate.base = 1.0;
    } else {
      ASSIGN_OR_RETURN(table::LearningRate rate,
                       ReadRate(main_, startup_, schedules_,
                                rates[std::min(i, rates.size() - 1)]));
      // What an adamw multiplies its rate by was read with the rule.
      rate.factor *= update.options.learning_rate.factor;
      update.options.learning_rate = std::move(rate);
    }
    Fold(update);
    return update;
  }

 private:
  Status ReadRule(const Operation& op, size_t i, UpdateOptions& to) const {
    if (op.type == "sgd") {
      to.rule = optim::Sgd{};
    } else if (op.type == "momentum") {
      to.rule = optim::Momentum{.mu = NumberOf(op, "mu", 0.9),
                                .nesterov = FlagOf(op, "use_nesterov")};
      if (WordOf(op, "regularization_method") == "l2_decay") {
        to.decay.l2 = NumberOf(op, "regularization_coeff", 0.0);
      }
    } else if (op.type == "adam") {
      to.rule = AdamOf(op);
    } else if (op.type == "adamw") {
      to.rule = AdamOf(op);
      if (FlagOf(op, "with_decay")) {
        to.decay.decoupled = NumberOf(op, "coeff", 0.01);
      }
      to.learning_rate.factor = NumberOf(op, "lr_ratio", 1.0);
    } else if (op.type == "lamb") {
      to.rule = optim::Lamb{.beta1 = NumberOf(op, "beta1", 0.9),
                            .beta2 = NumberOf(op, "beta2", 0.999),
                            .epsilon = NumberOf(op, "epsilon", 1e-6),
                            .always_adapt = FlagOf(op, "always_adapt")};
      to.decay.decoupled = NumberOf(op, "weight_decay", 0.0);
    } else if (op.type == "adagrad") {
      to.rule = optim::Adagrad{.epsilon = NumberOf(op, "epsilon", 1e-6),
                               .initial = InitialOf(op, "Moment")};
    } else if (op.type == "adamax") {
      to.rule = optim::Adamax{.beta1 = NumberOf(op, "beta1", 0.9),
                              .beta2 = NumberOf(op, "beta2", 0.999),
                              .epsilon = NumberOf(op, "epsilon", 1e-8)};
    } else if (op.type == "adadelta") {
      to.rule = optim::Adadelta{.rho = NumberOf(op, "rho", 0.95),
                                .epsilon = NumberOf(op, "epsilon", 1e-6)};
    } else if (op.type == "rmsprop") {
      to.rule = optim::RmsProp{.rho = NumberOf(op, "decay", 0.9),
                               .epsilon = NumberOf(op, "epsilon", 1e-10),
                               .momentum = NumberOf(op, "momentum", 0.0),
                               .centered = FlagOf(op, "centered")};
    } else if (op.type == "lars_momentum") {
      to.rule = optim::Lars{.mu = NumberOf(op, "mu", 0.9),
                            .coefficient = NumberOf(op, "lars_coeff", 0.001),
                            .epsilon = NumberOf(op, "epsilon", 0.0)};
      to.decay.decoupled = ElementOf(op, "lars_weight_decay", i, 0.0005);
      to.transform.scale = NumberOf(op, "rescale_grad", 1.0);
    } else if (op.type == "ftrl") {
      to.rule = optim::Ftrl{.l1 = NumberOf(op, "l1", 0.0),
                            .l2 = NumberOf(op, "l2", 0.0),
                            .power = NumberOf(op, "lr_power", -0.5)};
    } else {
      return Unimplemented(
          "it is updated by ", Describe(op),
          ", which is no rule that servers have; they have SGD, Momentum, "
          "Adam, AdamW, Lamb, Adagrad, Adamax, Adadelta, RMSProp, Lars and "
          "Ftrl");
    }
    return OkStatus();
  }

  double InitialOf(const Operation& op, std::string_view slot) const {
    const std::vector<std::string>& names = op.input(slot);
    if (names.empty()) return 0.0;
    Result<double> value = ReadConstant(startup_, names[0]);
    return value.ok() ? *value : 0.0;
  }

  // Walks from the update towards backward as long as the options can say what
  // happens to the gradient. A table takes g to clip(g * scale) + decay.
  void Fold(ParameterUpdate& update) const {
    bool transformed = update.options.transform.scale != 1.0;
    while (const Operation* op = main_.maker(update.gradient)) {
      if (!HasRole(*op, OpRole::kOptimize)) return;
      std::string inner;
      if (op->type == "sum" && !transformed) {
        inner = FoldDecay(*op, update);
      } else if (op->type == "scale" && NumberOf(*op, "bias", 0.0) == 0.0) {
        inner = op->input("X")[0];
        update.options.transform.scale *= NumberOf(*op, "scale", 1.0);
        transformed = true;
      } else if (op->type == "clip") {
        inner = FoldClip(*op, update.options.transform);
        transformed = true;
      } else if (op->type == "get_tensor_from_selected_rows" ||
                 op->type == "merge_selected_rows") {
        inner = op->input("X")[0];
      }
      if (inner.empty()) return;
      update.folded.push_back(main_.writers(update.gradient)[0]);
      update.gradient = inner;
    }
  }

  // gradient + coefficient * parameter, or of its sign. Returns the gradient;
  // nothing if it is another sum.
  std::string FoldDecay(const Operation& sum, ParameterUpdate& update) const {
    const std::vector<std::string>& x = sum.input("X");
    if (x.size() != 2) return "";
    for (size_t i = 0; i < 2; ++i) {
      const Operation* scale = main_.maker(x[1 - i]);
      if (scale == nullptr || scale->type != "scale" ||
          NumberOf(*scale, "bias", 0.0) != 0.0) {
        continue;
      }
      const double coefficient = NumberOf(*scale, "scale", 1.0);
      const std::string& source = scale->input("X")[0];
      const Operation* sign = main_.maker(source);
      if (source == update.parameter) {
        update.options.decay.l2 += coefficient;
      } else if (sign != nullptr && sign->type == "sign" &&
                 sign->input("X")[0] == update.parameter) {
        update.options.decay.l1 += coefficient;
        update.folded.push_back(main_.writers(source)[0]);
      } else {
        continue;
      }
      update.folded.push_back(main_.writers(x[1 - i])[0]);
      return x[i];
    }
    return "";
  }

  // What is already in `to` happens after this clip.
  static std::string FoldClip(const Operation& clip, optim::Transform& to) {
    double low = NumberOf(clip, "min", to.min) * to.scale;
    double high = NumberOf(clip, "max", to.max) * to.scale;
    if (low > high) std::swap(low, high);
    const auto [min, max] = std::pair(to.min, to.max);
    to.min = std::clamp(low, min, max);
    to.max = std::clamp(high, min, max);
    return clip.input("X")[0];
  }

  const ProgramIndex& main_;
  const ProgramIndex& startup_;
  const std::map<std::string, table::LearningRate>& schedules_;
};

Status CheckBodies(const program::Program& program) {
  for (size_t b = 1; b < program.num_blocks(); ++b) {
    for (size_t i = 0; i < program.block(b).num_ops(); ++i) {
      const Operation& op = program.block(b).op(i);
      if (!IsUpdate(op)) continue;
      return Unimplemented(
          "parameter ", op.input("Param")[0], ": its update ", Describe(op),
          " stands in a branch or loop (a gradient merge makes such), and "
          "servers update in every step; update it in the main block");
    }
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<ParameterUpdate>> ReadUpdates(
    const program::Program& program, const ProgramIndex& main,
    const ProgramIndex& startup,
    const std::map<std::string, table::LearningRate>& schedules,
    const std::set<std::string>* only) {
  RETURN_IF_ERROR(CheckBodies(program));
  const UpdateReader reader(main, startup, schedules);
  std::vector<ParameterUpdate> updates;
  std::set<std::string> seen;
  for (size_t at = 0; at < main.block().num_ops(); ++at) {
    const Operation& op = main.op(at);
    if (!IsUpdate(op)) continue;
    const std::vector<std::string>& names = op.input("Param");
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string where = "parameter " + names[i];
      if (!seen.insert(names[i]).second) {
        return Unimplemented(
            where, " is updated a second time by ", Describe(op),
            ", and servers apply one rule to a parameter; add the losses and "
            "minimize once, or give each optimizer parameters of its own");
      }
      if (only != nullptr && !only->contains(names[i])) {
        updates.push_back({.parameter = names[i],
                           .op = at,
                           .gradient = op.input("Grad")[i],
                           .options = {},
                           .folded = {}});
        continue;
      }
      Result<ParameterUpdate> update = reader.Read(at, i);
      if (!update.ok()) return update.status().WithContext(where);
      updates.push_back(*std::move(update));
    }
  }
  return updates;
}

}  // namespace fleet::plan
