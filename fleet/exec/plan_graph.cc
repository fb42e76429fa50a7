// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/plan_graph.h"

#include <algorithm>
#include <utility>

namespace fleet::exec {

int64_t Value::numel() const {
  int64_t n = 1;
  for (int64_t dim : type.dims) n *= dim;
  return n;
}

bool Graph::Is(int node, std::string_view type) const {
  if (node == kNone || nodes[node].kernel == nullptr) return false;
  const KernelStep& kernel = *nodes[node].kernel;
  if (!kernel.backward) return type == kernel.def().name;
  return type.ends_with("_grad") &&
         type.substr(0, type.size() - 5) == kernel.def().name;
}

int Graph::In(const Node& node, size_t slot) const {
  const std::vector<uint32_t>& ends = node.kernel->slot_end;
  const size_t begin = slot == 0 ? 0 : ends[slot - 1];
  return begin < ends[slot] ? node.inputs[begin] : kNone;
}

int Graph::Out(const Node& node, size_t position) const {
  return position < node.outputs.size() ? node.outputs[position] : kNone;
}

bool Graph::AreFloat(std::span<const int> list) const {
  return std::all_of(list.begin(), list.end(), [&](int value) {
    return value != kNone && values[value].is_float();
  });
}

void Graph::Reads(int node, std::vector<int> reads) {
  std::erase(reads, kNone);
  nodes[node].reads = std::move(reads);
}

int Graph::Home(int value) const {
  while (values[value].memory_of != kNone) value = values[value].memory_of;
  return value;
}

bool Graph::Share(int value, int other) {
  const Value& home = values[Home(other)];
  if (values[value].pinned || home.pinned || values[other].pinned ||
      home.origin == Value::kKept || !values[value].dense || !home.dense) {
    return false;
  }
  values[value].memory_of = other;
  return true;
}

void Graph::MakeConstant(Node& node, int value, float number) {
  values[value].origin = Value::kConstant;
  values[value].constant = number;
  values[value].maker = kNone;
  node.gone = true;
  node.reads.clear();
}

void Graph::CountReaders() {
  for (Value& value : values) {
    value.readers.clear();
    value.maker = kNone;
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    // What is changed in place was made before.
    for (int out : nodes[i].outputs) {
      if (out == kNone || values[out].origin != Value::kMade) continue;
      if (values[out].maker == kNone) values[out].maker = static_cast<int>(i);
    }
    if (nodes[i].gone) continue;
    for (int value : nodes[i].reads) {
      values[value].readers.push_back(static_cast<int>(i));
    }
  }
}

}  // namespace fleet::exec
