// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_EXEC_PLAN_LAYOUT_H_
#define FLEET_EXEC_PLAN_LAYOUT_H_

#include <optional>
#include <vector>

#include "fleet/exec/plan_graph.h"
#include "fleet/ops/conv.h"

namespace fleet::exec {

// Images between convolutions, pools and norms lie with the channels last, in
// which form those are fastest and everything element by element does not care.
// Marks such values, and puts nodes that turn images around where the form
// changes. Every value of `plain` is replaced by one in the ordinary form.
void ChooseLayouts(Graph& graph, const std::vector<int*>& plain);

// ---- what the forms of image nodes share with it. Nothing where a node is not
// one that they take.

// Whether an image lies as these forms take it: with the channels last, or so
// that both ways are the same memory. In a graph without convolutions most lie
// in the ordinary way.
bool LiesLast(const Graph& graph, int image);

// The shape of a conv2d or of its gradient.
std::optional<ops::ConvShape> ReadConv(const Graph& graph, const Node& node);

// A maximum pool or its gradient, where a number says which element of its
// window won, or the average over all of an image.
struct PoolShape {
  bool max;
  int64_t batch, channels;
  int64_t in_size[2], out_size[2];
  int64_t kernel[2], stride[2], begin[2];
};
std::optional<PoolShape> ReadPool(const Graph& graph, const Node& node);

// Whether it is a batch_norm in training, or the gradient of one.
bool IsTrainingNorm(const Graph& graph, const Node& node);

}  // namespace fleet::exec

#endif  // FLEET_EXEC_PLAN_LAYOUT_H_
