// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_EXEC_PLAN_LAYOUT_H_
#define FLEET_EXEC_PLAN_LAYOUT_H_

#include <vector>

#include "fleet/exec/plan_graph.h"

namespace fleet::exec {

// Images between convolutions, pools and norms lie with the channels last, in
// which form those are fastest and everything element by element does not care.
// Marks such values, and puts nodes that turn images around where the form
// changes. Every value of `plain` is replaced by one in the ordinary form.
void ChooseLayouts(Graph& graph, const std::vector<int*>& plain);

}  // namespace fleet::exec

#endif  // FLEET_EXEC_PLAN_LAYOUT_H_
