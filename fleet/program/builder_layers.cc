// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>

#include "fleet/program/builder.h"
#include "fleet/program/lod.h"

namespace fleet::program {
namespace {

int64_t Product(const Dims& dims, size_t begin) {
  int64_t product = 1;
  for (size_t i = begin; i < dims.size(); ++i) product *= dims[i];
  return product;
}

bool AllKnown(const Dims& dims, size_t begin) {
  for (size_t i = begin; i < dims.size(); ++i) {
    if (dims[i] < 0) return false;
  }
  return true;
}

AttrValue Flag(bool on) { return {AttrKind::kBool, on}; }

// Says of the operation that was made last that servers, where there are any,
// have its table.
void MarkRemote(Block& block) {
  AttrMap& attrs = block.op(block.num_ops() - 1).attrs;
  attrs["is_distributed"] = Flag(true);
  attrs["remote_prefetch"] = Flag(true);
}

// One number for each of `rank` dimensions.
Result<std::vector<int64_t>> Numbers(const char* layer, const char* option,
                                     const std::vector<int64_t>& given,
                                     size_t rank) {
  if (given.size() == 1) return std::vector<int64_t>(rank, given[0]);
  if (given.size() == rank) return given;
  return InvalidArgument(layer, ": ", option, " ", ToString(given),
                         " must have ", rank, " numbers");
}

}  // namespace

Value Builder::Data(const std::string& name, const Dims& dims, DType dtype,
                    int lod_level) {
  if (!status().ok()) return {};
  Block& global = main().block(0);
  global.AddVariable({.name = name,
                      .type = {dtype, dims},
                      .lod_level = lod_level,
                      .stop_gradient = true,
                      .is_data = true});
  if (lod_level > 0) MakeSequence(global, name);
  return {*this, name};
}

Value Builder::Parameter(const Dims& dims, const ParamAttr& attr, DType dtype,
                         Line at) {
  Scope scope(*this);
  const std::string owner = NewName("create_parameter");
  scope.At(at);
  // The operation that fills it is named after nothing, as outside of layers.
  ParamAttr named = attr;
  if (named.name.empty()) named.name = NewName(owner + ".w");
  return Weight(dims, dtype, named);
}

Value Builder::Activate(const Value& x, const std::string& activation,
                        Line at) {
  if (activation.empty()) return x;
  const OpDef* def = AllOps().Find(activation);
  if (def == nullptr || def->external || def->outputs.size() != 1) {
    Scope scope(*this);
    scope.At(at);
    Fail(InvalidArgument("there is no activation '", activation, "'"));
    return {};
  }
  return One(Call(activation, {{x}}, def->DefaultAttrs(), at), 0);
}

Value Builder::Cast(const Value& x, DType dtype, Line at) {
  return Ops::Cast(x, x.dtype(), dtype, at);
}

Value Builder::Weight(const Dims& dims, DType dtype, const ParamAttr& attr,
                      const Initializer& initializer) {
  return NewParameter(dims, dtype, attr, initializer, "w");
}

Value Builder::Bias(const Dims& dims, DType dtype,
                    const std::optional<ParamAttr>& attr) {
  if (!attr.has_value()) return {};
  return NewParameter(dims, dtype, *attr, init::Constant{0.0}, "b");
}

// ---- fully connected

Value Builder::Fc(const Value& x, int64_t size, const FcOptions& options,
                  Line at) {
  return Fc(Values{x}, size, options, at);
}

Value Builder::Fc(const Values& xs, int64_t size, const FcOptions& options,
                  Line at) {
  if (!status().ok()) return {};
  const std::string layer = LayerName("fc", options.name);
  Scope scope(*this);
  scope.Layer(layer).At(at);
  Values products;
  for (const Value& x : xs) products.push_back(Product(x, size, options));
  if (!status().ok()) return {};
  Value out = products.size() == 1 ? products[0] : Sum(products, at);
  const Value bias = Bias({size}, out.dtype(), options.bias);
  if (bias) out = ElementwiseAdd(out, bias, {}, at);
  return Activate(out, options.activation, at);
}

Value Builder::Product(const Value& x, int64_t size, const FcOptions& options) {
  if (!status().ok()) return {};
  const Dims dims = x.dims();
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t kept =
      options.num_flatten_dims == -1 ? rank - 1 : options.num_flatten_dims;
  if (kept <= 0 || kept >= rank) {
    Fail(InvalidArgument("fc: num_flatten_dims ", options.num_flatten_dims,
                         " must lie between 1 and ", rank - 1,
                         " for x of shape ", ToString(dims)));
    return {};
  }
  const auto begin = static_cast<size_t>(kept);
  if (!AllKnown(dims, begin)) {
    Fail(InvalidArgument("fc: the last ", rank - kept,
                         " dimensions of x must be known, but its shape is ",
                         ToString(dims)));
    return {};
  }
  const Value weight =
      Weight({program::Product(dims, begin), size}, x.dtype(), options.weight);
  return Mul(x, weight, {.x_num_col_dims = kept, .y_num_col_dims = 1});
}

// ---- rows of tables

Value Builder::Embedding(const Value& ids, int64_t num_rows, int64_t width,
                         const EmbeddingOptions& options, Line at) {
  if (!status().ok()) return {};
  Scope scope(*this);
  const std::string layer = NewName("embedding");
  scope.Layer(layer).At(at);
  const Value weight = Weight({num_rows, width}, options.dtype, options.weight);
  int64_t padding = -1;
  if (options.padding_idx.has_value()) {
    padding = *options.padding_idx;
    if (padding < -num_rows || padding >= num_rows) {
      Fail(InvalidArgument("embedding: padding_idx ", padding, " must lie in [",
                           -num_rows, ", ", num_rows, ")"));
      return {};
    }
    if (padding < 0) padding += num_rows;
  }
  return LookupTableV2(weight, ids,
                       {.padding_idx = padding, .is_sparse = options.is_sparse},
                       at);
}

Value Builder::SparseEmbedding(const Value& ids, int64_t num_rows,
                               int64_t width,
                               const SparseEmbeddingOptions& options, Line at) {
  if (!status().ok()) return {};
  Scope scope(*this);
  const std::string layer = NewName("sparse_embedding");
  scope.Layer(layer).At(at);
  const Value weight = Weight({num_rows, width}, options.dtype, options.weight);
  int64_t padding = options.padding_idx.value_or(-1);
  if (options.padding_idx.has_value() && padding < 0) padding += num_rows;
  const Dims& dims = ids.dims();
  // A last dimension of one, as Paddle 1.x has it, is where the row goes.
  const bool old = dims.size() > 1 && dims.back() == 1;
  const Value rows =
      old ? LookupTable(weight, ids,
                        {.padding_idx = padding, .is_sparse = true}, at)
          : LookupTableV2(weight, ids,
                          {.padding_idx = padding, .is_sparse = true}, at);
  if (!rows) return {};
  MarkRemote(block());
  AttrMap& attrs = block().op(block().num_ops() - 1).attrs;
  attrs["is_test"] = Flag(options.is_test);
  attrs["entry"] = {AttrKind::kString, options.entry};
  attrs["table_class"] = {AttrKind::kString, options.table_class};
  if (options.time_to_live != 0) {
    attrs["time_to_live"] = {AttrKind::kInt, options.time_to_live};
  }
  return rows;
}

// ---- convolutions

Value Builder::Conv2d(const Value& x, int64_t num_filters,
                      const std::vector<int64_t>& filter_size,
                      const ConvOptions& options, Line at) {
  return Conv(2, x, num_filters, filter_size, options, at);
}

Value Builder::Conv3d(const Value& x, int64_t num_filters,
                      const std::vector<int64_t>& filter_size,
                      const ConvOptions& options, Line at) {
  return Conv(3, x, num_filters, filter_size, options, at);
}

Value Builder::Conv(int rank, const Value& x, int64_t num_filters,
                    const std::vector<int64_t>& filter_size,
                    const ConvOptions& options, Line at) {
  if (!status().ok()) return {};
  const std::string kind = rank == 2 ? "conv2d" : "conv3d";
  const std::string layer = LayerName(kind, options.name);
  Scope scope(*this);
  scope.Layer(layer).At(at);
  const auto n = static_cast<size_t>(rank);
  const std::string format = !options.data_format.empty() ? options.data_format
                             : rank == 2                  ? "NCHW"
                                                          : "NCDHW";
  const auto numbers = [&](const char* option,
                           const std::vector<int64_t>& given) {
    auto found = Numbers(kind.c_str(), option, given, n);
    Fail(found.status());
    return found.ok() ? *found : given;
  };
  if (x.dims().size() != n + 2) {
    Fail(InvalidArgument(kind, ": x must have ", rank + 2,
                         " dimensions, but its shape is ", ToString(x.dims())));
  }
  const Dims kernel = numbers("filter_size", filter_size);
  const Dims stride = numbers("stride", options.stride);
  const Dims dilation = numbers("dilation", options.dilation);
  Dims padding = options.padding;
  if (padding.size() != 2 * n) padding = numbers("padding", padding);
  if (!status().ok()) return {};
  const int64_t channels = Channels(kind.c_str(), x, format);
  if (!status().ok()) return {};
  if (channels % options.groups != 0 || num_filters % options.groups != 0) {
    Fail(InvalidArgument(kind, ": ", channels, " channels and ", num_filters,
                         " filters cannot be split into ", options.groups,
                         " groups"));
    return {};
  }
  Dims dims{num_filters, channels / options.groups};
  dims.insert(dims.end(), kernel.begin(), kernel.end());
  const double deviation = std::sqrt(
      2.0 / static_cast<double>(program::Product(kernel, 0) * channels));
  const Value weight =
      Weight(dims, x.dtype(), options.weight, init::Normal{0.0, deviation});
  const Value bias = Bias({num_filters}, x.dtype(), options.bias);
  const Value out =
      One(CallWith(kind, {{x}, {weight}, {bias}},
                   {{"strides", stride},
                    {"paddings", padding},
                    {"dilations", dilation},
                    {"groups", options.groups},
                    {"padding_algorithm", options.padding_algorithm},
                    {"data_format", format}},
                   at),
          0);
  return Activate(out, options.activation, at);
}

// ---- norms

int64_t Builder::Channels(const char* layer, const Value& x,
                          const std::string& layout) {
  const Dims& dims = x.dims();
  if (dims.size() < 2) {
    Fail(InvalidArgument(layer,
                         ": x needs two dimensions at least, but its "
                         "shape is ",
                         ToString(dims)));
    return 0;
  }
  const bool last = layout.ends_with("C") && dims.size() > 2;
  const int64_t channels = last ? dims.back() : dims[1];
  if (channels < 0) {
    Fail(InvalidArgument(layer,
                         ": the number of channels must be known, but "
                         "the shape of x is ",
                         ToString(dims)));
  }
  return channels;
}

Value Builder::BatchNorm(const Value& x, const BatchNormOptions& options,
                         Line at) {
  if (!status().ok()) return {};
  const int64_t channels = Channels("batch_norm", x, options.data_layout);
  const std::string layer = LayerName("batch_norm", options.name);
  Scope scope(*this);
  scope.Layer(layer).At(at);
  const DType dtype = x.dtype();
  const Value scale =
      Weight({channels}, dtype, options.scale, init::Constant{1.0});
  const Value bias = Bias({channels}, dtype, options.bias);
  const auto statistic = [&](const std::string& name, double value) {
    return Weight({channels}, dtype, {.name = name, .trainable = false},
                  init::Constant{value});
  };
  const Value mean = statistic(options.mean_name, 0.0);
  const Value variance = statistic(options.variance_name, 1.0);
  // Asked for by name, the batch's statistics are used outside of training too.
  const bool global = options.use_global_stats || options.is_test;
  const Value out = Ops::BatchNorm(x, mean, variance,
                                   {.scale = scale,
                                    .bias = bias,
                                    .momentum = options.momentum,
                                    .epsilon = options.epsilon,
                                    .is_test = options.is_test,
                                    .use_global_stats = global,
                                    .data_layout = options.data_layout},
                                   at)
                        .y;
  return Activate(out, options.activation, at);
}

Value Builder::LayerNorm(const Value& x, const LayerNormOptions& options,
                         Line at) {
  if (!status().ok()) return {};
  const Dims dims = x.dims();
  const auto begin = static_cast<size_t>(options.begin_norm_axis);
  if (options.begin_norm_axis < 0 || begin >= dims.size() ||
      !AllKnown(dims, begin)) {
    Scope scope(*this);
    scope.At(at);
    Fail(InvalidArgument(
        "layer_norm: the dimensions from ", options.begin_norm_axis,
        " on must be known, but the shape of x is ", ToString(dims)));
    return {};
  }
  const std::string layer = LayerName("layer_norm", options.name);
  Scope scope(*this);
  scope.Layer(layer).At(at);
  const Dims width{program::Product(dims, begin)};
  const Value scale =
      options.scale.has_value()
          ? Weight(width, x.dtype(), *options.scale, init::Constant{1.0})
          : Value();
  const Value bias = Bias(width, x.dtype(), options.bias);
  const Value out = Ops::LayerNorm(x,
                                   {.scale = scale,
                                    .bias = bias,
                                    .begin_norm_axis = options.begin_norm_axis,
                                    .epsilon = options.epsilon},
                                   at)
                        .y;
  return Activate(out, options.activation, at);
}

Value Builder::GroupNorm(const Value& x, int64_t groups,
                         const GroupNormOptions& options, Line at) {
  return NormByGroups("group_norm", x, groups, options, at);
}

Value Builder::InstanceNorm(const Value& x, const GroupNormOptions& options,
                            Line at) {
  // A group for each channel, which the op writes as 0 groups.
  return NormByGroups("instance_norm", x, 0, options, at);
}

Value Builder::NormByGroups(const char* kind, const Value& x, int64_t groups,
                            const GroupNormOptions& options, Line at) {
  if (!status().ok()) return {};
  const int64_t channels = Channels(kind, x, options.data_layout);
  const std::string layer = LayerName(kind, options.name);
  Scope scope(*this);
  scope.Layer(layer).At(at);
  const Value scale =
      options.scale.has_value()
          ? Weight({channels}, x.dtype(), *options.scale, init::Constant{1.0})
          : Value();
  const Value bias = Bias({channels}, x.dtype(), options.bias);
  const Value out = Ops::GroupNorm(x,
                                   {.scale = scale,
                                    .bias = bias,
                                    .groups = groups,
                                    .epsilon = options.epsilon,
                                    .data_layout = options.data_layout},
                                   at)
                        .y;
  return Activate(out, options.activation, at);
}

// ---- operators

namespace {

// An op of two variables, or of one, from an operator, which has no builder.
Value Binary(const char* op, const Value& a, const Value& b) {
  Building* building = a.building() != nullptr ? a.building() : b.building();
  if (building == nullptr) return {};
  auto out = building->CallWith(op, {{a}, {b}}, {});
  return out.empty() ? Value() : out[0][0];
}

Value Scaled(const Value& x, double scale, double bias) {
  if (x.building() == nullptr) return {};
  auto out = x.building()->CallWith("scale", {{x}},
                                    {{"scale", scale}, {"bias", bias}});
  return out.empty() ? Value() : out[0][0];
}

}  // namespace

Value operator+(const Value& a, const Value& b) {
  return Binary("elementwise_add", a, b);
}
Value operator-(const Value& a, const Value& b) {
  return Binary("elementwise_sub", a, b);
}
Value operator*(const Value& a, const Value& b) {
  return Binary("elementwise_mul", a, b);
}
Value operator/(const Value& a, const Value& b) {
  return Binary("elementwise_div", a, b);
}
Value operator+(const Value& a, double b) { return Scaled(a, 1.0, b); }
Value operator-(const Value& a, double b) { return Scaled(a, 1.0, -b); }
Value operator*(const Value& a, double b) { return Scaled(a, b, 0.0); }
Value operator-(double a, const Value& b) { return Scaled(b, -1.0, a); }
Value operator-(const Value& a) { return Scaled(a, -1.0, 0.0); }

}  // namespace fleet::program
