// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/direct.h"

#include <utility>

namespace fleet::exec {

NodeCall::NodeCall(Graph& graph, Node& node)
    : BareCall(node.kernel->def(), node.kernel->backward, node.kernel->attrs,
               node.kernel->slot_end, node.inputs, node.outputs),
      graph_(graph),
      node_(node) {}

std::optional<float> NodeCall::Constant(int value) const {
  const Value& v = graph_.values[value];
  if (v.origin != Value::kConstant) return std::nullopt;
  return v.constant;
}

bool NodeCall::Run(std::span<const int> reads, Direct work) {
  node_.reads.assign(reads.begin(), reads.end());
  std::erase(node_.reads, kNone);
  node_.direct = std::move(work);
  return true;
}

bool NodeCall::Fill(int out, float number) {
  if (graph_.values[out].pinned) return false;
  graph_.MakeConstant(node_, out, number);
  return true;
}

int OnlyReader(const Graph& graph, int value) {
  const Value& v = graph.values[value];
  if (v.needed_after || v.pinned || v.readers.size() != 1) return kNone;
  return v.readers[0];
}

bool Separated(const Graph& graph, int first, int last) {
  for (int i = first; i <= last; ++i) {
    if (!graph.nodes[i].step->in_place.empty()) return true;
  }
  return false;
}

void MakeDirectForms(Graph& graph, bool fusing) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    if (node.direct) continue;
    if (node.kernel == nullptr) {
      MakeOptimizerDirect(graph, static_cast<int>(i));
      continue;
    }
    const ops::Op& op = *node.kernel->op;
    const ops::BareForm form = op.bare(node.kernel->backward);
    if (form == nullptr) continue;
    NodeCall call(graph, node);
    // Images that lie as the program has them are a matter of kernels.
    if (!fusing && op.LayoutOf(call) == ops::ImageLayout::kChannelsLast) {
      continue;
    }
    form(call);
  }
  graph.CountReaders();
  if (!fusing) return;
  FuseFc(graph);
  FuseConv(graph);
  graph.CountReaders();
  FuseChains(graph);
  graph.CountReaders();
}

}  // namespace fleet::exec
