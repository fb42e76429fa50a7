// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

namespace fleet::program {
namespace {

using Types = Result<std::vector<TensorType>>;

Types CumsumShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  if (t.attr<bool>("flatten")) {
    return std::vector<TensorType>{{x.dtype, {NumElements(x.dims)}}};
  }
  ASSIGN_OR_RETURN(
      [[maybe_unused]] int64_t axis,
      NormalizeAxis(t.attr<int64_t>("axis"), x.dims.size(), "axis"));
  return std::vector<TensorType>{x};
}

Types CumprodShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  ASSIGN_OR_RETURN([[maybe_unused]] int64_t axis,
                   NormalizeAxis(t.attr<int64_t>("dim"), x.dims.size(), "dim"));
  return std::vector<TensorType>{x};
}

Types DiffShape(const OpTypes& t) {
  TensorType x = t.in("X");
  int64_t n = t.attr<int64_t>("n");
  if (n < 0) return InvalidArgument("n must not be negative, but is ", n);
  if (x.dims.empty()) return InvalidArgument("X has no dimensions");
  ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(t.attr<int64_t>("axis"),
                                               x.dims.size(), "axis"));
  if (x.dims[axis] >= 0) {
    if (n > x.dims[axis]) {
      return InvalidArgument("n is ", n, " but dimension ", axis, " of ",
                             ToString(x.dims), " has ", x.dims[axis],
                             " elements");
    }
    x.dims[axis] -= n;
  }
  return std::vector<TensorType>{x};
}

// One result for each q in front of the reduced shape, or just the one; then
// the order of the reduced elements.
Types QuantileShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  ASSIGN_OR_RETURN(std::vector<TensorType> types, Reduce()(t));
  TensorType out = types[0];
  if (out.dtype != DType::kFloat64) out.dtype = DType::kFloat32;
  auto count = static_cast<int64_t>(t.attr<std::vector<double>>("q").size());
  const auto& axes = t.attr<std::vector<int64_t>>("dim");
  bool full = axes.empty() || axes.size() == x.dims.size() ||
              t.attr<bool>("reduce_all");
  if (t.attr<bool>("list")) {
    if (full && !t.attr<bool>("keep_dim")) out.dims.clear();
    out.dims.insert(out.dims.begin(), count);
  }
  Dims order{1, 1};
  for (size_t i = 0; i < x.dims.size(); ++i) {
    bool reduced = full;
    for (int64_t axis : axes) {
      auto rank = static_cast<int64_t>(x.dims.size());
      reduced |= (axis < 0 ? axis + rank : axis) == static_cast<int64_t>(i);
    }
    int64_t& size = order[reduced ? 1 : 0];
    size = size < 0 || x.dims[i] < 0 ? -1 : size * x.dims[i];
  }
  return std::vector<TensorType>{out, {DType::kInt64, order}};
}

Types HistogramShape(const OpTypes& t) {
  int64_t bins = t.attr<int64_t>("bins");
  if (bins < 1) return InvalidArgument("bins must be positive, but is ", bins);
  if (t.attr<double>("min") > t.attr<double>("max")) {
    return InvalidArgument("min ", t.attr<double>("min"), " is above max ",
                           t.attr<double>("max"));
  }
  return std::vector<TensorType>{{DType::kInt64, {bins}}};
}

Types BincountShape(const OpTypes& t) {
  if (t.in("X").dims.size() != 1) {
    return InvalidArgument("X must have one dimension, not ",
                           ToString(t.in("X").dims));
  }
  DType dtype = DType::kInt64;
  if (t.has("Weights")) {
    dtype = t.in("Weights").dtype == DType::kFloat32 ? DType::kFloat32
                                                     : DType::kFloat64;
  }
  return std::vector<TensorType>{{dtype, {-1}}};
}

Types MultiplexShape(const OpTypes& t) {
  std::span<const TensorType> x = t.list("X");
  if (x.size() < 2) return InvalidArgument("X must list at least two tensors");
  TensorType out = x[0];
  for (const TensorType& one : x) {
    if (!CanBeOne(one.dims, out.dims)) {
      return InvalidArgument("all of X must have one shape, but found ",
                             ToString(out.dims), " and ", ToString(one.dims));
    }
    out.dims = KnownOfBoth(out.dims, one.dims);
  }
  if (out.dims.size() < 2) {
    return InvalidArgument("X must have at least two dimensions, not ",
                           ToString(out.dims));
  }
  return std::vector<TensorType>{out};
}

}  // namespace

void DefineStatOps(OpDefiner& ops) {
  ops.Define(
      "cumsum(X; axis: int = -1, flatten: bool = false, "
      "exclusive: bool = false, reverse: bool = false) -> Out",
      CumsumShape, "X, Out' -> X'");
  ops.Define("cumprod(X; dim: int) -> Out", CumprodShape, "X, Out, Out' -> X'");
  ops.Define("diff(X; n: int = 1, axis: int = -1) -> Out", DiffShape,
             "Out' -> X'");
  ops.Define(
      "quantile(X; q: floats, dim: ints = [], keep_dim: bool = false, "
      "reduce_all: bool = false, list: bool = false) -> Out, Order!",
      QuantileShape, "X, Order, Out' -> X'");
  ops.Define(
         "histogram(X; bins: int = 100, min: float = 0.0, max: float = 0.0) "
         "-> Out!",
         HistogramShape)
      .Python(
          "tensor.stat.histogram(input, bins, min=0, max=0, name)",
          "How many elements lie in each of `bins` equal intervals from `min` "
          "to `max`; both 0: from the smallest to the largest element.");
  ops.Define("bincount(X, Weights?; minlength: int = 0) -> Out!", BincountShape)
      .Python("tensor.stat.bincount(x, weights, minlength, name)",
              "How often each integer from 0 on occurs, or the sum of its "
              "weights.");
  ops.Define("multiplex(X*, Ids) -> Out", MultiplexShape, "X, Ids, Out' -> X'")
      .Python("tensor.math.multiplex(inputs, index, name)",
              "Row i of the result is row i of `inputs[index[i]]`.");
}

void AddStatPrecisions(Precisions& listed) {
  listed.Add(Precision::kBlack, {"cumprod", "cumsum"});
}

}  // namespace fleet::program
