// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <c10/core/ScalarType.h>

#include "fleet/exec/direct.h"
#include "fleet/ops/kernel.h"

namespace fleet::exec {
namespace {

// A view has the elements of its source in their order, under another shape.
bool MakeView(Graph& g, int node, int from, int to) {
  if (from == kNone || to == kNone) return false;
  const Value& source = g.values[from];
  const Value& target = g.values[to];
  if (!source.dense || !target.dense || source.numel() != target.numel() ||
      source.type.dtype != target.type.dtype) {
    return false;
  }
  g.Reads(node, {from});
  if (g.Share(to, from)) {
    g.nodes[node].direct = [](void* const*) {};
    return true;
  }
  const size_t bytes =
      source.numel() * c10::elementSize(ops::ToScalarType(source.type.dtype));
  g.nodes[node].direct = [from, to, bytes](void* const* m) {
    std::memcpy(m[to], m[from], bytes);
  };
  return true;
}

bool MakeForward(Graph& g, int node) {
  const Node& n = g.nodes[node];
  return MakeView(g, node, g.In(n, 0), g.Out(n, 0));
}

// The gradient of the output is the last that the rule names.
bool MakeBackward(Graph& g, int node) {
  const Node& n = g.nodes[node];
  return !n.inputs.empty() && MakeView(g, node, n.inputs.back(), g.Out(n, 0));
}

}  // namespace

void AddViewForms(DirectForms& forms) {
  for (const char* op : {"reshape2", "flatten_contiguous_range", "squeeze2",
                         "unsqueeze2", "assign"}) {
    forms[op] = MakeForward;
  }
  for (const char* op : {"reshape2_grad", "flatten_contiguous_range_grad",
                         "squeeze2_grad", "unsqueeze2_grad", "assign_grad"}) {
    forms[op] = MakeBackward;
  }
}

}  // namespace fleet::exec
