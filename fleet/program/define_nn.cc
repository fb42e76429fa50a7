// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"
#include "fleet/program/window.h"

namespace fleet::program {
namespace {

using Types = Result<std::vector<TensorType>>;

// ---- activations

// As X, which must have the dimension that `axis` names.
Types SoftmaxShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  RETURN_IF_ERROR(
      NormalizeAxis(t.attr<int64_t>("axis"), x.dims.size(), "axis").status());
  if (!IsFloating(x.dtype)) {
    return InvalidArgument("x must be floating point, not ", Name(x.dtype));
  }
  return std::vector<TensorType>{x};
}

// Integers become float32.
Types FloatingLikeX(const OpTypes& t) {
  TensorType out = t.in("X");
  if (!IsFloating(out.dtype)) out.dtype = DType::kFloat32;
  return std::vector<TensorType>{out};
}

Types PreluShape(const OpTypes& t) {
  const Dims& x = t.in("X").dims;
  int64_t n = NumElements(t.in("Alpha").dims);
  size_t channel = ChannelsLast(t.attr<std::string>("data_format"))
                       ? std::max<size_t>(x.size(), 1) - 1
                       : 1;
  bool per_channel = x.size() > 1 && !KnownToDiffer(n, x[channel]);
  // The size of the batch may not be known yet.
  bool per_element =
      !KnownToDiffer(n, NumElements(x)) &&
      (x.empty() ||
       !KnownToDiffer(n, NumElements(Dims(x.begin() + 1, x.end()))));
  if (n > 1 && !per_channel && !per_element && n != NumElements(x)) {
    return InvalidArgument("weight has ", n,
                           " elements; it must have 1, or one per channel of ",
                           ToString(x));
  }
  return std::vector<TensorType>{t.in("X")};
}

Types MaxoutShape(const OpTypes& t) {
  TensorType out = t.in("X");
  ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(t.attr<int64_t>("axis"),
                                               out.dims.size(), "axis"));
  int64_t groups = t.attr<int64_t>("groups");
  if (groups < 1 || (out.dims[axis] >= 0 && out.dims[axis] % groups != 0)) {
    return InvalidArgument("groups is ", groups, " but must divide the ",
                           out.dims[axis], " channels");
  }
  if (out.dims[axis] >= 0) out.dims[axis] /= groups;
  return std::vector<TensorType>{out};
}

void DefineActivations(OpDefiner& ops) {
  const std::string f = "nn.functional.activation.";
  const auto softmax = [&](const std::string& name) -> OpDefiner& {
    return ops.Define(name + "(X; axis: int = -1) -> Out", SoftmaxShape,
                      "Out, Out' -> X'");
  };
  softmax("softmax").Python(f + "softmax(x, axis, name) by hand; Softmax",
                            "exp(x) over its sum along `axis`.");
  softmax("log_softmax")
      .Python(f + "log_softmax(x, axis, name) by hand; LogSoftmax",
              "The logarithm of softmax along `axis`.");
  const auto of_x = [&](const char* schema) -> OpDefiner& {
    return ops.Define(schema, SameAs("X"), "X, Out' -> X'");
  };
  of_x("gelu(X; approximate: bool = false) -> Out")
      .Python(f + "gelu(x, approximate, name); GELU",
              "x times the normal distribution function; `approximate` by "
              "tanh.");
  of_x("leaky_relu(X; alpha: float = 0.01) -> Out")
      .Python(f + "leaky_relu(x, negative_slope, name); LeakyReLU",
              "x, or negative_slope x below zero.");
  of_x("elu(X; alpha: float = 1.0) -> Out")
      .Python(f + "elu(x, alpha, name); elu_; ELU",
              "x above zero, alpha (exp(x) - 1) below.");
  of_x("celu(X; alpha: float = 1.0) -> Out")
      .Python(f + "celu(x, alpha, name); CELU",
              "x above zero, alpha (exp(x / alpha) - 1) below.");
  of_x(
      "selu(X; scale: float = 1.0507009873554805, "
      "alpha: float = 1.6732632423543772) -> Out")
      .Python(f + "selu(x, scale, alpha, name) by hand; SELU",
              "scale * x, or scale * alpha * (exp(x) - 1) below zero.");
  of_x("hard_swish(X) -> Out")
      .Python(f + "hardswish(x, name); Hardswish",
              "x min(max(x + 3, 0), 6) / 6.");
  of_x("brelu(X; t_min: float = -1.0, t_max: float = 1.0) -> Out")
      .Python(f + "hardtanh(x, min, max, name); Hardtanh",
              "x, kept between min and max.");
  of_x("hard_shrink(X; threshold: float = 0.5) -> Out")
      .Python(f + "hardshrink(x, threshold, name); Hardshrink",
              "x where its size is above the threshold, else zero.");
  of_x("softshrink(X; lambda: float = 0.5) -> Out")
      .Python(f + "softshrink(x, threshold, name) by hand; Softshrink",
              "x moved towards zero by the threshold, and not beyond.");
  of_x("softplus(X; beta: float = 1.0, threshold: float = 20.0) -> Out")
      .Python(f + "softplus(x, beta=1, threshold=20, name); Softplus",
              "log(1 + exp(beta x)) / beta; x itself where beta x is above "
              "the threshold.");
  of_x("thresholded_relu(X; threshold: float = 1.0) -> Out")
      .Python(f + "thresholded_relu(x, threshold, name); ThresholdedReLU",
              "x where it is above the threshold, else zero.");
  const auto floating = [&](const char* schema) -> OpDefiner& {
    return ops.Define(schema, FloatingLikeX, "X, Out' -> X'");
  };
  floating("relu6(X) -> Out")
      .Python(f + "relu6(x, name); ReLU6", "min(max(x, 0), 6).");
  floating("swish(X; beta: float = 1.0) -> Out")
      .Python(f + "swish(x, name); Swish", "x sigmoid(x).");
  floating(
      "hard_sigmoid(X; slope: float = 0.16666667, offset: float = 0.5) -> "
      "Out")
      .Python(f + "hardsigmoid(x, slope=0.1666667, offset, name); "
                  "Hardsigmoid(name)",
              "min(max(slope x + offset, 0), 1).");
  ops.Define("prelu(X, Alpha; data_format: string = 'NCHW') -> Out", PreluShape,
             "X, Alpha, Out' -> X', Alpha'")
      .Python(f + "prelu(x, weight, data_format, name)",
              "x above zero, weight x below; one weight for all, or one per "
              "channel.");
  ops.Define("maxout(X; groups: int, axis: int = 1) -> Out", MaxoutShape,
             "X, Out, Out' -> X'")
      .Python(f + "maxout(x, groups, axis, name); Maxout",
              "The largest of each group of `groups` channels.");
}

