// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fleet/exec/direct.h"
#include "fleet/ops/sums.h"

namespace fleet::exec {
namespace {

// ---- constants

bool MakeFilled(Graph& g, int node, bool like) {
  Node& n = g.nodes[node];
  const int out = g.Out(n, 0);
  if (!g.AreFloat({out}) || g.values[out].pinned) return false;
  if (!like) {
    const auto& text = g.attr<std::string>(n, "str_value");
    if (!n.inputs.empty() || !text.empty()) return false;
  }
  g.MakeConstant(node, out, static_cast<float>(g.attr<double>(n, "value")));
  return true;
}

bool MakeFillConstant(Graph& g, int node) { return MakeFilled(g, node, false); }
bool MakeFillLike(Graph& g, int node) { return MakeFilled(g, node, true); }

// ---- all elements into one

// `out` is one number, and what it is divided by.
bool MakeTotal(Graph& g, int node, bool mean) {
  Node& n = g.nodes[node];
  const int x = g.In(n, 0), out = g.Out(n, 0);
  if (!g.AreFloat({x, out}) || g.numel(out) != 1) return false;
  g.Reads(node, {x});
  const int64_t size = g.numel(x);
  const double by = mean ? static_cast<double>(size) : 1.0;
  n.direct = [x, out, size, by](void* const* m) {
    *FloatOut(m, out) =
        static_cast<float>(ops::Total(size, FloatIn(m, x)) / by);
  };
  return true;
}

bool MakeTotalGrad(Graph& g, int node, bool mean) {
  Node& n = g.nodes[node];
  const int dout = g.In(n, 1), dx = g.Out(n, 0);
  if (!g.AreFloat({dout, dx}) || g.numel(dout) != 1) return false;
  const int64_t size = g.numel(dx);
  const double share = mean ? 1.0 / static_cast<double>(size) : 1.0;
  if (g.values[dout].origin == Value::kConstant && !g.values[dx].pinned) {
    g.MakeConstant(node, dx,
                   static_cast<float>(g.values[dout].constant * share));
    return true;
  }
  g.Reads(node, {dout});
  n.direct = [dout, dx, size, share](void* const* m) {
    std::fill_n(FloatOut(m, dx), size,
                static_cast<float>(*FloatIn(m, dout) * share));
  };
  return true;
}

template <bool kMean>
bool MakeForward(Graph& g, int node) {
  return MakeTotal(g, node, kMean);
}
template <bool kMean>
bool MakeBackward(Graph& g, int node) {
  return MakeTotalGrad(g, node, kMean);
}

}  // namespace

void AddReductionForms(DirectForms& forms) {
  forms["fill_constant"] = MakeFillConstant;
  forms["fill_any_like"] = MakeFillLike;
  forms["mean"] = MakeForward<true>;
  forms["mean_grad"] = MakeBackward<true>;
  forms["reduce_mean"] = MakeForward<true>;
  forms["reduce_mean_grad"] = MakeBackward<true>;
  forms["reduce_sum"] = MakeForward<false>;
  forms["reduce_sum_grad"] = MakeBackward<false>;
}

}  // namespace fleet::exec
