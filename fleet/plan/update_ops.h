// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_UPDATE_OPS_H_
#define FLEET_PLAN_UPDATE_OPS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fleet/optim/update_rule.h"
#include "fleet/program/op_def.h"

namespace fleet::plan {

// What an update rule remembers of a parameter: an input of its op, and an
// output that is the same variable.
struct UpdateState {
  std::string slot;
  std::string name;  // of the variable: <parameter>_<name>_0
  double initial = 0.0;
  bool scalar = false;                     // else it has the parameter's shape
  std::optional<std::string> output = {};  // else slot + "Out"; "": none
};

// The op of an update rule, for one parameter.
struct UpdateOp {
  std::string type;
  std::vector<UpdateState> states;
  std::map<std::string, program::Attr> attrs;
  // A state that the op leaves alone is multiplied after it by this factor:
  // Adamax counts its beta1^t so.
  std::string scaled_slot = {};
  double scale = 1.0;
};

// `decay` is the decoupled one; for Adam its presence means AdamW.
UpdateOp UpdateOpOf(const optim::UpdateRule& rule, std::optional<double> decay);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_UPDATE_OPS_H_
