// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

// Ops that take parts of a tensor or write to parts of it: by slices and by
// tensors of indices.

namespace fleet::program {
namespace {

using Ints = std::vector<int64_t>;
using Types = Result<std::vector<TensorType>>;

std::vector<TensorType> One(DType dtype, Dims dims) {
  return {{dtype, std::move(dims)}};
}

// ---- slices

// How many elements start:end:step takes of `size`, as Python counts.
int64_t SliceLength(int64_t size, int64_t start, int64_t end, int64_t step) {
  int64_t low = step > 0 ? 0 : -1;
  auto clamp = [&](int64_t i) {
    if (i < 0) i += size;
    return std::clamp(i, low, step > 0 ? size : size - 1);
  };
  int64_t from = clamp(start), to = clamp(end);
  int64_t span = step > 0 ? to - from : from - to;
  int64_t stride = std::abs(step);
  return span <= 0 ? 0 : (span + stride - 1) / stride;
}

Types SliceDims(const OpTypes& t, const Ints& axes, const Ints& starts,
                const Ints& ends, const Ints& strides, const Ints& decrease,
                bool known) {
  const TensorType& x = t.in("Input");
  TensorType out = x;
  if (known && (starts.size() != axes.size() || ends.size() != axes.size() ||
                strides.size() != axes.size())) {
    return InvalidArgument("axes ", ToString(axes), ", starts ",
                           ToString(starts), ", ends ", ToString(ends),
                           " and strides ", ToString(strides),
                           " must be equally long");
  }
  for (size_t k = 0; k < axes.size(); ++k) {
    ASSIGN_OR_RETURN(int64_t i, NormalizeAxis(axes[k], x.dims.size(), "axes"));
    if (known && strides[k] == 0) return InvalidArgument("a stride is 0");
    out.dims[i] = known && x.dims[i] != -1
                      ? SliceLength(x.dims[i], starts[k], ends[k], strides[k])
                      : -1;
  }
  for (int64_t axis : decrease) {
    ASSIGN_OR_RETURN(int64_t i,
                     NormalizeAxis(axis, x.dims.size(), "decrease_axis"));
    if (known && out.dims[i] > 1) {
      return InvalidArgument("decrease_axis ", i, " has ", out.dims[i],
                             " elements");
    }
    out.dims[i] = -2;
  }
  std::erase(out.dims, -2);
  if (!decrease.empty() && out.dims.empty()) out.dims.push_back(1);
  return std::vector<TensorType>{out};
}

Types SliceShape(const OpTypes& t) {
  const Ints& axes = t.attr<Ints>("axes");
  bool known = !t.has("StartsTensor") && !t.has("EndsTensor");
  return SliceDims(t, axes, t.attr<Ints>("starts"), t.attr<Ints>("ends"),
                   Ints(axes.size(), 1), t.attr<Ints>("decrease_axis"), known);
}

Types StridedSliceShape(const OpTypes& t) {
  return SliceDims(t, t.attr<Ints>("axes"), t.attr<Ints>("starts"),
                   t.attr<Ints>("ends"), t.attr<Ints>("strides"), {}, true);
}

Types CropShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  Dims dims = t.attr<Ints>("shape");
  Ints offsets = t.attr<Ints>("offsets");
  if (t.has("ShapeTensor") || t.has("OffsetsTensor")) {
    return One(x.dtype, t.has("ShapeTensor") ? Dims(x.dims.size(), -1) : dims);
  }
  offsets.resize(std::max(offsets.size(), x.dims.size()), 0);
  if (dims.size() != x.dims.size() || offsets.size() != x.dims.size()) {
    return InvalidArgument("shape ", ToString(dims), " and offsets ",
                           ToString(offsets), " must have a number for each ",
                           "of the ", x.dims.size(), " dimensions of X");
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (x.dims[i] == -1) continue;
    if (dims[i] == -1) dims[i] = x.dims[i] - offsets[i];
    if (offsets[i] < 0 || dims[i] < 0 || offsets[i] + dims[i] > x.dims[i]) {
      return InvalidArgument("shape ", ToString(dims), " from offsets ",
                             ToString(offsets), " on does not lie in X ",
                             ToString(x.dims));
    }
  }
  return One(x.dtype, dims);
}

void DefineSlicing(OpDefiner& ops) {
  ops.Define(
      "slice(Input, StartsTensor?, EndsTensor?; axes: ints, starts: ints = [], "
      "ends: ints = [], decrease_axis: ints = []) -> Out",
      SliceShape, "Input, StartsTensor, EndsTensor, Out' -> Input'");
  ops.Define(
         "strided_slice(Input; axes: ints, starts: ints, ends: ints, "
         "strides: ints) -> Out",
         StridedSliceShape, "Input, Out' -> Input'")
      .Python(
          "tensor.manipulation.strided_slice(x, axes, starts, ends, strides, "
          "name)",
          "Every strides-th element from starts to ends along each of `axes`.");
  ops.Define(
      "crop_tensor(X, ShapeTensor?, OffsetsTensor?; shape: ints = [], "
      "offsets: ints = []) -> Out",
      CropShape, "X, ShapeTensor, OffsetsTensor, Out' -> X'");
}

// ---- by tensors of indices

Status CheckIndexType(const TensorType& index) {
  if (index.dtype == DType::kInt32 || index.dtype == DType::kInt64) {
    return OkStatus();
  }
  return InvalidArgument("index must be int32 or int64, not ",
                         Name(index.dtype));
}

// [n], also written [n, 1] or as one number.
Result<int64_t> IndexLength(const TensorType& index) {
  RETURN_IF_ERROR(CheckIndexType(index));
  const Dims& dims = index.dims;
  bool flat =
      dims.size() == 1 || (dims.size() == 2 && !KnownToDiffer(dims[1], 1));
  if (!flat && !dims.empty()) {
    return InvalidArgument("index ", ToString(dims),
                           " must have one dimension");
  }
  return dims.empty() ? 1 : dims[0];
}

// Rows of X, counted along the attribute `axis`.
ShapeRule SelectAlong(const std::string& attr) {
  return [attr](const OpTypes& t) -> Types {
    const TensorType& x = t.in("X");
    ASSIGN_OR_RETURN(int64_t n, IndexLength(t.in("Index")));
    ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(t.attr<int64_t>(attr),
                                                 x.dims.size(), "axis"));
    if (x.dims.empty()) return InvalidArgument("x has no dimensions");
    TensorType out = x;
    out.dims[axis] = n;
    return std::vector<TensorType>{out};
  };
}

