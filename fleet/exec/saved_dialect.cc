// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/saved_dialect.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fleet::exec {

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
using program::Variable;

namespace {

using Ints = std::vector<int64_t>;

AttrValue Int(int64_t value) { return {AttrKind::kInt, value}; }
AttrValue Flag(bool value) { return {AttrKind::kBool, value}; }
AttrValue Text(std::string value) {
  return {AttrKind::kString, std::move(value)};
}
AttrValue List(Ints value) { return {AttrKind::kInts, std::move(value)}; }

template <class T>
T AttrOf(const Operation& op, std::string_view name, T otherwise = {}) {
  const AttrValue* attr = op.attr(name);
  const T* value = attr == nullptr ? nullptr : std::get_if<T>(&attr->value);
  return value == nullptr ? otherwise : *value;
}

// One number stands for all dimensions.
Ints Spread(Ints numbers, size_t count) {
  if (numbers.size() == 1) numbers.assign(count, numbers.front());
  return numbers;
}

bool IsChannelLast(const Operation& op) {
  return AttrOf<std::string>(op, "data_format").ends_with('C');
}

// The operations that take the place of one.
class Replacement {
 public:
  Replacement(Block& block, Operation op, Paddle version)
      : op(std::move(op)), version(version), block_(block) {}

  void Add(std::string type, Slots inputs, Slots outputs, AttrMap attrs = {}) {
    Operation next{.type = std::move(type),
                   .inputs = std::move(inputs),
                   .outputs = std::move(outputs),
                   .attrs = std::move(attrs),
                   .made_at = op.made_at};
    for (const char* name : {"op_role", "op_device", "op_namescope"}) {
      if (const AttrValue* attr = op.attr(name)) {
        next.attrs.insert_or_assign(name, *attr);
      }
    }
    done.push_back(std::move(next));
  }

  // The one argument of a slot; empty when there is none.
  std::string In(std::string_view slot) const {
    const std::vector<std::string>& names = op.input(slot);
    return names.empty() ? "" : names.front();
  }
  std::string Out(std::string_view slot) const {
    const std::vector<std::string>& names = op.output(slot);
    return names.empty() ? "" : names.front();
  }

  TensorType TypeOf(const std::string& name) const {
    const Variable* variable = block_.Find(name);
    return variable == nullptr ? TensorType{} : variable->type;
  }
  size_t RankOf(const std::string& name) const {
    return TypeOf(name).dims.size();
  }

  // A new variable, named after another.
  std::string Temporary(const std::string& after, TensorType type) {
    std::string name;
    for (int i = 0; name.empty() || block_.Find(name) != nullptr; ++i) {
      name = base::Concat(after, ".saved_", i);
    }
    block_.AddVariable({.name = name, .type = std::move(type)});
    return name;
  }

  // Paddle's reshaping ops also say what the shape was before.
  Slots WithShapeBefore(const std::string& x, const std::string& out) {
    TensorType type = TypeOf(x);
    type.dims.insert(type.dims.begin(), 0);
    return {{"Out", {out}}, {"XShape", {Temporary(out, std::move(type))}}};
  }

  // `x` with a dimension of one more at `axis`.
  std::string Unsqueeze(const std::string& x, int64_t axis) {
    TensorType type = TypeOf(x);
    type.dims.insert(type.dims.begin() + axis, 1);
    std::string out = Temporary(x, std::move(type));
    Add("unsqueeze2", {{"X", {x}}}, WithShapeBefore(x, out),
        {{"axes", List({axis})}});
    return out;
  }
  void Squeeze(const std::string& x, int64_t axis, const std::string& out) {
    Add("squeeze2", {{"X", {x}}}, WithShapeBefore(x, out),
        {{"axes", List({axis})}});
  }

  void Keep() { done.push_back(std::move(op)); }

  Operation op;
  const Paddle version;
  std::vector<Operation> done;

