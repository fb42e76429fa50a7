// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/direct.h"

#include <string>
#include <utility>

namespace fleet::exec {
namespace {

const DirectForms& Forms() {
  static const DirectForms forms = [] {
    DirectForms all;
    AddElementwiseForms(all);
    AddReductionForms(all);
    AddViewForms(all);
    AddMatmulForms(all);
    AddConvForms(all);
    AddPoolForms(all);
    AddNormForms(all);
    return all;
  }();
  return forms;
}

}  // namespace

NodeCall::NodeCall(Graph& graph, int node)
    : BareCall(graph.nodes[node].kernel->def(), graph.nodes[node].kernel->attrs,
               graph.nodes[node].kernel->slot_end, graph.nodes[node].inputs,
               graph.nodes[node].outputs),
      graph_(graph),
      node_(node) {}

std::optional<float> NodeCall::Constant(int value) const {
  const Value& v = graph_.values[value];
  if (v.origin != Value::kConstant) return std::nullopt;
  return v.constant;
}

bool NodeCall::Run(std::initializer_list<int> reads, Direct work) {
  graph_.Reads(node_, reads);
  graph_.nodes[node_].direct = std::move(work);
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
    const int node = static_cast<int>(i);
    if (graph.nodes[i].direct) continue;
    const KernelStep* kernel = graph.nodes[i].kernel;
    if (kernel == nullptr) {
      MakeOptimizerDirect(graph, node);
      continue;
    }
    const ops::BareForm bare =
        kernel->backward ? kernel->op->bare_backward : kernel->op->bare_forward;
    if (bare != nullptr) {
      NodeCall call(graph, node);
      bare(call);
      continue;
    }
    const std::string type =
        kernel->backward ? kernel->def().name + "_grad" : kernel->def().name;
    auto form = Forms().find(type);
    if (form != Forms().end()) form->second(graph, node);
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
