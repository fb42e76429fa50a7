// SPDX-License-Identifier: Apache-2.0
// Convolutions and pools, in Paddle's ops.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "fleet/saved/dialect_parts.h"

namespace fleet::saved {

using program::AttrMap;
using program::Dims;
using program::DType;
using program::Operation;
using program::TensorType;

namespace {

struct PoolKind {
  const char* type;  // "max" or "avg"
  bool adaptive;
  size_t rank;
};

void Pool(Replacement& r, const PoolKind& kind) {
  const bool flat = kind.rank == 1;
  const size_t rank = flat ? 2 : kind.rank;
  const bool last = IsChannelLast(r.op);
  const std::string out = r.Out("Out");
  std::string x = r.In("X");
  Ints size = AttrOr<Ints>(r.op, kind.adaptive ? "output_size" : "ksize");
  Ints strides = AttrOr<Ints>(r.op, "strides");
  Ints paddings = AttrOr<Ints>(r.op, "paddings", Ints{0});
  if (strides.empty()) strides = size;
  const TensorType type = r.TypeOf(x);
  if (flat) {
    size.insert(size.begin(), 1);
    strides.insert(strides.begin(), 1);
    paddings.insert(paddings.begin(), paddings.size() == 2 ? 2 : 1, 0);
    x = r.Unsqueeze(x, last ? 1 : 2);
  }
  size = Spread(std::move(size), rank);
  if (kind.adaptive) {
    // An output as large as the input.
    const Dims dims = r.TypeOf(x).dims;
    for (size_t i = 0; i < size.size() && i + 2 < dims.size(); ++i) {
      if (size[i] < 0) size[i] = dims[i + (last ? 1 : 2)];
    }
    strides.assign(rank, 1);
  }
  TensorType pooled = r.TypeOf(out);
  if (flat) pooled.dims.insert(pooled.dims.begin() + (last ? 1 : 2), 1);
  const std::string grid = flat ? r.Temporary(out, std::move(pooled)) : out;
  if (kind.adaptive && std::string_view(kind.type) == "max" && !last) {
    // The largest of windows of different sizes is another op.
    r.Add(rank == 3 ? "max_pool3d_with_index" : "max_pool2d_with_index",
          {{"X", {x}}},
          {{"Out", {grid}},
           {"Mask", {r.Temporary(out, {DType::kInt32, r.TypeOf(grid).dims})}}},
          {{"ksize", ListAttr(std::move(size))},
           {"strides", ListAttr(Ints(rank, 1))},
           {"paddings", ListAttr(Ints(rank, 0))},
           {"adaptive", FlagAttr(true)},
           {"global_pooling", FlagAttr(false)}});
    if (flat) r.Squeeze(grid, 2, out);
    return;
  }
  const std::string formats[] = {last ? "NHWC" : "NCHW",
                                 last ? "NDHWC" : "NCDHW"};
  r.Add(rank == 3 ? "pool3d" : "pool2d", {{"X", {x}}}, {{"Out", {grid}}},
        {{"pooling_type", TextAttr(kind.type)},
         {"ksize", ListAttr(std::move(size))},
         {"strides", ListAttr(Spread(std::move(strides), rank))},
         {"paddings", ListAttr(Spread(std::move(paddings), rank))},
         {"adaptive", FlagAttr(kind.adaptive)},
         {"global_pooling", FlagAttr(false)},
         {"exclusive", FlagAttr(AttrOr<bool>(r.op, "exclusive", true))},
         {"ceil_mode", FlagAttr(AttrOr<bool>(r.op, "ceil_mode"))},
         {"padding_algorithm",
          TextAttr(AttrOr<std::string>(r.op, "padding_algorithm", "EXPLICIT"))},
         {"data_format", TextAttr(formats[rank - 2])},
         {"use_cudnn", FlagAttr(true)}});
  if (flat) r.Squeeze(grid, last ? 1 : 2, out);
}

// Whether `type` is one of our pools, and which.
bool FindPool(std::string_view type, PoolKind& kind) {
  kind.adaptive = type.starts_with("adaptive_");
  if (kind.adaptive) type.remove_prefix(std::string_view("adaptive_").size());
  if (!type.starts_with("max_pool") && !type.starts_with("avg_pool")) {
    return false;
  }
  kind.type = type[0] == 'm' ? "max" : "avg";
  kind.rank =
      static_cast<size_t>(type[std::string_view("max_pool").size()] - '0');
  return kind.rank >= 1 && kind.rank <= 3;
}

}  // namespace

// A convolution over one dimension is one over two, of which the first has the
// size one.
void ConvToPaddle(Replacement& r) {
  const bool flat = r.op.type.starts_with("conv1d");
  const size_t rank = r.op.type.starts_with("conv3d") ? 3 : 2;
  const bool last = IsChannelLast(r.op);
  const std::string out = r.Out("Output");
  const std::string bias = r.In("Bias");
  std::string input = r.In("Input");
  std::string filter = r.In("Filter");
  AttrMap attrs = r.op.attrs;
  Ints strides = AttrOr<Ints>(r.op, "strides");
  Ints dilations = AttrOr<Ints>(r.op, "dilations");
  Ints paddings = AttrOr<Ints>(r.op, "paddings");
  if (flat) {
    input = r.Unsqueeze(input, last ? 1 : 2);
    filter = r.Unsqueeze(filter, 2);
    strides.insert(strides.begin(), 1);
    dilations.insert(dilations.begin(), 1);
    paddings.insert(paddings.begin(), paddings.size() == 2 ? 2 : 1, 0);
    attrs["data_format"] = TextAttr(last ? "NHWC" : "NCHW");
    Ints more = AttrOr<Ints>(r.op, "output_padding");
    if (!more.empty()) {
      attrs["output_padding"] = ListAttr({0, more.front()});
    }
  }
  attrs["strides"] = ListAttr(Spread(std::move(strides), rank));
  attrs["dilations"] = ListAttr(Spread(std::move(dilations), rank));
  attrs["paddings"] = ListAttr(Spread(std::move(paddings), rank));
  TensorType type = r.TypeOf(out);
  if (flat) type.dims.insert(type.dims.begin() + (last ? 1 : 2), 1);
  const std::string grid =
      flat || !bias.empty() ? r.Temporary(out, std::move(type)) : out;
  std::string name = r.op.type;
  if (flat) name[name.find('1')] = '2';
  r.Add(name, {{"Input", {input}}, {"Filter", {filter}}}, {{"Output", {grid}}},
        std::move(attrs));
  std::string plain = grid;
  if (flat) {
    plain = bias.empty() ? out : r.Temporary(out, r.TypeOf(out));
    r.Squeeze(grid, last ? 1 : 2, plain);
  }
  if (bias.empty()) return;
  const auto channel = last ? static_cast<int64_t>(r.RankOf(out)) - 1 : 1;
  r.AddBias(plain, bias, out, channel);
}

bool PoolToPaddle(Replacement& r) {
  PoolKind kind;
  if (!FindPool(r.op.type, kind)) return false;
  // Paddle has no op that divides by a number of one's own, and the op that
  // says where the maxima are is another one.
  const std::string mask = r.Out("Mask");
  const bool masked = !mask.empty() && r.IsUsed(mask);
  const bool divided = AttrOr<int64_t>(r.op, "divisor") != 0;
  if (masked || divided) {
    r.Keep();
  } else {
    Pool(r, kind);
  }
  return true;
}

}  // namespace fleet::saved