 private:
  Block& block_;
};

// Adds a bias, of one number for each of the channels.
void AddBias(Replacement& r, const std::string& x, const std::string& bias,
             const std::string& out, int64_t axis) {
  r.Add("elementwise_add", {{"X", {x}}, {"Y", {bias}}}, {{"Out", {out}}},
        {{"axis", Int(axis)}});
}

// ---- layers

void Fc(Replacement& r) {
  const std::string out = r.Out("Out");
  const std::string bias = r.In("Bias");
  const auto rank = static_cast<int64_t>(r.RankOf(r.In("Input")));
  const std::string product =
      bias.empty() ? out : r.Temporary(out, r.TypeOf(out));
  r.Add("mul", {{"X", {r.In("Input")}}, {"Y", {r.In("W")}}},
        {{"Out", {product}}},
        {{"x_num_col_dims", Int(rank - 1)}, {"y_num_col_dims", Int(1)}});
  if (!bias.empty()) AddBias(r, product, bias, out, rank - 1);
}

void Matmul(Replacement& r) {
  if (r.version == Paddle::k2) return r.Keep();
  r.Add("matmul", std::move(r.op.inputs), std::move(r.op.outputs),
        {{"transpose_X", Flag(AttrOf<bool>(r.op, "trans_x"))},
         {"transpose_Y", Flag(AttrOf<bool>(r.op, "trans_y"))},
         {"alpha", {AttrKind::kFloat, 1.0}}});
}

// A convolution over one dimension is one over two, of which the first has the
// size one.
void Conv(Replacement& r) {
  const bool flat = r.op.type.starts_with("conv1d");
  const size_t rank = r.op.type.starts_with("conv3d") ? 3 : 2;
  const bool last = IsChannelLast(r.op);
  const std::string out = r.Out("Output");
  const std::string bias = r.In("Bias");
  std::string input = r.In("Input");
  std::string filter = r.In("Filter");
  AttrMap attrs = r.op.attrs;
  Ints strides = AttrOf<Ints>(r.op, "strides");
  Ints dilations = AttrOf<Ints>(r.op, "dilations");
  Ints paddings = AttrOf<Ints>(r.op, "paddings");
  if (flat) {
    input = r.Unsqueeze(input, last ? 1 : 2);
    filter = r.Unsqueeze(filter, 2);
    strides.insert(strides.begin(), 1);
    dilations.insert(dilations.begin(), 1);
    paddings.insert(paddings.begin(), paddings.size() == 2 ? 2 : 1, 0);
    attrs["data_format"] = Text(last ? "NHWC" : "NCHW");
    Ints more = AttrOf<Ints>(r.op, "output_padding");
    if (!more.empty()) {
      attrs["output_padding"] = List({0, more.front()});
    }
  }
  attrs["strides"] = List(Spread(std::move(strides), rank));
  attrs["dilations"] = List(Spread(std::move(dilations), rank));
  attrs["paddings"] = List(Spread(std::move(paddings), rank));
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
  AddBias(r, plain, bias, out, channel);
}

struct PoolKind {
  const char* type;  // "max" or "avg"
  bool adaptive;
  size_t rank;
};

void Pool(Replacement& r, const PoolKind& kind) {
  // Who wants to know where the maxima are needs another op.
  const bool flat = kind.rank == 1;
  const size_t rank = flat ? 2 : kind.rank;
  const bool last = IsChannelLast(r.op);
  const std::string out = r.Out("Out");
  std::string x = r.In("X");
  Ints size = AttrOf<Ints>(r.op, kind.adaptive ? "output_size" : "ksize");
  Ints strides = AttrOf<Ints>(r.op, "strides");
  Ints paddings = AttrOf<Ints>(r.op, "paddings", Ints{0});
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
          {{"ksize", List(std::move(size))},
           {"strides", List(Ints(rank, 1))},
           {"paddings", List(Ints(rank, 0))},
           {"adaptive", Flag(true)},
           {"global_pooling", Flag(false)}});
    if (flat) r.Squeeze(grid, 2, out);
    return;
  }
  const std::string formats[] = {last ? "NHWC" : "NCHW",
                                 last ? "NDHWC" : "NCDHW"};
  r.Add(rank == 3 ? "pool3d" : "pool2d", {{"X", {x}}}, {{"Out", {grid}}},
        {{"pooling_type", Text(kind.type)},
         {"ksize", List(std::move(size))},
         {"strides", List(Spread(std::move(strides), rank))},
         {"paddings", List(Spread(std::move(paddings), rank))},
         {"adaptive", Flag(kind.adaptive)},
         {"global_pooling", Flag(false)},
         {"exclusive", Flag(AttrOf<bool>(r.op, "exclusive", true))},
         {"ceil_mode", Flag(AttrOf<bool>(r.op, "ceil_mode"))},
         {"padding_algorithm",
          Text(AttrOf<std::string>(r.op, "padding_algorithm", "EXPLICIT"))},
         {"data_format", Text(formats[rank - 2])},
         {"use_cudnn", Flag(true)}});
  if (flat) r.Squeeze(grid, last ? 1 : 2, out);
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
  int64_t begin = AttrOf<int64_t>(r.op, "start_axis", 1);
  int64_t end = AttrOf<int64_t>(r.op, "stop_axis", -1);
  if (begin < 0) begin += rank;
  if (end < 0) end += rank;
  // 0 keeps what is at the same place; what comes behind must be known.
  const Dims dims = r.TypeOf(x).dims;
  Ints shape(static_cast<size_t>(begin), 0);
  shape.push_back(-1);
  for (int64_t i = end + 1; i < rank; ++i) shape.push_back(dims[i]);
  r.Add("reshape2", {{"X", {x}}}, r.WithShapeBefore(x, out),
        {{"shape", List(std::move(shape))}});
}