// The shape of what an index [..., k] picks: [...] and the rest of X.
Result<Dims> NdSelection(const Dims& x, const TensorType& index) {
  RETURN_IF_ERROR(CheckIndexType(index));
  const Dims& dims = index.dims;
  int64_t k = dims.empty() ? -1 : dims.back();
  if (k < 0 || k > static_cast<int64_t>(x.size())) {
    return InvalidArgument("the last dimension of index ", ToString(dims),
                           " must be at most ", x.size(),
                           ", the number of dimensions of X");
  }
  Dims out(dims.begin(), dims.end() - 1);
  out.insert(out.end(), x.begin() + k, x.end());
  return out;
}

Types GatherNdShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  ASSIGN_OR_RETURN(Dims dims, NdSelection(x.dims, t.in("Index")));
  if (dims.empty()) dims.push_back(1);
  return One(x.dtype, dims);
}

Types ScatterShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const TensorType& updates = t.in("Updates");
  ASSIGN_OR_RETURN(int64_t n, IndexLength(t.in("Ids")));
  if (x.dims.empty()) return InvalidArgument("x has no dimensions");
  Dims want = x.dims;
  want[0] = n;
  if (!CanBeOne(updates.dims, want)) {
    return InvalidArgument("updates ", ToString(updates.dims),
                           " must have shape ", ToString(want), ": a row of x ",
                           ToString(x.dims), " for each index");
  }
  if (updates.dtype != x.dtype) {
    return InvalidArgument("updates are ", Name(updates.dtype), " but x is ",
                           Name(x.dtype));
  }
  return std::vector<TensorType>{x};
}

Types ScatterNdAddShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const TensorType& updates = t.in("Updates");
  const TensorType& index = t.in("Index");
  RETURN_IF_ERROR(CheckIndexType(index));
  if (index.dims.empty() || index.dims.back() >= 0) {
    ASSIGN_OR_RETURN(Dims want, NdSelection(x.dims, index));
    if (!CanBeOne(updates.dims, want)) {
      return InvalidArgument("updates ", ToString(updates.dims),
                             " must have shape ", ToString(want));
    }
  }
  if (updates.dtype != x.dtype) {
    return InvalidArgument("updates are ", Name(updates.dtype), " but x is ",
                           Name(x.dtype));
  }
  return std::vector<TensorType>{x};
}

Types IndexSampleShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const TensorType& index = t.in("Index");
  RETURN_IF_ERROR(CheckIndexType(index));
  bool fits = x.dims.size() == 2 && index.dims.size() == 2 &&
              CanBeOne({x.dims[0]}, {index.dims[0]});
  if (!fits) {
    return InvalidArgument("x ", ToString(x.dims), " and index ",
                           ToString(index.dims),
                           " must have two dimensions and equally many rows");
  }
  return One(x.dtype, index.dims);
}

