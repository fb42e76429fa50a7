// SPDX-License-Identifier: Apache-2.0
// A program that is saved, in Paddle's ops.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/saved/dialect.h"
#include "fleet/saved/dialect_parts.h"

namespace fleet::saved {

using program::AttrKind;
using program::AttrMap;
using program::AttrValue;
using program::Block;
using program::Dims;
using program::DType;
using program::OpDef;
using program::Operation;
using program::OpRegistry;
using program::Program;
using program::SlotDef;
using program::Slots;
using program::TensorType;

namespace {

// ---- layers

void Fc(Replacement& r) {
  const std::string out = r.Out("Out");
  const std::string bias = r.In("Bias");
  const auto rank = static_cast<int64_t>(r.RankOf(r.In("Input")));
  const std::string product =
      bias.empty() ? out : r.Temporary(out, r.TypeOf(out));
  r.Add(
      "mul", {{"X", {r.In("Input")}}, {"Y", {r.In("W")}}}, {{"Out", {product}}},
      {{"x_num_col_dims", IntAttr(rank - 1)}, {"y_num_col_dims", IntAttr(1)}});
  if (!bias.empty()) r.AddBias(product, bias, out, rank - 1);
}

void Matmul(Replacement& r) {
  if (r.version == Paddle::k2) return r.Keep();
  r.Add("matmul", std::move(r.op.inputs), std::move(r.op.outputs),
        {{"transpose_X", FlagAttr(AttrOr<bool>(r.op, "trans_x"))},
         {"transpose_Y", FlagAttr(AttrOr<bool>(r.op, "trans_y"))},
         {"alpha", {AttrKind::kFloat, 1.0}}});
}

void BatchNorm(Replacement& r) {
  // In place: the running mean and variance.
  for (auto [slot, from] :
       {std::pair("MeanOut", "Mean"), std::pair("VarianceOut", "Variance")}) {
    if (r.Out(slot).empty()) r.op.outputs.push_back({slot, {r.In(from)}});
  }
  r.Keep();
}

void Flatten(Replacement& r) {
  const std::string x = r.In("X");
  const std::string out = r.Out("Out");
  if (r.version == Paddle::k2) {
    r.op.outputs = r.WithShapeBefore(x, out);
    return r.Keep();
  }
  const auto rank = static_cast<int64_t>(r.RankOf(x));
  int64_t begin = AttrOr<int64_t>(r.op, "start_axis", 1);
  int64_t end = AttrOr<int64_t>(r.op, "stop_axis", -1);
  if (begin < 0) begin += rank;
  if (end < 0) end += rank;
  // 0 keeps what is at the same place; what comes behind must be known.
  const Dims dims = r.TypeOf(x).dims;
  Ints shape(static_cast<size_t>(begin), 0);
  shape.push_back(-1);
  for (int64_t i = end + 1; i < rank; ++i) shape.push_back(dims[i]);
  r.Add("reshape2", {{"X", {x}}}, r.WithShapeBefore(x, out),
        {{"shape", ListAttr(std::move(shape))}});
}

void Reshaping(Replacement& r) {
  if (r.Out("XShape").empty()) {
    r.op.outputs = r.WithShapeBefore(r.In("X"), r.Out("Out"));
  }
  r.Keep();
}

void Reduction(Replacement& r) {
  if (AttrOr<Ints>(r.op, "dim").empty()) {
    r.op.attrs.insert_or_assign("reduce_all", FlagAttr(true));
    r.op.attrs.insert_or_assign("dim", ListAttr({0}));
  }
  r.Keep();
}

void LogSumExp(Replacement& r) {
  Ints axis = AttrOr<Ints>(r.op, "dim");
  const bool all = axis.empty();
  r.op.attrs["axis"] = ListAttr(all ? Ints{0} : axis);
  r.op.attrs["keepdim"] = FlagAttr(AttrOr<bool>(r.op, "keep_dim"));
  r.op.attrs["reduce_all"] = FlagAttr(all || AttrOr<bool>(r.op, "reduce_all"));
  r.op.attrs.erase("dim");
  r.op.attrs.erase("keep_dim");
  r.Keep();
}

// No groups: each channel is one.
void GroupNorm(Replacement& r) {
  if (AttrOr<int64_t>(r.op, "groups") != 0) return r.Keep();
  const std::string out = r.Out("Y");
  r.Add("instance_norm", std::move(r.op.inputs),
        {{"Y", {out}},
         {"SavedMean", {r.Out("Mean")}},
         {"SavedVariance", {r.Out("Variance")}}},
        {{"epsilon", r.op.attrs["epsilon"]}});
}

void Prelu(Replacement& r) {
  int64_t count = 1;
  for (int64_t dim : r.TypeOf(r.In("Alpha")).dims) count *= dim;
  r.op.attrs.insert_or_assign("mode", TextAttr(count == 1 ? "all" : "channel"));
  r.Keep();
}

// Ours has two numbers for every dimension, in order; Paddle's pad3d six, for
// the last dimension first, of tensors with five.
void Pad(Replacement& r) {
  const Ints paddings = AttrOr<Ints>(r.op, "paddings");
  const auto mode = AttrOr<std::string>(r.op, "mode", "constant");
  std::string x = r.In("X");
  const std::string out = r.Out("Out");
  if (mode == "constant") {
    r.Add(
        "pad", {{"X", {x}}}, {{"Out", {out}}},
        {{"paddings", ListAttr(paddings)}, {"pad_value", r.op.attrs["value"]}});
    return;
  }
  const size_t rank = paddings.size() / 2;
  if (rank < 3 || rank > 5 || paddings[0] != 0 || paddings[1] != 0 ||
      paddings[2] != 0 || paddings[3] != 0) {
    return r.Keep();
  }
  Ints turned;
  for (size_t i = rank; i-- > 2;) {
    turned.push_back(paddings[2 * i]);
    turned.push_back(paddings[2 * i + 1]);
  }
  turned.resize(6, 0);
  for (size_t i = rank; i < 5; ++i) x = r.Unsqueeze(x, 2);
  TensorType type = r.TypeOf(out);
  type.dims.insert(type.dims.begin() + 2, 5 - rank, 1);
  const std::string padded =
      rank == 5 ? out : r.Temporary(out, std::move(type));
  r.Add("pad3d", {{"X", {x}}}, {{"Out", {padded}}},
        {{"paddings", ListAttr(std::move(turned))},
         {"mode", TextAttr(mode)},
         {"value", r.op.attrs["value"]},
         {"data_format", TextAttr("NCDHW")}});
  if (rank < 5) {
    Ints axes = rank == 4 ? Ints{2} : Ints{2, 3};
    r.Add("squeeze2", {{"X", {padded}}}, r.WithShapeBefore(padded, out),
          {{"axes", ListAttr(std::move(axes))}});
  }
}

// Paddle reads without a look whether they are there.
void Slice(Replacement& r) {
  r.op.attrs.try_emplace("infer_flags",
                         ListAttr(Ints(AttrOr<Ints>(r.op, "axes").size(), 1)));
  r.op.attrs.try_emplace("decrease_axis", ListAttr({}));
  r.Keep();
}

void Unstack(Replacement& r) {
  const auto count = static_cast<int64_t>(r.op.output("Y").size());
  r.op.attrs.insert_or_assign("num", IntAttr(count));
  r.Keep();
}

// Ours has paddings before and behind, dimension by dimension; Paddle's unfold
// above, left, below, right.
void Unfold(Replacement& r) {
  for (const char* name : {"kernel_sizes", "strides", "dilations"}) {
    r.op.attrs.insert_or_assign(name,
                                ListAttr(Spread(AttrOr<Ints>(r.op, name), 2)));
  }
  Ints paddings = Spread(AttrOr<Ints>(r.op, "paddings"), 2);
  if (paddings.size() == 2) {
    paddings = {paddings[0], paddings[1], paddings[0], paddings[1]};
  } else if (paddings.size() == 4) {
    std::swap(paddings[1], paddings[2]);
  }
  r.op.attrs.insert_or_assign("paddings", ListAttr(std::move(paddings)));
  r.Keep();
}

void Cast(Replacement& r) {
  const auto from = static_cast<int64_t>(r.TypeOf(r.In("X")).dtype);
  if (AttrOr<int64_t>(r.op, "in_dtype", -1) < 0) {
    r.op.attrs.insert_or_assign("in_dtype", IntAttr(from));
  }
  r.Keep();
}

// A slot that only we have: where the maxima are.
void PlainPool(Replacement& r) {
  std::erase_if(r.op.outputs,
                [](const program::Slot& slot) { return slot.name == "Mask"; });
  r.Keep();
}

void Interpolate(Replacement& r) {
  const Ints size = AttrOr<Ints>(r.op, "out_shape");
  const auto mode = AttrOr<std::string>(r.op, "mode", "nearest");
  if (size.size() != 2 || r.version == Paddle::k1_8) return r.Keep();
  r.Add(mode + "_interp_v2", {{"X", {r.In("X")}}}, {{"Out", {r.Out("Out")}}},
        {{"out_d", IntAttr(-1)},
         {"out_h", IntAttr(size[0])},
         {"out_w", IntAttr(size[1])},
         {"interp_method", TextAttr(mode)},
         {"align_corners", FlagAttr(AttrOr<bool>(r.op, "align_corners"))},
         {"align_mode", IntAttr(AttrOr<int64_t>(r.op, "align_mode"))},
         {"data_layout",
          TextAttr(AttrOr<std::string>(r.op, "data_format", "NCHW"))},
         {"scale", {AttrKind::kFloats, std::vector<double>{}}}});
}

// ---- losses

// What is left of `each` by the op's `reduction`.
void Reduce(Replacement& r, const std::string& each, const std::string& out) {
  const auto how = AttrOr<std::string>(r.op, "reduction", "mean");
  r.Add(how == "sum" ? "reduce_sum" : "reduce_mean", {{"X", {each}}},
        {{"Out", {out}}},
        {{"dim", ListAttr({0})},
         {"keep_dim", FlagAttr(false)},
         {"reduce_all", FlagAttr(true)}});
}

bool IsReduced(const Replacement& r) {
  return AttrOr<std::string>(r.op, "reduction", "mean") != "none";
}

// |Input - Label| or its square.
void DistanceLoss(Replacement& r, const char* of_difference) {
  const std::string out = r.Out("Out");
  const TensorType type = r.TypeOf(r.In("Input"));
  const std::string difference = r.Temporary(out, type);
  const std::string each = IsReduced(r) ? r.Temporary(out, type) : out;
  r.Add("elementwise_sub", {{"X", {r.In("Input")}}, {"Y", {r.In("Label")}}},
        {{"Out", {difference}}}, {{"axis", IntAttr(-1)}});
  r.Add(of_difference, {{"X", {difference}}}, {{"Out", {each}}});
  if (IsReduced(r)) Reduce(r, each, out);
}

void CrossEntropyLoss(Replacement& r) {
  const bool soft = AttrOr<bool>(r.op, "soft_label");
  const auto ignored = AttrOr<int64_t>(r.op, "ignore_index", -100);
  // Weights, and a mean over some of the rows, take more ops than one.
  if (!r.In("Weight").empty() || !AttrOr<bool>(r.op, "use_softmax", true) ||
      (ignored >= 0 && IsReduced(r))) {
    return r.Keep();
  }
  const std::string out = r.Out("Loss");
  const std::string logits = r.In("Logits");
  std::string label = r.In("Label");
  const auto rank = static_cast<int64_t>(r.RankOf(logits));
  int64_t axis = AttrOr<int64_t>(r.op, "axis", -1);
  if (axis < 0) axis += rank;
  TensorType type = r.TypeOf(logits);
  if (axis < 0 || axis >= rank) return r.Keep();
  type.dims[axis] = 1;
  const bool narrow = !soft && r.RankOf(label) + 1 == r.RankOf(logits);
  if (narrow) label = r.Unsqueeze(label, axis);
  const bool whole = !IsReduced(r) && r.RankOf(out) == r.RankOf(logits);
  const std::string each = whole ? out : r.Temporary(out, type);
  std::string softmax = r.Out("Softmax");
  if (softmax.empty()) softmax = r.Temporary(out, r.TypeOf(logits));
  r.Add("softmax_with_cross_entropy",
        {{"Logits", {logits}}, {"Label", {label}}},
        {{"Softmax", {softmax}}, {"Loss", {each}}},
        {{"soft_label", FlagAttr(soft)},
         {"ignore_index", IntAttr(ignored)},
         {"numeric_stable_mode", FlagAttr(true)},
         {"use_softmax", FlagAttr(true)},
         {"axis", IntAttr(axis)}});
  if (IsReduced(r)) {
    Reduce(r, each, out);
  } else if (!whole) {
    r.Squeeze(each, axis, out);
  }
}

void Tanhshrink(Replacement& r) {
  const std::string out = r.Out("Out");
  const std::string tanh = r.Temporary(out, r.TypeOf(out));
  r.Add("tanh", {{"X", {r.In("X")}}}, {{"Out", {tanh}}});
  r.Add("elementwise_sub", {{"X", {r.In("X")}}, {"Y", {tanh}}},
        {{"Out", {out}}}, {{"axis", IntAttr(-1)}});
}

// ---- kinds

// Whole numbers that have 64 bits there. Where Paddle makes gradients of what
// it read, it does not take 32 for 64.
void WidenAttrs(Operation& op) {
  static const auto& wide =
      *new std::map<std::string_view, std::vector<std::string_view>>{
          {"arg_max", {"axis"}},
          {"arg_min", {"axis"}},
          {"assign_value", {"int64_values"}},
          {"empty", {"shape"}},
          {"eye", {"num_rows", "num_columns"}},
          {"fill_constant", {"shape"}},
          {"gaussian_random", {"shape"}},
          {"histogram", {"bins"}},
          {"lookup_table", {"padding_idx"}},
          {"lookup_table_v2", {"padding_idx"}},
          {"nll_loss", {"ignore_index"}},
          {"randint", {"shape"}},
          {"roll", {"shifts", "axis"}},
          {"uniform_random", {"shape"}},
      };
  const auto found = wide.find(op.type);
  if (found == wide.end()) return;
  for (std::string_view name : found->second) {
    const auto attr = op.attrs.find(name);
    if (attr == op.attrs.end()) continue;
    AttrKind& kind = attr->second.kind;
    if (kind == AttrKind::kInt) kind = AttrKind::kLong;
    if (kind == AttrKind::kInts) kind = AttrKind::kLongs;
  }
}

using Rewrite = void (*)(Replacement&);

const std::map<std::string_view, Rewrite>& Rewrites() {
  static const auto& rewrites = *new std::map<std::string_view, Rewrite>{
      {"fc", Fc},
      {"matmul_v2", Matmul},
      {"conv1d", ConvToPaddle},
      {"conv2d", ConvToPaddle},
      {"conv3d", ConvToPaddle},
      {"conv1d_transpose", ConvToPaddle},
      {"conv2d_transpose", ConvToPaddle},
      {"conv3d_transpose", ConvToPaddle},
      {"depthwise_conv2d", ConvToPaddle},
      {"batch_norm", BatchNorm},
      {"flatten_contiguous_range", Flatten},
      {"reshape2", Reshaping},
      {"transpose2", Reshaping},
      {"squeeze2", Reshaping},
      {"unsqueeze2", Reshaping},
      {"reduce_sum", Reduction},
      {"reduce_mean", Reduction},
      {"reduce_max", Reduction},
      {"reduce_min", Reduction},
      {"reduce_prod", Reduction},
      {"reduce_all", Reduction},
      {"reduce_any", Reduction},
      {"logsumexp", LogSumExp},
      {"group_norm", GroupNorm},
      {"prelu", Prelu},
      {"pad3d", Pad},
      {"cast", Cast},
      {"slice", Slice},
      {"unfold", Unfold},
      {"unstack", Unstack},
      {"strided_slice", Slice},
      {"pool2d", PlainPool},
      {"pool3d", PlainPool},
      {"interpolate", Interpolate},
      {"mse_loss", [](Replacement& r) { DistanceLoss(r, "square"); }},
      {"l1_loss", [](Replacement& r) { DistanceLoss(r, "abs"); }},
      {"cross_entropy_loss", CrossEntropyLoss},
      {"tanhshrink", Tanhshrink},
  };
  return rewrites;
}

// Writes out what a definition says and the operation leaves open.
Status Complete(const OpDef& def, Replacement& r) {
  ASSIGN_OR_RETURN(const program::Attrs attrs,
                   program::ResolveAttrs(def, r.op));
  for (size_t i = 0; i < attrs.size(); ++i) {
    r.op.attrs.try_emplace(def.attrs[i].name,
                           program::ToAttrValue(def.attrs[i], attrs[i]));
  }
  if (def.outputs.empty() || r.Out(def.outputs[0].name).empty()) {
    return OkStatus();
  }
  const std::string first = r.Out(def.outputs[0].name);
  for (const SlotDef& slot : def.outputs) {
    if (slot.variadic || !r.Out(slot.name).empty()) continue;
    r.op.outputs.push_back({slot.name, {r.Temporary(first, r.TypeOf(first))}});
  }
  return OkStatus();
}

Result<std::vector<Operation>> Replace(const OpRegistry& registry, Block& block,
                                       const Operation& op, Paddle version) {
  Replacement r(block, op, version);
  const OpDef* def = registry.Find(op.type);
  if (def != nullptr) {
    RETURN_IF_ERROR(Complete(*def, r).WithContext(
        op.made_at.empty() ? op.type : op.made_at + ": " + op.type));
  }
  const auto found = Rewrites().find(op.type);
  if (found != Rewrites().end()) {
    found->second(r);
  } else if (!PoolToPaddle(r)) {
    r.Keep();
  }
  for (Operation& next : r.done) {
    RenameSlots(next, true);
    WidenAttrs(next);
  }
  return std::move(r.done);
}

}  // namespace

Status ToPaddle(const OpRegistry& registry, Program& program, Paddle version) {
  for (size_t b = 0; b < program.num_blocks(); ++b) {
    Block& block = program.block(b);
    for (size_t i = 0; i < block.num_ops();) {
      ASSIGN_OR_RETURN(std::vector<Operation> next,
                       Replace(registry, block, block.op(i), version));
      block.Remove(i, i + 1);
      for (Operation& op : next) block.Insert(i++, std::move(op));
    }
  }
  return OkStatus();
}

}  // namespace fleet::saved
