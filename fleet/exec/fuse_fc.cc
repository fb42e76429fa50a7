// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "fleet/exec/direct.h"
#include "fleet/ops/matmul_bare.h"

namespace fleet::exec {
namespace {

using ops::Activation;

std::optional<Activation> ActivationOf(const Graph& g, int node) {
  if (g.Is(node, "relu")) return Activation::kRelu;
  if (g.Is(node, "tanh")) return Activation::kTanh;
  if (g.Is(node, "sigmoid")) return Activation::kSigmoid;
  return std::nullopt;
}

// Whether `node` adds one number per column to `x`, a matrix of `columns`.
bool AddsBias(const Graph& g, int node, int x, int64_t columns) {
  if (!g.Is(node, "elementwise_add") || !g.nodes[node].direct) return false;
  const Node& n = g.nodes[node];
  const int y = g.In(n, 1);
  if (g.In(n, 0) != x || y == x || g.numel(y) != columns) return false;
  if (g.dims(y).size() != 1) return false;
  const int64_t axis = g.attr<int64_t>(n, "axis");
  const auto rank = static_cast<int64_t>(g.dims(x).size());
  return g.dims(x).back() == columns && (axis == -1 || axis == rank - 1);
}

void Fuse(Graph& g, int node) {
  auto p = ops::ReadProduct(NodeCall(g, g.nodes[node]));
  if (!p) return;
  int last = node;
  int out = g.Out(g.nodes[node], 0);
  auto take = [&](int next) {
    g.nodes[last].gone = true;
    last = next;
    out = g.Out(g.nodes[next], 0);
  };
  int next = OnlyReader(g, out);
  if (next != kNone && p->bias == kNone && !Separated(g, node, next) &&
      AddsBias(g, next, out, p->shape.n)) {
    p->bias = g.In(g.nodes[next], 1);
    take(next);
    next = OnlyReader(g, out);
  }
  Activation activation = Activation::kNone;
  if (next != kNone && ActivationOf(g, next) && g.nodes[next].direct &&
      !Separated(g, node, next)) {
    activation = *ActivationOf(g, next);
    take(next);
  }
  if (last == node) return;
  g.nodes[last].fused = true;
  g.nodes[last].direct = ops::ProductWork(*p, out, activation);
  g.Reads(last, {p->a, p->b, p->bias});
}

}  // namespace

void FuseFc(Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int node = static_cast<int>(i);
    const bool product = graph.Is(node, "fc") || graph.Is(node, "mul") ||
                         graph.Is(node, "matmul_v2");
    if (product && graph.nodes[i].direct) Fuse(graph, node);
  }
}

}  // namespace fleet::exec