void Reshaping(Replacement& r) {
  if (r.Out("XShape").empty()) {
    r.op.outputs = r.WithShapeBefore(r.In("X"), r.Out("Out"));
  }
  r.Keep();
}

void Reduction(Replacement& r) {
  if (AttrOf<Ints>(r.op, "dim").empty()) {
    r.op.attrs.insert_or_assign("reduce_all", Flag(true));
    r.op.attrs.insert_or_assign("dim", List({0}));
  }
  r.Keep();
}

void LogSumExp(Replacement& r) {
  Ints axis = AttrOf<Ints>(r.op, "dim");
  const bool all = axis.empty();
  r.op.attrs["axis"] = List(all ? Ints{0} : axis);
  r.op.attrs["keepdim"] = Flag(AttrOf<bool>(r.op, "keep_dim"));
  r.op.attrs["reduce_all"] = Flag(all || AttrOf<bool>(r.op, "reduce_all"));
  r.op.attrs.erase("dim");
  r.op.attrs.erase("keep_dim");
  r.Keep();
}

// No groups: each channel is one.
void GroupNorm(Replacement& r) {
  if (AttrOf<int64_t>(r.op, "groups") != 0) return r.Keep();
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
  r.op.attrs.insert_or_assign("mode", Text(count == 1 ? "all" : "channel"));
  r.Keep();
}

// Ours has two numbers for every dimension, in order; Paddle's pad3d six, for
// the last dimension first, of tensors with five.
void Pad(Replacement& r) {
  const Ints paddings = AttrOf<Ints>(r.op, "paddings");
  const auto mode = AttrOf<std::string>(r.op, "mode", "constant");
  std::string x = r.In("X");
  const std::string out = r.Out("Out");
  if (mode == "constant") {
    r.Add("pad", {{"X", {x}}}, {{"Out", {out}}},
          {{"paddings", List(paddings)}, {"pad_value", r.op.attrs["value"]}});
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
        {{"paddings", List(std::move(turned))},
         {"mode", Text(mode)},
         {"value", r.op.attrs["value"]},
         {"data_format", Text("NCDHW")}});
  if (rank < 5) {
    Ints axes = rank == 4 ? Ints{2} : Ints{2, 3};
    r.Add("squeeze2", {{"X", {padded}}}, r.WithShapeBefore(padded, out),
          {{"axes", List(std::move(axes))}});
  }
}

// Paddle reads without a look whether they are there.
void Slice(Replacement& r) {
  r.op.attrs.try_emplace("infer_flags",
                         List(Ints(AttrOf<Ints>(r.op, "axes").size(), 1)));
  r.op.attrs.try_emplace("decrease_axis", List({}));
  r.Keep();
}

void Unstack(Replacement& r) {
  const auto count = static_cast<int64_t>(r.op.output("Y").size());
  r.op.attrs.insert_or_assign("num", Int(count));
  r.Keep();
}

// Ours has paddings before and behind, dimension by dimension; Paddle's unfold
// above, left, below, right.
void Unfold(Replacement& r) {
  for (const char* name : {"kernel_sizes", "strides", "dilations"}) {
    r.op.attrs.insert_or_assign(name,
                                List(Spread(AttrOf<Ints>(r.op, name), 2)));
  }
  Ints paddings = Spread(AttrOf<Ints>(r.op, "paddings"), 2);
  if (paddings.size() == 2) {
    paddings = {paddings[0], paddings[1], paddings[0], paddings[1]};
  } else if (paddings.size() == 4) {
    std::swap(paddings[1], paddings[2]);
  }
  r.op.attrs.insert_or_assign("paddings", List(std::move(paddings)));
  r.Keep();
}

