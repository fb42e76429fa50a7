// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>
#include <vector>

#include "fleet/exec/direct.h"
#include "fleet/exec/plan_layout.h"
#include "fleet/ops/conv.h"

namespace fleet::exec {
namespace {

using ops::ConvShape;

// Null where there is no fast convolution of that shape.
Direct MakeConvCall(const ConvShape& shape, int x, int filter, int bias, int y,
                    bool relu) {
  const std::shared_ptr<ops::PreparedConv> conv =
      ops::PreparedConv::Make(shape, bias != kNone, relu);
  if (conv == nullptr) return nullptr;
  return [=](void* const* m) {
    conv->Run(FloatIn(m, x), FloatIn(m, filter),
              bias == kNone ? nullptr : FloatIn(m, bias), FloatOut(m, y));
  };
}

bool MakeConv(Graph& g, int node) {
  Node& n = g.nodes[node];
  const auto shape = ReadConv(g, n);
  const int x = g.In(n, 0), filter = g.In(n, 1), bias = g.In(n, 2);
  const int y = g.Out(n, 0);
  if (!shape || !LiesLast(g, x) || !LiesLast(g, y)) return false;
  if (bias != kNone &&
      (!g.AreFloat({bias}) || g.numel(bias) != shape->out_channels)) {
    return false;
  }
  n.direct = MakeConvCall(*shape, x, filter, bias, y, false);
  if (!n.direct) return false;
  g.Reads(node, {x, filter, bias});
  return true;
}

bool MakeConvGrad(Graph& g, int node) {
  Node& n = g.nodes[node];
  const auto shape = ReadConv(g, n);
  if (!shape) return false;
  const int x = g.In(n, 0), filter = g.In(n, 1), dy = n.inputs.back();
  const int dx = g.Out(n, 0), dfilter = g.Out(n, 1), dbias = g.Out(n, 2);
  if (!LiesLast(g, x) || !LiesLast(g, dy) ||
      (dx != kNone && !LiesLast(g, dx))) {
    return false;
  }
  for (int grad : {dx, dfilter, dbias}) {
    if (grad != kNone && !g.AreFloat({grad})) return false;
  }
  // The gradient of a bias comes with that of the filter.
  if (dfilter == kNone && dbias != kNone) return false;
  std::shared_ptr<ops::PreparedConvInputGrad> to_input;
  std::shared_ptr<ops::PreparedConvFilterGrad> to_filter;
  if (dx != kNone) {
    to_input = ops::PreparedConvInputGrad::Make(*shape);
    if (to_input == nullptr) return false;
  }
  if (dfilter != kNone) {
    to_filter = ops::PreparedConvFilterGrad::Make(*shape, dbias != kNone);
    if (to_filter == nullptr) return false;
  }
  g.Reads(node,
          {dy, dx == kNone ? kNone : filter, dfilter == kNone ? kNone : x});
  n.direct = [=](void* const* m) {
    if (to_input) {
      to_input->Run(FloatIn(m, dy), FloatIn(m, filter), FloatOut(m, dx));
    }
    if (to_filter) {
      to_filter->Run(FloatIn(m, x), FloatIn(m, dy), FloatOut(m, dfilter),
                     dbias == kNone ? nullptr : FloatOut(m, dbias));
    }
  };
  return true;
}

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
  if (last == node || !LiesLast(g, out)) return;
  Direct call =
      MakeConvCall(*ReadConv(g, g.nodes[node]), x, filter, bias, out, relu);
  if (!call) return;
  for (int other : taken) g.nodes[other].gone = true;
  g.nodes[last].fused = true;
  g.nodes[last].direct = std::move(call);
  g.Reads(last, {x, filter, bias});
}

}  // namespace

void AddConvForms(DirectForms& forms) {
  for (const char* op : {"conv2d", "depthwise_conv2d"}) forms[op] = MakeConv;
  for (const char* op : {"conv2d_grad", "depthwise_conv2d_grad"}) {
    forms[op] = MakeConvGrad;
  }
}

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