// ---- norms

int64_t ChannelDim(const Dims& x, const std::string& data_format) {
  if (x.size() < 2) return static_cast<int64_t>(x.size()) - 1;
  return ChannelsLast(data_format) ? static_cast<int64_t>(x.size()) - 1 : 1;
}

Status CheckPerChannel(const OpTypes& t, const char* slot, int64_t channels) {
  if (!t.has(slot)) return OkStatus();
  int64_t n = NumElements(t.in(slot).dims);
  if (n == channels || n < 0 || channels < 0) return OkStatus();
  return InvalidArgument(slot, " has ", n, " elements but the input has ",
                         channels, " channels");
}

// The channels of X, which needs a batch and a channel dimension.
Result<int64_t> NumChannels(const OpTypes& t) {
  const Dims& x = t.in("X").dims;
  if (x.size() < 2) {
    return InvalidArgument(
        "the input needs a batch and a channel dimension, "
        "but has shape ",
        ToString(x));
  }
  return x[ChannelDim(x, t.attr<std::string>("data_layout"))];
}

Types BatchNormShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  ASSIGN_OR_RETURN(int64_t channels, NumChannels(t));
  for (const char* slot : {"Mean", "Variance", "Scale", "Bias"}) {
    RETURN_IF_ERROR(CheckPerChannel(t, slot, channels));
  }
  TensorType saved{t.in("Mean").dtype, {channels}};
  return std::vector<TensorType>{x, saved, saved};
}

Types LayerNormShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  int64_t axis = t.attr<int64_t>("begin_norm_axis");
  if (axis < 0 || axis >= static_cast<int64_t>(x.dims.size())) {
    return InvalidArgument("begin_norm_axis is ", axis, " but X has ",
                           x.dims.size(), " dimensions");
  }
  Dims outer(x.dims.begin(), x.dims.begin() + axis);
  Dims inner(x.dims.begin() + axis, x.dims.end());
  for (const char* slot : {"Scale", "Bias"}) {
    if (t.has(slot) &&
        KnownToDiffer(NumElements(t.in(slot).dims), NumElements(inner))) {
      return InvalidArgument(slot, " ", ToString(t.in(slot).dims),
                             " must have as many elements as the normalized "
                             "shape ",
                             ToString(inner));
    }
  }
  TensorType saved{x.dtype, {NumElements(outer)}};
  return std::vector<TensorType>{x, saved, saved};
}

