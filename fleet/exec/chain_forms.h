// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_EXEC_CHAIN_FORMS_H_
#define FLEET_EXEC_CHAIN_FORMS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "fleet/exec/chain.h"
#include "fleet/exec/plan_graph.h"

namespace fleet::exec {

// An elementwise node as a part of a chain over `numel` elements. Without steps
// it is a view: what it makes lives in the memory of what it is given. Outputs
// that live in the memory of others are not written. It may end in sums, which
// are smaller than `numel`.
struct ChainForm {
  int64_t numel = 0;
  std::vector<ChainStep> steps;
  int num_temporaries = 0;
};

// Nothing for a node that is not elementwise, or of types that chains do not
// take. The same results as the kernels, bit by bit, except where those use
// other functions: log, sqrt, silu, gelu with tanh, and powers that are not
// products of two or three factors (1e-6 relative, or absolute below 1). Sums
// are taken in an order of their own.
std::optional<ChainForm> FindChainForm(Graph& graph, int node);

}  // namespace fleet::exec

#endif  // FLEET_EXEC_CHAIN_FORMS_H_