void Cast(Replacement& r) {
  const auto from = static_cast<int64_t>(r.TypeOf(r.In("X")).dtype);
  if (AttrOf<int64_t>(r.op, "in_dtype", -1) < 0) {
    r.op.attrs.insert_or_assign("in_dtype", Int(from));
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
  const Ints size = AttrOf<Ints>(r.op, "out_shape");
  const auto mode = AttrOf<std::string>(r.op, "mode", "nearest");
  if (size.size() != 2 || r.version == Paddle::k1_8) return r.Keep();
  r.Add(
      mode + "_interp_v2", {{"X", {r.In("X")}}}, {{"Out", {r.Out("Out")}}},
      {{"out_d", Int(-1)},
       {"out_h", Int(size[0])},
       {"out_w", Int(size[1])},
       {"interp_method", Text(mode)},
       {"align_corners", Flag(AttrOf<bool>(r.op, "align_corners"))},
       {"align_mode", Int(AttrOf<int64_t>(r.op, "align_mode"))},
       {"data_layout", Text(AttrOf<std::string>(r.op, "data_format", "NCHW"))},
       {"scale", {AttrKind::kFloats, std::vector<double>{}}}});
}

// ---- losses

// What is left of `each` by the op's `reduction`.
void Reduce(Replacement& r, const std::string& each, const std::string& out) {
  const auto how = AttrOf<std::string>(r.op, "reduction", "mean");
  r.Add(how == "sum" ? "reduce_sum" : "reduce_mean", {{"X", {each}}},
        {{"Out", {out}}},
        {{"dim", List({0})},
         {"keep_dim", Flag(false)},
         {"reduce_all", Flag(true)}});
}

bool IsReduced(const Replacement& r) {
  return AttrOf<std::string>(r.op, "reduction", "mean") != "none";
}

// |Input - Label| or its square.
void DistanceLoss(Replacement& r, const char* of_difference) {
  const std::string out = r.Out("Out");
  const TensorType type = r.TypeOf(r.In("Input"));
  const std::string difference = r.Temporary(out, type);
  const std::string each = IsReduced(r) ? r.Temporary(out, type) : out;
  r.Add("elementwise_sub", {{"X", {r.In("Input")}}, {"Y", {r.In("Label")}}},
        {{"Out", {difference}}}, {{"axis", Int(-1)}});
  r.Add(of_difference, {{"X", {difference}}}, {{"Out", {each}}});
  if (IsReduced(r)) Reduce(r, each, out);
}

void CrossEntropyLoss(Replacement& r) {
  const bool soft = AttrOf<bool>(r.op, "soft_label");
  const auto ignored = AttrOf<int64_t>(r.op, "ignore_index", -100);
  // Weights, and a mean over some of the rows, take more ops than one.
  if (!r.In("Weight").empty() || !AttrOf<bool>(r.op, "use_softmax", true) ||
      (ignored >= 0 && IsReduced(r))) {
    return r.Keep();
  }
  const std::string out = r.Out("Loss");
  const std::string logits = r.In("Logits");
  std::string label = r.In("Label");
  const auto rank = static_cast<int64_t>(r.RankOf(logits));
  int64_t axis = AttrOf<int64_t>(r.op, "axis", -1);
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
        {{"soft_label", Flag(soft)},
         {"ignore_index", Int(ignored)},
         {"numeric_stable_mode", Flag(true)},
         {"use_softmax", Flag(true)},
         {"axis", Int(axis)}});
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
        {{"Out", {out}}}, {{"axis", Int(-1)}});
}