Types GroupNormShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  ASSIGN_OR_RETURN(int64_t channels, NumChannels(t));
  int64_t groups = t.attr<int64_t>("groups");
  if (groups < 0 || (groups > 0 && channels >= 0 && channels % groups != 0)) {
    return InvalidArgument("groups is ", groups, " but must divide the ",
                           channels, " channels");
  }
  RETURN_IF_ERROR(CheckPerChannel(t, "Scale", channels));
  RETURN_IF_ERROR(CheckPerChannel(t, "Bias", channels));
  TensorType saved{x.dtype, {x.dims[0], groups == 0 ? channels : groups}};
  return std::vector<TensorType>{x, saved, saved};
}

// X over its norm along `axis`.
Types NormShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(t.attr<int64_t>("axis"),
                                               x.dims.size(), "axis"));
  Dims dims = x.dims;
  dims[axis] = 1;
  return std::vector<TensorType>{x, {x.dtype, dims}};
}

// Every channel of every image by itself.
Types InstanceNormShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  if (x.dims.size() < 3) {
    return InvalidArgument("X must have at least three dimensions, not ",
                           ToString(x.dims));
  }
  for (const char* slot : {"Scale", "Bias"}) {
    if (t.has(slot) && KnownToDiffer(NumElements(t.in(slot).dims), x.dims[1])) {
      return InvalidArgument(slot, " must have ", x.dims[1], " elements");
    }
  }
  const int64_t saved =
      x.dims[0] < 0 || x.dims[1] < 0 ? -1 : x.dims[0] * x.dims[1];
  return std::vector<TensorType>{x, {x.dtype, {saved}}, {x.dtype, {saved}}};
}

void DefineNorms(OpDefiner& ops) {
  // In training Mean and Variance, the running statistics, are changed in
  // place: running = momentum * running + (1 - momentum) * batch. SavedMean and
  // SavedVariance are what the gradient needs: the batch's mean and inverse
  // deviation, or in tests the running mean and variance as they were.
  ops.Define(
      "batch_norm(X, Mean, Variance, Scale?, Bias?; momentum: float = 0.9, "
      "epsilon: float = 1e-05, is_test: bool = false, "
      "use_global_stats: bool = false, data_layout: string = 'NCHW') -> "
      "Y, SavedMean!, SavedVariance!",
      BatchNormShape,
      "X, Scale, SavedMean, SavedVariance, Y' -> X', Scale', Bias'");
  ops.Define(
      "layer_norm(X, Scale?, Bias?; begin_norm_axis: int = 1, "
      "epsilon: float = 1e-05) -> Y, Mean!, Variance!",
      LayerNormShape,
      "X, Scale, Bias, Mean, Variance, Y' -> X', Scale', Bias'");
  // `groups` 0: one group per channel, which is instance_norm.
  ops.Define(
      "group_norm(X, Scale?, Bias?; groups: int = 0, epsilon: float = 1e-05, "
      "data_layout: string = 'NCHW') -> Y, Mean!, Variance!",
      GroupNormShape, "X, Scale, Mean, Variance, Y' -> X', Scale', Bias'");
  ops.Define("norm(X; axis: int = -1, epsilon: float = 1e-10) -> Out, Norm!",
             NormShape, "Out, Norm, Out' -> X'");
  ops.Define(
      "instance_norm(X, Scale?, Bias?; epsilon: float = 1e-05) -> Y, "
      "SavedMean!, SavedVariance!",
      InstanceNormShape,
      "X, Scale, SavedMean, SavedVariance, Y' -> X', Scale', Bias'");
}

// ---- embedding, dropout

Types EmbeddingShape(const OpTypes& t) {
  const Dims& w = t.in("W").dims;
  const TensorType& ids = t.in("Ids");
  if (w.size() != 2) {
    return InvalidArgument("weight must have two dimensions, not ",
                           ToString(w));
  }
  if (ids.dtype != DType::kInt64 && ids.dtype != DType::kInt32) {
    return InvalidArgument("ids must be int64 or int32, not ", Name(ids.dtype));
  }
  Dims dims = ids.dims;
  dims.push_back(w[1]);
  return std::vector<TensorType>{{t.in("W").dtype, dims}};
}

// As EmbeddingShape, for ids with a last dimension of one.
Types OldEmbeddingShape(const OpTypes& t) {
  ASSIGN_OR_RETURN(std::vector<TensorType> types, EmbeddingShape(t));
  const Dims& ids = t.in("Ids").dims;
  if (ids.empty() || (ids.back() != 1 && ids.back() != -1)) {
    return InvalidArgument("the last dimension of ids ", ToString(ids),
                           " must be 1");
  }
  types[0].dims.erase(types[0].dims.end() - 2);
  return types;
}

