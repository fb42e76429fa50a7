// SPDX-License-Identifier: Apache-2.0

// Optimizer ops of programs (sgd, adam, ...): which rule of optim/ an op stands
// for, and how a list of them is carried out in one pass. They have no kernels
// in the table: an update works in place, and the executor hands over all
// updates of a step that have the same rule together.

#ifndef FLEET_OPS_UPDATE_OPTIMIZER_H_
#define FLEET_OPS_UPDATE_OPTIMIZER_H_

#include <array>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/optim/update.h"
#include "fleet/optim/update_rule.h"
#include "fleet/program/op_def.h"

namespace fleet::ops {

// What an optimizer op does, and in which input slots of its definition the
// tensors of its rule stand. A slot that the op does not have is -1.
struct OptimizerOp {
  optim::UpdateRule rule;
  std::vector<optim::Decay> decay;  // one for each parameter, or one for all
  optim::Transform transform;
  double rate_factor = 1.0;      // multiplies the learning rate
  bool advances_powers = false;  // or another op of the program does

  int param = -1;
  int gradient = -1;
  int learning_rate = -1;
  int skip = -1;
  std::array<int, optim::kMaxState> state = {-1, -1, -1};
  std::array<int, optim::kMaxPowers> powers = {-1, -1};

  const optim::Decay& decay_of(size_t parameter) const {
    return decay[parameter < decay.size() ? parameter : 0];
  }
};

// Nothing for an op that is not an optimizer.
std::optional<OptimizerOp> ReadOptimizerOp(const program::OpDef& def,
                                           const program::Attrs& attrs);

// One parameter in one step. Everything but the gradient and the learning rate
// is changed in place.
struct OptimizerUpdate {
  at::Tensor values;
  at::Tensor gradient;                             // dense, or COO over rows
  at::Tensor learning_rate;                        // one element; undefined: 1
  std::array<at::Tensor, optim::kMaxState> state;  // undefined: not kept
  std::array<at::Tensor, optim::kMaxPowers> powers;
  optim::Decay decay;
  optim::Transform transform;
  double rate_factor = 1.0;
  bool advances_powers = false;
};

// Runs the rule on every update, on whatever device the values are, in one pass
// for all that are of one kind. A sparse gradient updates only the rows that it
// names where the rule allows (UpdatesOnlyGivenRows) and there is neither L1
// nor L2 decay. Throws what LibTorch throws, before anything is changed if a
// shape is wrong.
void ApplyOptimizer(const optim::UpdateRule& rule,
                    std::span<const OptimizerUpdate> updates);

}  // namespace fleet::ops

#endif  // FLEET_OPS_UPDATE_OPTIMIZER_H_
