// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/plan_layout.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/Parallel.h>

#include "fleet/exec/direct.h"
#include "fleet/program/window.h"

namespace fleet::exec {
namespace {

using program::Window;
using Ints = std::vector<int64_t>;

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

class Pass {
 public:
  explicit Pass(Graph& graph) : g_(graph) {
    for (const Node& node : g_.nodes) TakeMask(node);
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
  void TakeMask(const Node& node) {
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
    if (!ReadPool(g_, node)) numbers.type.dtype = DType::kInt64;
  }

  // Brings the inputs of a node into the form that it takes.
  void Settle(Node& node) {
    const bool image = IsImageNode(node);
    const bool last = image || (AnyLast(node) && DoesNotCare(node));
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

  bool IsImageNode(const Node& node) {
    if (node.kernel == nullptr) return false;
    const std::string& type = node.kernel->def().name;
    if (type == "conv2d" || type == "depthwise_conv2d") {
      return ReadConv(g_, node).has_value();
    }
    if (type == "batch_norm") return IsTrainingNorm(g_, node);
    return ReadPool(g_, node).has_value();
  }

  // Everything but filters, which are the second input of convolutions.
  bool IsImageSlot(const Node& node, int input) const {
    const std::string& type = node.kernel->def().name;
    return !type.ends_with("conv2d") || input != g_.In(node, 1);
  }

  // Whether a node works element by element, so that it takes any form that all
  // of its images have.
  bool DoesNotCare(const Node& node) const {
    static const std::set<std::string_view> kUnary = {
        "relu", "tanh", "sigmoid", "square", "scale", "sum"};
    static const std::set<std::string_view> kBinary = {
        "elementwise_add", "elementwise_sub", "elementwise_mul"};
    if (node.kernel == nullptr) return false;
    const std::string& type = node.kernel->def().name;
    if (kUnary.contains(type)) return true;
    if (!kBinary.contains(type)) return false;
    const int x = g_.In(node, 0), y = g_.In(node, 1);
    if (!IsImage(g_, x) || y == kNone) return false;
    const int64_t axis = g_.attr<int64_t>(node, "axis");
    return g_.dims(x) == g_.dims(y) || g_.numel(y) == 1 ||
           (axis == 1 && g_.dims(y) == Dims{g_.dims(x)[1]});
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
  const bool any = std::any_of(
      graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
        return node.kernel != nullptr && ReadConv(graph, node).has_value();
      });
  if (any) Pass(graph).Run(plain);
}

bool LiesLast(const Graph& g, int image) {
  return g.values[image].channels_last || IsTrivial(g.dims(image));
}

std::optional<ops::ConvShape> ReadConv(const Graph& g, const Node& n) {
  const std::string& type = n.kernel->def().name;
  if ((type != "conv2d" && type != "depthwise_conv2d") || !ops::ConvIsFast()) {
    return std::nullopt;
  }
  const int x = g.In(n, 0), filter = g.In(n, 1);
  const int y = n.kernel->backward ? n.inputs.back() : g.Out(n, 0);
  if (!IsImage(g, x) || !IsImage(g, filter) || !IsImage(g, y) ||
      g.attr<std::string>(n, "data_format") == "NHWC") {
    return std::nullopt;
  }
  const Dims &in = g.dims(x), &f = g.dims(filter), &out = g.dims(y);
  auto windows = program::MakeWindows(
      {.kernel = std::span(f).subspan(2),
       .strides = g.attr<Ints>(n, "strides"),
       .dilations = g.attr<Ints>(n, "dilations"),
       .paddings = g.attr<Ints>(n, "paddings"),
       .algorithm = g.attr<std::string>(n, "padding_algorithm")},
      std::span(in).subspan(2));
  if (!windows.ok()) return std::nullopt;
  ops::ConvShape s{.batch = in[0],
                   .in_channels = in[1],
                   .out_channels = out[1],
                   .in_size = {in[2], in[3]},
                   .out_size = {out[2], out[3]},
                   .kernel = {f[2], f[3]},
                   .groups = g.attr<int64_t>(n, "groups")};
  if (s.groups < 1 || f[0] != out[1] || f[1] * s.groups != in[1]) {
    return std::nullopt;
  }
  for (size_t i = 0; i < 2; ++i) {
    const Window& w = (*windows)[i];
    s.stride[i] = w.stride;
    s.dilation[i] = w.dilation;
    s.padding_before[i] = w.begin;
    // oneDNN wants the padding that the last window really uses.
    s.padding_after[i] = (s.out_size[i] - 1) * w.stride +
                         (w.kernel - 1) * w.dilation + 1 - w.begin -
                         s.in_size[i];
  }
  return s;
}

std::optional<PoolShape> ReadPool(const Graph& g, const Node& n) {
  const std::string& type = n.kernel->def().name;
  if (type != "pool2d" && type != "max_pool2d_with_index" &&
      type != "adaptive_avg_pool2d") {
    return std::nullopt;
  }
  const int x = g.In(n, 0);
  const int y = n.kernel->backward ? n.inputs.back() : g.Out(n, 0);
  if (!IsImage(g, x) || !IsImage(g, y) ||
      g.attr<std::string>(n, "data_format") == "NHWC") {
    return std::nullopt;
  }
  const Dims &in = g.dims(x), &out = g.dims(y);
  PoolShape s{.max = type == "max_pool2d_with_index",
              .batch = in[0],
              .channels = in[1],
              .in_size = {in[2], in[3]},
              .out_size = {out[2], out[3]},
              .kernel = {in[2], in[3]},
              .stride = {1, 1},
              .begin = {0, 0}};
  bool whole = type == "adaptive_avg_pool2d";
  if (type == "pool2d") {
    s.max = g.attr<std::string>(n, "pooling_type") == "max";
    whole = g.attr<bool>(n, "global_pooling") || g.attr<bool>(n, "adaptive");
  }
  if (!s.max) {
    if (whole && out[2] == 1 && out[3] == 1) return s;
    return std::nullopt;
  }
  const int mask = n.kernel->backward ? g.In(n, 1) : g.Out(n, 1);
  if (whole || mask == kNone || g.values[mask].type.dtype != DType::kInt32) {
    return std::nullopt;
  }
  auto windows = program::MakeWindows(
      {.kernel = g.attr<Ints>(n, "ksize"),
       .strides = g.attr<Ints>(n, "strides"),
       .paddings = g.attr<Ints>(n, "paddings"),
       .algorithm = g.attr<std::string>(n, "padding_algorithm")},
      std::span(in).subspan(2));
  if (!windows.ok()) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const Window& w = (*windows)[i];
    s.kernel[i] = w.kernel;
    s.stride[i] = w.stride;
    s.begin[i] = w.begin;
    // Every window must see an element.
    if (w.begin >= w.kernel ||
        (s.out_size[i] - 1) * w.stride - w.begin >= s.in_size[i]) {
      return std::nullopt;
    }
  }
  return s;
}

bool IsTrainingNorm(const Graph& g, const Node& n) {
  if (n.kernel->def().name != "batch_norm" || !IsImage(g, g.In(n, 0)) ||
      g.attr<bool>(n, "is_test") || g.attr<bool>(n, "use_global_stats") ||
      g.attr<std::string>(n, "data_layout") == "NHWC") {
    return false;
  }
  const int64_t channels = g.dims(g.In(n, 0))[1];
  auto fits = [&](int value) {
    return g.AreFloat({value}) && g.numel(value) == channels;
  };
  if (n.kernel->backward) {
    return fits(g.In(n, 1)) && fits(g.In(n, 2)) && fits(g.In(n, 3)) &&
           IsImage(g, g.In(n, 4));
  }
  return fits(g.In(n, 1)) && fits(g.In(n, 2)) && fits(g.In(n, 3)) &&
         fits(g.In(n, 4)) && IsImage(g, g.Out(n, 0)) && fits(g.Out(n, 1)) &&
         fits(g.Out(n, 2));
}

}  // namespace fleet::exec