// Whether an operation other than the one that writes it names `name`.
bool IsUsed(const Block& block, const Operation& by, const std::string& name) {
  for (size_t i = 0; i < block.num_ops(); ++i) {
    if (block.op(i).id == by.id) continue;
    for (const program::Slot& slot : block.op(i).inputs) {
      for (const std::string& argument : slot.arguments) {
        if (argument == name) return true;
      }
    }
  }
  return false;
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

// ---- names and kinds

// Slots that have another name there.
struct SlotNames {
  std::string_view op;
  std::string_view ours;
  std::string_view theirs;
};
constexpr SlotNames kSlotNames[] = {
    {"atan2", "X", "X1"},
    {"atan2", "Y", "X2"},
    {"expand_v2", "ShapeTensor", "Shape"},
    {"reshape2", "ShapeTensor", "Shape"},
    {"top_k_v2", "KTensor", "K"},
};

void RenameSlots(Operation& op, bool to_theirs) {
  for (const SlotNames& names : kSlotNames) {
    if (op.type != names.op) continue;
    const std::string_view from = to_theirs ? names.ours : names.theirs;
    const std::string_view to = to_theirs ? names.theirs : names.ours;
    if (op.input(from).empty()) continue;
    std::erase_if(op.inputs,
                  [&](const program::Slot& slot) { return slot.name == to; });
    for (program::Slot& slot : op.inputs) {
      if (slot.name == from) slot.name = to;
    }
  }
}

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

// Ops whose output had not yet a record of the shape before.
void RenameOldOps(Operation& op) {
  for (const char* name :
       {"flatten", "reshape", "squeeze", "transpose", "unsqueeze"}) {
    if (op.type == name) op.type += "2";
  }
}

void ReadInterpolate(Operation& op) {
  constexpr std::string_view kSuffix = "_interp_v2";
  const auto height = AttrOf<int64_t>(op, "out_h", -1);
  const auto width = AttrOf<int64_t>(op, "out_w", -1);
  if (!op.type.ends_with(kSuffix) || height <= 0 || width <= 0 ||
      !op.input("OutSize").empty() || !op.input("SizeTensor").empty()) {
    return;
  }
  op.attrs["mode"] = Text(op.type.substr(0, op.type.size() - kSuffix.size()));
  op.attrs["out_shape"] = List({height, width});
  op.attrs["data_format"] =
      Text(AttrOf<std::string>(op, "data_layout", "NCHW"));
  op.type = "interpolate";
}

void ReadLogSumExp(Operation& op) {
  if (op.type != "logsumexp") return;
  const bool all = AttrOf<bool>(op, "reduce_all");
  op.attrs["dim"] = List(all ? Ints{} : AttrOf<Ints>(op, "axis"));
  op.attrs["keep_dim"] = Flag(AttrOf<bool>(op, "keepdim"));
}

void ReadPad(const Block& block, Operation& op) {
  const Ints paddings = AttrOf<Ints>(op, "paddings");
  if (op.type != "pad3d" || paddings.size() != 6 || op.input("X").empty()) {
    return;
  }
  const Variable* x = block.Find(op.input("X").front());
  if (x == nullptr || x->type.dims.size() != 5) return;
  // For the depth, the height and the width, behind the batch and the channels
  // or between them.
  Ints every = {paddings[4], paddings[5], paddings[2],
                paddings[3], paddings[0], paddings[1]};
  const size_t batch_and_channel = IsChannelLast(op) ? 2 : 4;
  every.insert(every.begin(), batch_and_channel, 0);
  every.resize(10, 0);
  op.attrs["paddings"] = List(std::move(every));
}

void ReadUnfold(Operation& op) {
  Ints paddings = AttrOf<Ints>(op, "paddings");
  if (op.type != "unfold" || paddings.size() != 4) return;
  std::swap(paddings[1], paddings[2]);
  op.attrs["paddings"] = List(std::move(paddings));
}

// Ours of the largest in windows has the windows' sizes; one by the output's
// size is another op.
void ReadMaxPool(Operation& op) {
  const bool flat = op.type == "max_pool2d_with_index";
  if (!flat && op.type != "max_pool3d_with_index") return;
  const bool whole = AttrOf<bool>(op, "global_pooling");
  if (!whole && !AttrOf<bool>(op, "adaptive")) return;
  op.type = flat ? "adaptive_max_pool2d" : "adaptive_max_pool3d";
  op.attrs["output_size"] =
      whole ? List(Ints(flat ? 2 : 3, 1)) : List(AttrOf<Ints>(op, "ksize"));
}

using Rewrite = void (*)(Replacement&);

const std::map<std::string_view, Rewrite>& Rewrites() {
  static const auto& rewrites = *new std::map<std::string_view, Rewrite>{
      {"fc", Fc},
      {"matmul_v2", Matmul},
      {"conv1d", Conv},
      {"conv2d", Conv},
      {"conv3d", Conv},
      {"conv1d_transpose", Conv},
      {"conv2d_transpose", Conv},
      {"conv3d_transpose", Conv},
      {"depthwise_conv2d", Conv},
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
  PoolKind kind;
  const auto found = Rewrites().find(op.type);
  if (FindPool(op.type, kind)) {
    const bool masked = !op.output("Mask").empty() &&
                        IsUsed(block, op, op.output("Mask").front());
    const bool divided = AttrOf<int64_t>(op, "divisor") != 0;
    if (masked || divided) {
      r.Keep();
    } else {
      Pool(r, kind);
    }
  } else if (found != Rewrites().end()) {
    found->second(r);
  } else {
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

void FromPaddle(Program& program) {
  for (size_t b = 0; b < program.num_blocks(); ++b) {
    Block& block = program.block(b);
    for (size_t i = 0; i < block.num_ops(); ++i) {
      Operation& op = block.op(i);
      RenameOldOps(op);
      RenameSlots(op, false);
      ReadInterpolate(op);
      ReadLogSumExp(op);
      ReadPad(block, op);
      ReadMaxPool(op);
      ReadUnfold(op);
    }
  }
}

}  // namespace fleet::exec
