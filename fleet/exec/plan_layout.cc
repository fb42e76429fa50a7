// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/plan_layout.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/Parallel.h>

#include "fleet/exec/direct.h"

namespace fleet::exec {
namespace {

using ops::ImageLayout;

bool IsImage(const Graph& g, int value) {
  return value != kNone && g.values[value].is_float() &&
         g.dims(value).size() == 4 && g.numel(value) > 0;
}

// Whether both forms are the same memory.
bool IsTrivial(const Dims& dims) {
  return dims[1] == 1 || dims[2] * dims[3] == 1;
}

// to[j * rows + i] = from[i * columns + j], in tiles that stay in the cache.
void Transpose(int64_t rows, int64_t columns, const float* from, float* to) {
  constexpr int64_t kTile = 16;
  for (int64_t i = 0; i < rows; i += kTile) {
    const int64_t end_i = std::min(i + kTile, rows);
    for (int64_t j = 0; j < columns; j += kTile) {
      const int64_t end_j = std::min(j + kTile, columns);
      for (int64_t b = j; b < end_j; ++b) {
        for (int64_t a = i; a < end_i; ++a) {
          to[b * rows + a] = from[a * columns + b];
        }
      }
    }
  }
}

Direct MakeTurn(const Dims& dims, int from, int to, bool to_last) {
  const int64_t channels = dims[1], area = dims[2] * dims[3];
  const int64_t rows = to_last ? channels : area;
  const int64_t columns = to_last ? area : channels;
  return [=, batch = dims[0]](void* const* m) {
    const float* source = FloatIn(m, from);
    float* target = FloatOut(m, to);
    at::parallel_for(0, batch, std::max<int64_t>(32768 / (rows * columns), 1),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t n = begin; n < end; ++n) {
                         Transpose(rows, columns, source + n * rows * columns,
                                   target + n * rows * columns);
                       }
                     });
  };
}

ImageLayout LayoutOf(Graph& g, Node& node) {
  if (node.kernel == nullptr) return ImageLayout::kAsDefined;
  return node.kernel->op->LayoutOf(NodeCall(g, node));
}

bool IsConv(const Node& node) {
  return node.kernel->def().name.ends_with("conv2d");
}

class Pass {
 public:
  explicit Pass(Graph& graph) : g_(graph) {
    for (Node& node : g_.nodes) TakeMask(node);
  }

  void Run(const std::vector<int*>& plain) {
    std::vector<Node> nodes = std::move(g_.nodes);
    g_.nodes.clear();
    for (Node& node : nodes) {
      Settle(node);
      // What the node changes in place is not what was turned before.
      for (int out : node.outputs) {
        if (out != kNone && g_.values[out].pinned) turned_.erase(out);
      }
      g_.nodes.push_back(std::move(node));
    }
    for (int* value : plain) {
      const int before = *value;
      *value = Turned(before, false, nodes.empty() ? Node{} : g_.nodes.back());
      if (*value != before) g_.values[*value].needed_after = true;
    }
    g_.CountReaders();
  }

 private:
  // The forms of a maximum pool keep a small number in place of that of each
  // element that won, if nobody but the gradient reads that.
  void TakeMask(Node& node) {
    if (node.kernel == nullptr || node.kernel->backward ||
        (node.kernel->def().name != "pool2d" &&
         node.kernel->def().name != "max_pool2d_with_index")) {
      return;
    }
    const int mask = g_.Out(node, 1);
    if (mask == kNone || g_.values[mask].type.dtype != DType::kInt64) return;
    Value& numbers = g_.values[mask];
    if (numbers.needed_after || numbers.pinned) return;
    for (int reader : numbers.readers) {
      if (!g_.Is(reader, node.kernel->def().name + "_grad")) return;
    }
    numbers.type.dtype = DType::kInt32;
    // A pool that the forms do not take gives numbers after all.
    if (LayoutOf(g_, node) != ImageLayout::kChannelsLast) {
      numbers.type.dtype = DType::kInt64;
    }
  }

  // Brings the inputs of a node into the form that it takes.
  void Settle(Node& node) {
    const ImageLayout layout = LayoutOf(g_, node);
    const bool image = layout == ImageLayout::kChannelsLast;
    const bool last = image || (layout == ImageLayout::kAny && AnyLast(node));
    for (int& input : node.inputs) {
      if (IsImage(g_, input) && (!image || IsImageSlot(node, input))) {
        const int turned = Turned(input, last, node);
        std::replace(node.reads.begin(), node.reads.end(), input, turned);
        input = turned;
      }
    }
    if (!last) return;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const int out = node.outputs[i];
      // The gradients of filters are no images.
      if (image && i > 0) break;
      if (IsImage(g_, out) && !IsTrivial(g_.dims(out))) {
        g_.values[out].channels_last = true;
      }
    }
  }

  bool AnyLast(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
      return input != kNone && g_.values[input].channels_last;
    });
  }

  // Everything but filters, which are the second input of convolutions.
  bool IsImageSlot(const Node& node, int input) const {
    return !IsConv(node) || input != g_.In(node, 1);
  }

  // `value` in the form asked for: itself, or what a new node makes of it.
  int Turned(int value, bool last, const Node& reader) {
    if (g_.values[value].channels_last == last || IsTrivial4(value)) {
      return value;
    }
    auto [entry, is_new] = turned_.try_emplace(value, kNone);
    if (!is_new) return entry->second;
    Value copy;
    copy.place = g_.values[value].place;
    copy.type = g_.values[value].type;
    copy.channels_last = last;
    g_.values.push_back(std::move(copy));
    const int made = static_cast<int>(g_.values.size()) - 1;
    entry->second = made;
    Node node;
    node.step = reader.step;
    node.inputs = node.reads = {value};
    node.outputs = {made};
    node.direct = MakeTurn(g_.dims(value), value, made, last);
    g_.nodes.push_back(std::move(node));
    return made;
  }

  bool IsTrivial4(int value) const {
    return g_.dims(value).size() != 4 || IsTrivial(g_.dims(value));
  }

  Graph& g_;
  std::map<int, int> turned_;
};

}  // namespace

void ChooseLayouts(Graph& graph, const std::vector<int*>& plain) {
  const bool any =
      std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](Node& node) {
        return LayoutOf(graph, node) == ImageLayout::kChannelsLast &&
               IsConv(node);
      });
  if (any) Pass(graph).Run(plain);
}

}  // namespace fleet::exec