// X and the index broadcast against each other in all dimensions but `Axis`.
Result<Dims> AlongAxis(const Dims& x, const TensorType& index, int64_t axis) {
  RETURN_IF_ERROR(CheckIndexType(index));
  if (x.size() != index.dims.size()) {
    return InvalidArgument("indices ", ToString(index.dims),
                           " must have as many dimensions as the input ",
                           ToString(x));
  }
  ASSIGN_OR_RETURN(int64_t i, NormalizeAxis(axis, x.size(), "axis"));
  Dims a = x, b = index.dims;
  if (!x.empty()) a[i] = b[i] = 1;
  ASSIGN_OR_RETURN(Dims dims, BroadcastDims(a, b));
  if (!x.empty()) dims[i] = index.dims[i];
  return dims;
}

Types TakeAlongAxisShape(const OpTypes& t) {
  const TensorType& x = t.in("Input");
  ASSIGN_OR_RETURN(Dims dims,
                   AlongAxis(x.dims, t.in("Index"), t.attr<int64_t>("Axis")));
  return One(x.dtype, dims);
}

Types PutAlongAxisShape(const OpTypes& t) {
  const TensorType& x = t.in("Input");
  const TensorType& value = t.in("Value");
  ASSIGN_OR_RETURN(Dims at,
                   AlongAxis(x.dims, t.in("Index"), t.attr<int64_t>("Axis")));
  ASSIGN_OR_RETURN(Dims dims, BroadcastDims(at, value.dims));
  if (!CanBeOne(dims, at)) {
    return InvalidArgument("values ", ToString(value.dims),
                           " do not broadcast to the indices ", ToString(at));
  }
  if (value.dtype != x.dtype) {
    return InvalidArgument("values are ", Name(value.dtype),
                           " but the input is ", Name(x.dtype));
  }
  const std::string& reduce = t.attr<std::string>("Reduce");
  if (reduce != "assign" && reduce != "add" && reduce != "mul") {
    return InvalidArgument("reduce is '", reduce,
                           "' but must be 'assign', 'add' or 'mul'");
  }
  return std::vector<TensorType>{x};
}

void DefineGathering(OpDefiner& ops) {
  ops.Define("gather(X, Index; axis: int = 0) -> Out", SelectAlong("axis"),
             "X, Index, Out' -> X'")
      .Python(
          "tensor.manipulation.gather(x, index, axis=None, name)",
          "The slices of x along `axis` (0 without one) that `index` numbers.");
  ops.Define("index_select(X, Index; dim: int = 0) -> Out", SelectAlong("dim"),
             "X, Index, Out' -> X'")
      .Python("tensor.manipulation.index_select(x, index, axis, name)",
              "The slices of x along `axis` that `index` numbers.");
  ops.Define("gather_nd(X, Index) -> Out", GatherNdShape,
             "X, Index, Out' -> X'")
      .Python(
          "tensor.manipulation.gather_nd(x, index, name)",
          "The parts of x at the positions in the last dimension of `index`.");
  ops.Define("index_sample(X, Index) -> Out", IndexSampleShape,
             "X, Index, Out' -> X'")
      .Python("tensor.manipulation.index_sample(x, index)",
              "From each row of x the elements that the same row of `index` "
              "numbers.");
  ops.Define("take_along_axis(Input, Index; Axis: int) -> Result",
             TakeAlongAxisShape, "Input, Index, Result' -> Input'")
      .Python("tensor.manipulation.take_along_axis(arr, indices, axis)",
              "The elements of each line along `axis` that the same line of "
              "indices numbers.");
}

void DefineScattering(OpDefiner& ops) {
  ops.Define("scatter(X, Ids, Updates; overwrite: bool = true) -> Out",
             ScatterShape, "Ids, Out' -> X', Updates'")
      .Python("tensor.manipulation.scatter(x, index, updates, overwrite, name)",
              "x with rows `index` replaced by `updates`, or by their sums if "
              "not overwrite.");
  ops.Define("scatter_nd_add(X, Index, Updates) -> Out", ScatterNdAddShape,
             "Index, Updates, Out' -> X', Updates'")
      .Python("tensor.manipulation.scatter_nd_add(x, index, updates, name)",
              "x with `updates` added at the positions in the last dimension "
              "of `index`.");
  ops.Define(
      "put_along_axis(Input, Index, Value; Axis: int, "
      "Reduce: string = 'assign') -> Result",
      PutAlongAxisShape,
      "Input, Index, Value, Result, Result' -> Input', Value'");
}

}  // namespace

void DefineIndexingOps(OpDefiner& ops) {
  DefineSlicing(ops);
  DefineGathering(ops);
  DefineScattering(ops);
}

void AddIndexingPrecisions(Precisions& listed) {
  listed.Add(Precision::kGray,
             {"gather", "gather_nd", "index_select", "slice", "strided_slice"});
  listed.Add(Precision::kBlackAlways, {"scatter"});
}

}  // namespace fleet::program