Types OneHotShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  int64_t depth = t.attr<int64_t>("depth");
  if (depth < 1) return InvalidArgument("num_classes is ", depth);
  if (x.dtype != DType::kInt64 && x.dtype != DType::kInt32) {
    return InvalidArgument("x must be int64 or int32, not ", Name(x.dtype));
  }
  Dims dims = x.dims;
  dims.push_back(depth);
  return std::vector<TensorType>{{DType::kFloat32, dims}};
}

Types DropoutShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  double p = t.attr<double>("dropout_prob");
  if (!(p >= 0 && p <= 1)) {
    return InvalidArgument("p is ", p, " but must lie in [0, 1]");
  }
  const std::string& mode = t.attr<std::string>("dropout_implementation");
  if (mode != "upscale_in_train" && mode != "downscale_in_infer") {
    return InvalidArgument(
        "mode must be 'upscale_in_train' or "
        "'downscale_in_infer', not '",
        mode, "'");
  }
  Dims mask = x.dims;
  const auto& axes = t.attr<std::vector<int64_t>>("axis");
  if (!axes.empty()) mask.assign(x.dims.size(), 1);
  for (int64_t axis : axes) {
    ASSIGN_OR_RETURN(int64_t i, NormalizeAxis(axis, x.dims.size(), "axis"));
    mask[i] = x.dims[i];
  }
  return std::vector<TensorType>{x, {x.dtype, mask}};
}

// The ids are [..., 1].
Types OldOneHotShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const int64_t depth = t.attr<int64_t>("depth");
  if (x.dims.empty() || (x.dims.back() != 1 && x.dims.back() != -1)) {
    return InvalidArgument("the last dimension of X ", ToString(x.dims),
                           " must be 1");
  }
  if (depth < 1) return InvalidArgument("depth is ", depth);
  Dims dims = x.dims;
  dims.back() = depth;
  return std::vector<TensorType>{{DType::kFloat32, dims}};
}

void DefineLookups(OpDefiner& ops) {
  // `padding_idx` -1: none. With `is_sparse` the gradient of W is a sparse
  // tensor of the rows that Ids names, duplicates not merged.
  ops.Define(
      "lookup_table_v2(W, Ids; padding_idx: int = -1, is_sparse: bool = false) "
      "-> Out",
      EmbeddingShape, "W, Ids, Out' -> W'");
  // Ids [..., 1].
  ops.Define(
      "lookup_table(W, Ids; padding_idx: int = -1, is_sparse: bool = false) "
      "-> Out",
      OldEmbeddingShape, "W, Ids, Out' -> W'");
  ops.Define("one_hot_v2(X; depth: int) -> Out!", OneHotShape)
      .Python("nn.functional.input.one_hot(x, num_classes, name)",
              "x with a last dimension of num_classes zeros, and a one where x "
              "says.");
  // Mask holds what X was multiplied by; empty in tests. With `axis` one number
  // is drawn for all elements along the axes that are not named.
  ops.Define(
      "dropout(X; dropout_prob: float = 0.5, is_test: bool = false, "
      "dropout_implementation: string = 'upscale_in_train', axis: ints = []) "
      "-> Out, Mask!",
      DropoutShape, "Mask, Out' -> X'");
  ops.Define("one_hot(X; depth: int) -> Out!", OldOneHotShape);
  // Gradients that hold rows: each row once; all rows.
  ops.Define("merge_selected_rows(X) -> Out!", SameAs("X"));
  ops.Define("get_tensor_from_selected_rows(X) -> Out!", SameAs("X"));
}

}  // namespace

void DefineNnOps(OpDefiner& ops) {
  DefineActivations(ops);
  DefineNorms(ops);
  DefineLookups(ops);
}

void AddNnPrecisions(Precisions& listed) {
  listed.Add(Precision::kGray,
             {"batch_norm", "brelu", "celu", "dropout", "elu", "gelu",
              "hard_sigmoid", "hard_swish", "leaky_relu", "maxout", "prelu",
              "relu6", "selu", "softshrink", "swish", "thresholded_relu"});
  listed.Add(Precision::kBlack, {"group_norm", "instance_norm", "layer_norm",
                                 "log_softmax", "norm", "softmax", "softplus"});
  listed.Add(Precision::kBlackAlways, {"lookup_table", "lookup_table_v2"});
}

}  // namespace fleet::program
