// SPDX-License-Identifier: Apache-2.0

// Training of a program that a builder makes: gradients, clipping, decay and
// updates as further operations.
//
//   Builder b(main, startup);
//   ...
//   RETURN_IF_ERROR(plan::Minimize(b, loss, {.rule = optim::Adam{},
//                                            .learning_rate = 0.001,
//                                            .clip = ClipByGlobalNorm{1.0}},
//                                 {.amp = Amp{}, .merge = {.steps = 4}}));
//
// What an optimizer remembers and its learning rate are variables of the main
// program that the startup program fills: fc_0.w_0_moment1_0, learning_rate_0.

#ifndef FLEET_PLAN_MINIMIZE_H_
#define FLEET_PLAN_MINIMIZE_H_

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/optim/update_rule.h"
#include "fleet/plan/gradient_merge.h"
#include "fleet/plan/loss_scaling.h"
#include "fleet/plan/parameter_gradient.h"
#include "fleet/program/builder.h"

namespace fleet::plan {

// Clipping leaves out parameters without need_clip.
struct ClipByValue {  // every element to [min, max]
  double min = -1.0;
  double max = 1.0;
};
struct ClipByNorm {  // each gradient to a norm of at most `norm`
  double norm = 1.0;
};
struct ClipByGlobalNorm {  // all of them together
  double norm = 1.0;
};
using Clip =
    std::variant<std::monostate, ClipByValue, ClipByNorm, ClipByGlobalNorm>;

// What is different for one parameter than for the others of an optimizer, and
// than its ParamAttr says. What is absent is not different.
struct ParameterSettings {
  std::optional<optim::UpdateRule> rule = {};
  std::optional<double> decoupled_decay = {};
  std::optional<double> learning_rate = {};  // a factor on the optimizer's
  std::optional<program::Decay> decay = {};
  std::optional<bool> need_clip = {};
};

struct Optimizer {
  optim::UpdateRule rule = optim::Sgd{};
  // A number, or a variable of the program, such as a schedule made.
  std::variant<double, program::Value> learning_rate = 0.001;
  Clip clip = {};
  // Added to the gradients, except of parameters with a decay of their own.
  program::Decay decay = {};
  // Decay that does not go through the gradient. With it Adam is AdamW; Lamb
  // and Lars have 0.01 and 0.0005 without it, other rules cannot have it.
  std::optional<double> decoupled_decay = {};
  // Which parameters have decoupled decay, by name; empty: all.
  std::function<bool(const std::string&)> decays = {};
  // What gradients are multiplied by after clipping.
  double rescale = 1.0;
  // By the parameter's name.
  std::map<std::string, ParameterSettings> parameters = {};
};

// The variables that an optimizer has in a program.
struct OptimizerVariables {
  std::string learning_rate;  // "" until it is made, or where it was given
  // By the parameter's name and the state's.
  std::map<std::pair<std::string, std::string>, std::string> states;
};

struct BackwardOptions {
  // Variables that have no gradient, and end it.
  std::set<std::string> no_grad = {};
  // Variables that are kept for backward; what lies between them is computed
  // again when backward needs it, which saves its memory (recompute.h). Empty:
  // everything is kept.
  std::vector<program::Value> checkpoints = {};
};

// Appends the operations that compute the gradients of `loss`, one number, by
// all trainable parameters that it depends on, and returns these in the order
// in which they were made. The builder's failure, if it has failed;
// InvalidArgument for a loss of several numbers; and the errors of
// AppendBackward and Recompute.
Result<Gradients> Backward(program::Builder& b, const program::Value& loss,
                           const BackwardOptions& options = {});

// Appends clipping only.
void ClipGradients(program::Builder& b, const Clip& clip, Gradients& gradients);

// Appends clipping, decay and the updates of parameters. `skip`, a bool of
// shape [1] if it is given, says step by step whether everything stays as it
// is. `made` gets the variables that are made, and those that it has from an
// earlier call are used again. InvalidArgument for an optimizer whose parts do
// not fit together.
Status ApplyGradients(program::Builder& b, const Gradients& gradients,
                      const Optimizer& optimizer,
                      const program::Value& skip = {},
                      OptimizerVariables* made = nullptr);

struct MinimizeOptions {
  std::set<std::string> no_grad = {};            // as for backward
  std::vector<program::Value> checkpoints = {};  // as for backward
  std::optional<Amp> amp = {};                   // mixed precision
  GradientMerge merge = {};
};

// All of it: mixed precision, backward, and updates of the merged gradients. A
// bad step of mixed precision is neither counted nor added by the merge.
// Errors are those of ScaleLoss, Backward, MergeGradients and ApplyGradients.
Status Minimize(program::Builder& b, const program::Value& loss,
                const Optimizer& optimizer,
                const MinimizeOptions& options = {});

}  // namespace fleet::plan

#endif  // FLEET_PLAN_MINIMIZE_H_
