// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <limits>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_fill.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/scatter_reduce.h>
#include <ATen/ops/zeros.h>

#include "fleet/ops/index_check.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/shape_argument.h"

namespace fleet::ops {
namespace {

using at::IntArrayRef;
using at::Tensor;
using TensorPair = std::tuple<Tensor, Tensor>;

Tensor ZerosLike(const Tensor& shape_of, const Tensor& type_of) {
  return at::zeros(shape_of.sizes(), type_of.options());
}

// ---- slices

struct Range {
  int64_t start, end;  // 0 <= start <= end <= size
};

// Python's reading of start:end in a dimension of `size`.
Range Clamp(int64_t size, int64_t start, int64_t end) {
  auto clamp = [size](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size);
  };
  Range range{clamp(start), clamp(end)};
  range.end = std::max(range.start, range.end);
  return range;
}

// One range per dimension of x.
std::vector<Range> Ranges(const Tensor& x, IntArrayRef axes,
                          const std::vector<int64_t>& starts,
                          const std::vector<int64_t>& ends) {
  TORCH_CHECK(axes.size() == starts.size() && axes.size() == ends.size(),
              "axes ", axes, ", starts ", starts, " and ends ", ends,
              " must be equally long");
  std::vector<Range> ranges;
  for (int64_t size : x.sizes()) ranges.push_back({0, size});
  for (size_t k = 0; k < axes.size(); ++k) {
    int64_t axis = at::maybe_wrap_dim(axes[k], x.dim(), false);
    ranges[axis] = Clamp(x.size(axis), starts[k], ends[k]);
  }
  return ranges;
}

// Puts a gradient of the part `ranges` where the part lies in x.
Tensor PadTo(const Tensor& x, const Tensor& part,
             const std::vector<Range>& ranges) {
  std::vector<int64_t> sizes, pads;
  for (const Range& range : ranges) sizes.push_back(range.end - range.start);
  for (int64_t i = x.dim() - 1; i >= 0; --i) {
    pads.push_back(ranges[i].start);
    pads.push_back(x.size(i) - ranges[i].end);
  }
  return at::constant_pad_nd(part.reshape(sizes), pads);
}

Tensor TakePart(const Tensor& x, const std::vector<Range>& ranges) {
  Tensor out = x;
  for (int64_t i = 0; i < x.dim(); ++i) {
    out = out.slice(i, ranges[i].start, ranges[i].end);
  }
  return x.dim() == 0 ? x.clone() : out;
}

Tensor Slice(const Tensor& x, const Tensor& starts_tensor,
             const Tensor& ends_tensor, IntArrayRef axes, IntArrayRef starts,
             IntArrayRef ends, IntArrayRef decrease) {
  // A copy, as indexing gives one eagerly: ATen reads memory with gaps in other
  // loops, whose last bit may be another.
  Tensor out = TakePart(x, Ranges(x, axes, IntsOf(starts_tensor, starts),
                                  IntsOf(ends_tensor, ends)))
                   .contiguous();
  if (decrease.empty()) return out;
  std::vector<bool> gone(x.dim());
  for (int64_t a : decrease) {
    int64_t axis = at::maybe_wrap_dim(a, x.dim(), false);
    TORCH_CHECK(out.size(axis) == 1, "index out of range in dimension ", axis,
                " of size ", x.size(axis));
    gone[axis] = true;
  }
  std::vector<int64_t> shape;
  for (int64_t i = 0; i < x.dim(); ++i) {
    if (!gone[i]) shape.push_back(out.size(i));
  }
  if (shape.empty()) shape.push_back(1);
  return out.reshape(shape);
}
Tensor SliceGrad(const Tensor& x, const Tensor& starts_tensor,
                 const Tensor& ends_tensor, const Tensor& dout,
                 IntArrayRef axes, IntArrayRef starts, IntArrayRef ends,
                 IntArrayRef) {
  return PadTo(x, dout,
               Ranges(x, axes, IntsOf(starts_tensor, starts),
                      IntsOf(ends_tensor, ends)));
}

// The positions that start:end:step names, as Python counts.
Tensor Positions(int64_t size, int64_t start, int64_t end, int64_t step,
                 const Tensor& like) {
  TORCH_CHECK(step != 0, "a stride is 0");
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  auto clamp = [&](int64_t i) {
    return std::clamp(i < 0 ? i + size : i, low, std::max(low, high));
  };
  int64_t from = clamp(start), to = clamp(end);
  if (step > 0 ? from > to : from < to) to = from;
  return at::arange(from, to, step, like.options().dtype(at::kLong));
}

Tensor StridedSlice(const Tensor& x, IntArrayRef axes, IntArrayRef starts,
                    IntArrayRef ends, IntArrayRef strides) {
  TORCH_CHECK(axes.size() == starts.size() && axes.size() == ends.size() &&
                  axes.size() == strides.size(),
              "axes, starts, ends and strides must be equally long");
  Tensor out = x.alias();
  std::vector<bool> taken(x.dim());
  for (size_t k = 0; k < axes.size(); ++k) {
    int64_t axis = at::maybe_wrap_dim(axes[k], x.dim(), false);
    TORCH_CHECK(!taken[axis], "axes ", axes, " names dimension ", axis,
                " twice");
    taken[axis] = true;
    if (strides[k] > 0) {
      Range range = Clamp(x.size(axis), starts[k], ends[k]);
      out = out.slice(axis, range.start, range.end, strides[k]);
    } else {
      out = at::index_select(
          out, axis,
          Positions(x.size(axis), starts[k], ends[k], strides[k], x));
    }
  }
  return out;
}
Tensor StridedSliceGrad(const Tensor& x, const Tensor& dout, IntArrayRef axes,
                        IntArrayRef starts, IntArrayRef ends,
                        IntArrayRef strides) {
  Tensor grad = dout;
  for (size_t k = axes.size(); k-- > 0;) {
    int64_t axis = at::maybe_wrap_dim(axes[k], x.dim());
    std::vector<int64_t> sizes = grad.sizes().vec();
    sizes[axis] = x.size(axis);
    grad = at::index_copy(
        at::zeros(sizes, grad.options()), axis,
        Positions(x.size(axis), starts[k], ends[k], strides[k], x), grad);
  }
  return grad;
}

std::vector<Range> CropRanges(const Tensor& x, const Tensor& shape_tensor,
                              const Tensor& offsets_tensor, IntArrayRef shape,
                              IntArrayRef offsets) {
  std::vector<int64_t> sizes = IntsOf(shape_tensor, shape);
  std::vector<int64_t> begin = IntsOf(offsets_tensor, offsets);
  if (begin.empty()) begin.resize(x.dim(), 0);
  TORCH_CHECK(static_cast<int64_t>(sizes.size()) == x.dim() &&
                  sizes.size() == begin.size(),
              "shape ", sizes, " and offsets ", begin,
              " must have a number for each dimension of X");
  std::vector<Range> ranges;
  for (int64_t i = 0; i < x.dim(); ++i) {
    int64_t end = sizes[i] == -1 ? x.size(i) : begin[i] + sizes[i];
    TORCH_CHECK(begin[i] >= 0 && end >= begin[i] && end <= x.size(i), "shape ",
                sizes, " from offsets ", begin, " on does not lie in X");
    ranges.push_back({begin[i], end});
  }
  return ranges;
}
Tensor Crop(const Tensor& x, const Tensor& shape_tensor,
            const Tensor& offsets_tensor, IntArrayRef shape,
            IntArrayRef offsets) {
  return TakePart(x,
                  CropRanges(x, shape_tensor, offsets_tensor, shape, offsets));
}
Tensor CropGrad(const Tensor& x, const Tensor& shape_tensor,
                const Tensor& offsets_tensor, const Tensor& dout,
                IntArrayRef shape, IntArrayRef offsets) {
  return PadTo(x, dout,
               CropRanges(x, shape_tensor, offsets_tensor, shape, offsets));
}

// ---- by tensors of indices

Tensor Select(const Tensor& x, const Tensor& index, int64_t axis) {
  TORCH_CHECK(x.dim() > 0, "x has no dimensions");
  Tensor flat = FlatIndex(index);
  CheckIndices("index", flat, 0, x.size(axis));
  return at::index_select(x, axis, flat);
}
Tensor SelectGrad(const Tensor& x, const Tensor& index, const Tensor& dout,
                  int64_t axis) {
  return at::index_add(ZerosLike(x, dout), axis, FlatIndex(index), dout);
}

using IndexList = c10::List<std::optional<Tensor>>;

// The columns of an index [..., k], one for each of the first k dimensions.
IndexList Columns(const Tensor& x, const Tensor& index) {
  TORCH_CHECK(
      index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
      "index must be int32 or int64, not ", index.scalar_type());
  TORCH_CHECK(
      index.dim() > 0 && index.size(-1) > 0 && index.size(-1) <= x.dim(),
      "the last dimension of index ", index.sizes(), " must lie in [1, ",
      x.dim(), "]");
  IndexList columns;
  Tensor wide = index.to(at::kLong);
  for (int64_t i = 0; i < index.size(-1); ++i) {
    Tensor column = wide.select(-1, i);
    CheckIndices("index", column, -x.size(i), x.size(i));
    columns.push_back(column);
  }
  return columns;
}

Tensor GatherNd(const Tensor& x, const Tensor& index) {
  Tensor out = at::index(x, Columns(x, index));
  return out.dim() == 0 ? out.reshape({1}) : out;
}
Tensor GatherNdGrad(const Tensor& x, const Tensor& index, const Tensor& dout) {
  std::vector<int64_t> sizes(index.sizes().begin(), index.sizes().end() - 1);
  sizes.insert(sizes.end(), x.sizes().begin() + index.size(-1),
               x.sizes().end());
  return at::index_put(ZerosLike(x, dout), Columns(x, index),
                       dout.reshape(sizes), /*accumulate=*/true);
}

Tensor IndexSample(const Tensor& x, const Tensor& index) {
  TORCH_CHECK(x.dim() == 2 && index.dim() == 2 && x.size(0) == index.size(0),
              "x and index must have two dimensions and equally many rows");
  TORCH_CHECK(
      index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
      "index must be int32 or int64, not ", index.scalar_type());
  Tensor wide = index.to(at::kLong);
  CheckIndices("index", wide, 0, x.size(1));
  return at::gather(x, 1, wide);
}
Tensor IndexSampleGrad(const Tensor& x, const Tensor& index,
                       const Tensor& dout) {
  return at::scatter_add(ZerosLike(x, dout), 1, index.to(at::kLong), dout);
}

// Rows of X replaced; without `overwrite`, by the sum of all updates of a row.
Tensor Scatter(const Tensor& x, const Tensor& ids, const Tensor& updates,
               bool overwrite) {
  Tensor index = FlatIndex(ids);
  std::vector<int64_t> want = x.sizes().vec();
  TORCH_CHECK(!want.empty(), "x has no dimensions");
  want[0] = index.numel();
  TORCH_CHECK(updates.sizes() == IntArrayRef(want) &&
                  updates.scalar_type() == x.scalar_type(),
              "updates ", updates.sizes(), " must be like x, with shape ",
              want);
  CheckIndices("index", index, 0, x.size(0));
  if (overwrite) return at::index_copy(x, 0, index, updates);
  return at::index_fill(x, 0, index, 0).index_add_(0, index, updates);
}
TensorPair ScatterGrad(const Tensor& ids, const Tensor& dout, bool,
                       GradNeeds needs) {
  Tensor index = FlatIndex(ids);
  return {needs[0] ? at::index_fill(dout, 0, index, 0) : Tensor(),
          needs[1] ? at::index_select(dout, 0, index) : Tensor()};
}

Tensor ScatterNdAdd(const Tensor& x, const Tensor& index,
                    const Tensor& updates) {
  IndexList columns = Columns(x, index);
  std::vector<int64_t> want(index.sizes().begin(), index.sizes().end() - 1);
  want.insert(want.end(), x.sizes().begin() + index.size(-1), x.sizes().end());
  TORCH_CHECK(updates.sizes() == IntArrayRef(want) &&
                  updates.scalar_type() == x.scalar_type(),
              "updates ", updates.sizes(), " must be like x, with shape ",
              want);
  return at::index_put(x, columns, updates, /*accumulate=*/true);
}
TensorPair ScatterNdAddGrad(const Tensor& index, const Tensor& updates,
                            const Tensor& dout, GradNeeds needs) {
  return {needs[0] ? dout : Tensor(),
          needs[1]
              ? at::index(dout, Columns(dout, index)).reshape(updates.sizes())
              : Tensor()};
}

// ---- along an axis

struct Along {
  int64_t axis;
  Tensor index;                  // broadcast over x in all other dimensions
  std::vector<int64_t> x_shape;  // x broadcast over the index likewise
};

Along Broadcast(const Tensor& x, const Tensor& index, int64_t axis) {
  TORCH_CHECK(
      index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
      "indices must be int32 or int64, not ", index.scalar_type());
  TORCH_CHECK(x.dim() == index.dim(), "indices ", index.sizes(),
              " must have as many dimensions as the input ", x.sizes());
  int64_t dim = at::maybe_wrap_dim(axis, x.dim(), false);
  std::vector<int64_t> a = x.sizes().vec(), b = index.sizes().vec();
  a[dim] = b[dim] = 1;
  std::vector<int64_t> shape = at::infer_size(a, b), x_shape = shape;
  shape[dim] = index.size(dim);
  x_shape[dim] = x.size(dim);
  Tensor wide = index.to(at::kLong);
  CheckIndices("index", wide, 0, x.size(dim));
  return {dim, wide.expand(shape), x_shape};
}

Tensor TakeAlongAxis(const Tensor& x, const Tensor& index, int64_t axis) {
  Along along = Broadcast(x, index, axis);
  return at::gather(x.expand(along.x_shape), along.axis, along.index);
}
Tensor TakeAlongAxisGrad(const Tensor& x, const Tensor& index,
                         const Tensor& dout, int64_t axis) {
  Along along = Broadcast(x, index, axis);
  Tensor grad = at::scatter_add(at::zeros(along.x_shape, dout.options()),
                                along.axis, along.index, dout);
  return at::sum_to(grad, x.sizes());
}

Tensor PutAlongAxis(const Tensor& x, const Tensor& index, const Tensor& value,
                    int64_t axis, const std::string& reduce) {
  Along along = Broadcast(x, index, axis);
  TORCH_CHECK(x.sizes() == IntArrayRef(along.x_shape), "indices ",
              index.sizes(), " are larger than the input ", x.sizes());
  // A number is a tensor on the CPU.
  Tensor values = value.to(x.device()).expand(along.index.sizes());
  if (reduce == "assign") {
    return at::scatter(x, along.axis, along.index, values);
  }
  if (reduce == "add") {
    return at::scatter_add(x, along.axis, along.index, values);
  }
  TORCH_CHECK(reduce == "mul", "reduce is '", reduce,
              "' but must be 'assign', 'add' or 'mul'");
  return at::scatter_reduce(x, along.axis, along.index, values, "prod");
}
// The gradient of a factor is the product divided by it; where it is zero the
// quotient is not defined.
TensorPair PutAlongAxisGrad(const Tensor& x, const Tensor& index,
                            const Tensor& value, const Tensor& out,
                            const Tensor& dout, int64_t axis,
                            const std::string& reduce, GradNeeds needs) {
  Along along = Broadcast(x, index, axis);
  bool multiplies = reduce == "mul";
  Tensor values = value.to(dout.device());
  Tensor dx = dout, dvalue;
  if (needs[0] && reduce == "assign") {
    dx = at::scatter(dout, along.axis, along.index, 0);
  } else if (needs[0] && multiplies) {
    dx = dout * at::scatter_reduce(at::ones_like(x), along.axis, along.index,
                                   values.expand(along.index.sizes()), "prod");
  }
  if (needs[1]) {
    dvalue =
        at::gather(multiplies ? dout * out : dout, along.axis, along.index);
    if (multiplies) dvalue = dvalue / values;
    dvalue = at::sum_to(dvalue, value.sizes());
  }
  return {dx, dvalue};
}

}  // namespace

void AddIndexingKernels(KernelTable& k) {
  k.Add<Slice, SliceGrad>("slice");
  k.Add<StridedSlice, StridedSliceGrad>("strided_slice");
  k.Add<Crop, CropGrad>("crop_tensor");
  k.Add<Select, SelectGrad>("gather");
  k.Add<Select, SelectGrad>("index_select");
  k.Add<GatherNd, GatherNdGrad>("gather_nd");
  k.Add<IndexSample, IndexSampleGrad>("index_sample");
  k.Add<TakeAlongAxis, TakeAlongAxisGrad>("take_along_axis");
  k.Add<Scatter, ScatterGrad>("scatter");
  k.Add<ScatterNdAdd, ScatterNdAddGrad>("scatter_nd_add");
  k.Add<PutAlongAxis, PutAlongAxisGrad>("put_along_axis");
}

}  // namespace fleet::ops
