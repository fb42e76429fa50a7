// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "fleet/exec/direct.h"
#include "fleet/ops/conv_bare.h"

namespace fleet::exec {
namespace {

// Whether `node` adds one number per channel to `x`.
bool AddsChannelBias(const Graph& g, int node, int x) {
  if (!g.Is(node, "elementwise_add") || !g.nodes[node].direct) return false;
  const Node& n = g.nodes[node];
  return g.In(n, 0) == x && g.attr<int64_t>(n, "axis") == 1 &&
         g.dims(g.In(n, 1)) == Dims{g.dims(x)[1]};
}

void Fuse(Graph& g, int node) {
  const Node& n = g.nodes[node];
  const int x = g.In(n, 0), filter = g.In(n, 1);
  int bias = g.In(n, 2), out = g.Out(n, 0), last = node;
  bool relu = false;
  std::vector<int> taken;  // nodes whose work the last one does
  auto take = [&](int next) {
    taken.push_back(last);
    last = next;
    out = g.Out(g.nodes[next], 0);
  };
  int next = OnlyReader(g, out);
  if (next != kNone && bias == kNone && !Separated(g, node, next) &&
      AddsChannelBias(g, next, out)) {
    bias = g.In(g.nodes[next], 1);
    take(next);
    next = OnlyReader(g, out);
  }
  if (next != kNone && g.Is(next, "relu") && g.nodes[next].direct &&
      !Separated(g, node, next)) {
    relu = true;
    take(next);
  }
  const NodeCall conv(g, g.nodes[node]);
  if (last == node || !conv.HasChannelsLast(out)) return;
  Direct work = ops::ConvWork(*ops::ReadConv(conv), x, filter, bias, out, relu);
  if (!work) return;
  for (int other : taken) g.nodes[other].gone = true;
  g.nodes[last].fused = true;
  g.nodes[last].direct = std::move(work);
  g.Reads(last, {x, filter, bias});
}

}  // namespace

void FuseConv(Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int node = static_cast<int>(i);
    if ((graph.Is(node, "conv2d") || graph.Is(node, "depthwise_conv2d")) &&
        graph.nodes[i].direct) {
      Fuse(graph, node);
    }
  }
}

}  // namespace fleet::exec
