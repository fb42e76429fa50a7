// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"
#include "fleet/program/window.h"

// Ops of programs that were written for Paddle 1.8, where newer ones are made
// of others.

namespace fleet::program {
namespace {

using Ints = std::vector<int64_t>;
using Types = Result<std::vector<TensorType>>;

Types Flatten2Shape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const int64_t axis = t.attr<int64_t>("axis");
  if (axis < 0 || axis > static_cast<int64_t>(x.dims.size())) {
    return InvalidArgument("axis is ", axis, " but X has ", x.dims.size(),
                           " dimensions");
  }
  const auto middle = x.dims.begin() + axis;
  return std::vector<TensorType>{{x.dtype,
                                  {NumElements(Dims(x.dims.begin(), middle)),
                                   NumElements(Dims(middle, x.dims.end()))}}};
}

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

Types OldExpandShape(const OpTypes& t) {
  TensorType out = t.in("X");
  const Ints& times = t.attr<Ints>("expand_times");
  if (times.size() != out.dims.size()) {
    return InvalidArgument("expand_times has ", times.size(), " numbers for X ",
                           ToString(out.dims));
  }
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] < 1) return InvalidArgument("expand_times has ", times[i]);
    if (out.dims[i] >= 0) out.dims[i] *= times[i];
  }
  return std::vector<TensorType>{out};
}

// Pairs (before, behind) for the dimensions from `first` on.
Types Padded(TensorType out, const Ints& paddings, size_t first, size_t count) {
  if (paddings.size() != 2 * count || out.dims.size() < first + count) {
    return InvalidArgument("paddings has ", paddings.size(), " numbers for X ",
                           ToString(out.dims));
  }
  for (size_t i = 0; i < count; ++i) {
    if (paddings[2 * i] < 0 || paddings[2 * i + 1] < 0) {
      return InvalidArgument("paddings must not be negative");
    }
    int64_t& dim = out.dims[first + i];
    if (dim >= 0) dim += paddings[2 * i] + paddings[2 * i + 1];
  }
  return std::vector<TensorType>{out};
}

Types PadShape(const OpTypes& t) {
  return Padded(t.in("X"), t.attr<Ints>("paddings"), 0, t.in("X").dims.size());
}

Types Pad2dShape(const OpTypes& t) {
  const std::string& mode = t.attr<std::string>("mode");
  if (mode != "constant" && mode != "reflect" && mode != "edge") {
    return InvalidArgument(
        "mode must be 'constant', 'reflect' or 'edge', not '", mode, "'");
  }
  if (t.in("X").dims.size() != 4) {
    return InvalidArgument("X must have four dimensions, not ",
                           ToString(t.in("X").dims));
  }
  const bool last = ChannelsLast(t.attr<std::string>("data_format"));
  return Padded(t.in("X"), t.attr<Ints>("paddings"), last ? 1 : 2, 2);
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

// Rows of X with those of Y, or with its only one.
Types CosSimShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const Dims& y = t.in("Y").dims;
  if (x.dims.size() < 2 || y.size() != x.dims.size()) {
    return InvalidArgument("X ", ToString(x.dims), " and Y ", ToString(y),
                           " must have the same two or more dimensions");
  }
  for (size_t i = 0; i < y.size(); ++i) {
    const bool one = i == 0 && y[0] == 1;
    if (!one && y[i] != x.dims[i] && y[i] != -1 && x.dims[i] != -1) {
      return InvalidArgument("X ", ToString(x.dims), " and Y ", ToString(y),
                             " differ");
    }
  }
  return std::vector<TensorType>{{x.dtype, {x.dims[0], 1}},
                                 {x.dtype, {x.dims[0], 1}},
                                 {x.dtype, {y[0], 1}}};
}

Types LabelSmoothShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  if (x.dims.empty() || !IsFloating(x.dtype)) {
    return InvalidArgument("X must be floating point, with classes last");
  }
  if (t.has("PriorDist") &&
      KnownToDiffer(NumElements(t.in("PriorDist").dims), x.dims.back())) {
    return InvalidArgument("PriorDist must have ", x.dims.back(), " elements");
  }
  return std::vector<TensorType>{x};
}

Types HuberShape(const OpTypes& t) {
  ASSIGN_OR_RETURN(Dims dims, BroadcastDims(t.in("X").dims, t.in("Y").dims));
  if (dims.size() != t.in("X").dims.size()) {
    return InvalidArgument("X and Y must have the same shape");
  }
  TensorType out{t.in("X").dtype, dims};
  return std::vector<TensorType>{out, out};
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

}  // namespace

void DefineOlderOps(OpRegistry& ops) {
  ops.Define("flatten2(X; axis: int = 1) -> Out", Flatten2Shape,
             "X, Out' -> X'");
  ops.Define("one_hot(X; depth: int) -> Out!", OldOneHotShape);
  ops.Define("expand(X; expand_times: ints) -> Out", OldExpandShape,
             "X, Out' -> X'");
  ops.Define("pad(X; paddings: ints, pad_value: float = 0.0) -> Out", PadShape,
             "X, Out' -> X'");
  // paddings: top, bottom, left, right.
  ops.Define(
      "pad2d(X; paddings: ints, pad_value: float = 0.0, "
      "mode: string = 'constant', data_format: string = 'NCHW') -> Out",
      Pad2dShape, "X, Out' -> X'");
  ops.Define("norm(X; axis: int = -1, epsilon: float = 1e-10) -> Out, Norm!",
             NormShape, "Out, Norm, Out' -> X'");
  ops.Define("cos_sim(X, Y) -> Out, XNorm!, YNorm!", CosSimShape,
             "X, Y, Out, XNorm, YNorm, Out' -> X', Y'");
  ops.Define("label_smooth(X, PriorDist?; epsilon: float = 0.0) -> Out",
             LabelSmoothShape, "Out' -> X'");
  // Residual: Y - X.
  ops.Define("huber_loss(X, Y; delta: float = 1.0) -> Out, Residual!",
             HuberShape, "Residual, Out' -> X', Y'");
  ops.Define(
      "instance_norm(X, Scale?, Bias?; epsilon: float = 1e-05) -> Y, "
      "SavedMean!, SavedVariance!",
      InstanceNormShape,
      "X, Scale, SavedMean, SavedVariance, Y' -> X', Scale', Bias'");
  // Of gradients that hold rows: each row once; all rows.
  ops.Define("merge_selected_rows(X) -> Out!", SameAs("X"));
  ops.Define("get_tensor_from_selected_rows(X) -> Out!", SameAs("X"));
}

}  // namespace fleet::program
