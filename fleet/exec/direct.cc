// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/direct.h"

#include <string>

namespace fleet::exec {
namespace {

const DirectForms& Forms() {
  static const DirectForms forms = [] {
    DirectForms all;
    AddElementwiseForms(all);
    AddReductionForms(all);
    AddViewForms(all);
    AddMatmulForms(all);
    AddLossForms(all);
    AddConvForms(all);
    AddPoolForms(all);
    AddNormForms(all);
    return all;
  }();
  return forms;
}

}  // namespace

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

void MakeDirectForms(Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int node = static_cast<int>(i);
    if (graph.nodes[i].direct) continue;
    const KernelStep* kernel = graph.nodes[i].kernel;
    if (kernel == nullptr) {
      MakeOptimizerDirect(graph, node);
      continue;
    }
    const std::string type =
        kernel->backward ? kernel->def->name + "_grad" : kernel->def->name;
    auto form = Forms().find(type);
    if (form != Forms().end()) form->second(graph, node);
  }
  graph.CountReaders();
  FuseFc(graph);
  FuseConv(graph);
  graph.CountReaders();
  FuseChains(graph);
  graph.CountReaders();
}

}  // namespace fleet::exec
