// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

// Ops that look for elements: the largest, the chosen, the distinct.

namespace fleet::program {
namespace {

using Ints = std::vector<int64_t>;
using Types = Result<std::vector<TensorType>>;

Types TopkShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(t.attr<int64_t>("axis"),
                                               x.dims.size(), "axis"));
  if (x.dims.empty()) return InvalidArgument("x has no dimensions");
  int64_t k = t.has("KTensor") ? -1 : t.attr<int64_t>("k");
  if (!t.has("KTensor") &&
      (k < 1 || (x.dims[axis] != -1 && k > x.dims[axis]))) {
    return InvalidArgument("k is ", k, " but dimension ", axis, " of x has ",
                           x.dims[axis], " elements");
  }
  Dims dims = x.dims;
  dims[axis] = k;
  return std::vector<TensorType>{{x.dtype, dims}, {DType::kInt64, dims}};
}

// Along the last dimension.
Types OldTopkShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  int64_t k = t.has("K") ? -1 : t.attr<int64_t>("k");
  if (x.dims.empty() ||
      (!t.has("K") && (k < 1 || (x.dims.back() != -1 && k > x.dims.back())))) {
    return InvalidArgument("k is ", k, " for x ", ToString(x.dims));
  }
  Dims dims = x.dims;
  dims.back() = k;
  return std::vector<TensorType>{{x.dtype, dims}, {DType::kInt64, dims}};
}

Types ArgsortShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  RETURN_IF_ERROR(
      NormalizeAxis(t.attr<int64_t>("axis"), x.dims.size(), "axis").status());
  return std::vector<TensorType>{x, {DType::kInt64, x.dims}};
}

Types ArgExtremeShape(const OpTypes& t) {
  const Dims& x = t.in("X").dims;
  DType dtype = t.dtype_attr("dtype");
  if (dtype != DType::kInt32 && dtype != DType::kInt64) {
    return InvalidArgument("dtype must be int32 or int64, not ", Name(dtype));
  }
  bool keep = t.attr<bool>("keepdims");
  if (NumElements(x) == 0) return InvalidArgument("x is empty");
  if (t.attr<bool>("flatten")) {
    return std::vector<TensorType>{{dtype, Dims(keep ? x.size() : 1, 1)}};
  }
  ASSIGN_OR_RETURN(int64_t axis,
                   NormalizeAxis(t.attr<int64_t>("axis"), x.size(), "axis"));
  Dims dims = x;
  if (keep && !dims.empty()) {
    dims[axis] = 1;
  } else if (!dims.empty()) {
    dims.erase(dims.begin() + axis);
  }
  if (dims.empty()) dims.push_back(1);
  return std::vector<TensorType>{{dtype, dims}};
}

Types WhereShape(const OpTypes& t) {
  const TensorType& condition = t.in("Condition");
  const TensorType& x = t.in("X");
  const TensorType& y = t.in("Y");
  if (condition.dtype != DType::kBool) {
    return InvalidArgument("condition must be bool, not ",
                           Name(condition.dtype));
  }
  if (x.dtype != y.dtype) {
    return InvalidArgument("x is ", Name(x.dtype), " but y is ", Name(y.dtype));
  }
  ASSIGN_OR_RETURN(Dims both, BroadcastDims(x.dims, y.dims));
  ASSIGN_OR_RETURN(Dims dims, BroadcastDims(condition.dims, both));
  return std::vector<TensorType>{{x.dtype, dims}};
}

Types WhereIndexShape(const OpTypes& t) {
  auto rank = static_cast<int64_t>(t.in("Condition").dims.size());
  return std::vector<TensorType>{{DType::kInt64, {-1, rank}}};
}

Types MaskedSelectShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const TensorType& mask = t.in("Mask");
  if (mask.dtype != DType::kBool) {
    return InvalidArgument("mask must be bool, not ", Name(mask.dtype));
  }
  ASSIGN_OR_RETURN(Dims dims, BroadcastDims(x.dims, mask.dims));
  if (dims.size() != x.dims.size() || mask.dims.size() != x.dims.size()) {
    return InvalidArgument("mask ", ToString(mask.dims),
                           " must have the shape of x ", ToString(x.dims));
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    bool known = x.dims[i] != -1 && mask.dims[i] != -1;
    if (known && x.dims[i] != mask.dims[i]) {
      return InvalidArgument("mask ", ToString(mask.dims),
                             " must have the shape of x ", ToString(x.dims));
    }
  }
  return std::vector<TensorType>{{x.dtype, {-1}}};
}

Types UniqueShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const Ints& axis = t.attr<Ints>("axis");
  DType dtype = t.dtype_attr("dtype");
  if (dtype != DType::kInt32 && dtype != DType::kInt64) {
    return InvalidArgument("dtype must be int32 or int64, not ", Name(dtype));
  }
  Dims values = {-1};
  Dims inverse = {NumElements(x.dims)};
  if (!axis.empty()) {
    ASSIGN_OR_RETURN(int64_t i, NormalizeAxis(axis[0], x.dims.size(), "axis"));
    values = x.dims;
    inverse = {x.dims[i]};
    values[i] = -1;
  }
  return std::vector<TensorType>{
      {x.dtype, values}, {dtype, {-1}}, {dtype, inverse}, {dtype, {-1}}};
}

}  // namespace

void DefineSearchOps(OpDefiner& ops) {
  ops.Define(
      "top_k_v2(X, KTensor?; k: int = 1, axis: int = -1, largest: bool = true, "
      "sorted: bool = true) -> Out, Indices!",
      TopkShape, "X, Indices, Out' -> X'");
  ops.Define("top_k(X, K?; k: int = 1) -> Out, Indices!", OldTopkShape,
             "X, Indices, Out' -> X'");
  ops.Define(
         "argsort(X; axis: int = -1, descending: bool = false) -> Out, "
         "Indices!",
         ArgsortShape, "Indices, Out' -> X'")
      .Python("tensor.search.argsort(x, axis, descending, name) -> Indices",
              "Where the elements in order along `axis` come from; equal ones "
              "keep order.")
      .Python("tensor.search.sort(x, axis, descending, name) -> Out",
              "The elements in order along `axis`.");
  for (const char* name : {"arg_max", "arg_min"}) {
    ops.Define(std::string(name) +
                   "(X; axis: int = -1, keepdims: bool = false, "
                   "flatten: bool = false, dtype: dtype = int64) -> Out!",
               ArgExtremeShape);
  }
  ops.Define("where(Condition, X, Y) -> Out", WhereShape,
             "Condition, X, Y, Out' -> X', Y'");
  ops.Define("where_index(Condition) -> Out!", WhereIndexShape);
  ops.Define("masked_select(X, Mask) -> Y", MaskedSelectShape,
             "X, Mask, Y' -> X'")
      .Python("tensor.search.masked_select(x, mask, name)",
              "The elements of x where `mask` holds, flat.");
  ops.Define(
      "unique(X; dtype: dtype = int64, return_index: bool = false, "
      "return_inverse: bool = false, return_counts: bool = false, "
      "axis: ints = []) -> Out!, Indices!, Index!, Counts!",
      UniqueShape);
}

void AddSearchPrecisions(Precisions& listed) {
  listed.Add(Precision::kGray, {"top_k", "top_k_v2", "where"});
}

}  // namespace fleet::program
