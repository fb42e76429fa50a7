// SPDX-License-Identifier: Apache-2.0

// Nodes as calls on bare memory with every shape fixed, in place of kernels
// over tensors. What such a call does says the form of its op (ops/bare.h);
// here is what several nodes become together. A node without form stays what it
// is.

#ifndef FLEET_EXEC_DIRECT_H_
#define FLEET_EXEC_DIRECT_H_

#include <cstdint>
#include <optional>
#include <span>

#include "fleet/exec/plan_graph.h"

namespace fleet::exec {

// A node as the forms of ops see it (ops/bare.h).
class NodeCall final : public ops::BareCall {
 public:
  // The node of a kernel. Both outlive it.
  NodeCall(Graph& graph, Node& node);

  const program::TensorType& type(int value) const override {
    return graph_.values[value].type;
  }
  bool IsDense(int value) const override { return graph_.values[value].dense; }
  bool ChannelsLast(int value) const override {
    return graph_.values[value].channels_last;
  }
  std::optional<float> Constant(int value) const override;

  using BareCall::Run;
  bool Run(std::span<const int> reads, Direct work) override;
  bool Fill(int out, float number) override;
  bool Share(int out, int in) override { return graph_.Share(out, in); }

 private:
  Graph& graph_;
  Node& node_;
};

// Turns a product, the bias added to it and an activation into one node, where
// nobody else needs what lies between them.
void FuseFc(Graph& graph);

// Turns a convolution, the bias added to it and relu into one node, likewise.
void FuseConv(Graph& graph);

// Turns runs of elementwise nodes into one node each (chain.h), and gives
// elementwise nodes without direct form one. After the other fusions.
void FuseChains(Graph& graph);

// Updates of float parameters on bare memory.
bool MakeOptimizerDirect(Graph& graph, int node);

// All of it, over the whole graph; without `fusing` each node for itself, with
// images as the program has them.
void MakeDirectForms(Graph& graph, bool fusing);

// ---- for the fusions

// The only node that reads `value`, which nobody else needs; or kNone.
int OnlyReader(const Graph& graph, int value);
// Whether a step that changes memory stands between the two.
bool Separated(const Graph& graph, int first, int last);

}  // namespace fleet::exec

#endif  // FLEET_EXEC_DIRECT_H_
