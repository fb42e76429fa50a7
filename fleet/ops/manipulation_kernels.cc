// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/all.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/unbind.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "fleet/ops/kernels.h"
#include "fleet/ops/shape_argument.h"

// Results share memory with the inputs where ATen can say the same elements in
// other strides. What a kernel returns is never the input itself, which has a
// history of its own.

namespace fleet::ops {
namespace {

using at::IntArrayRef;
using at::Tensor;
using at::TensorList;

// ---- the same elements in another shape

Tensor Transpose(const Tensor& x, IntArrayRef axis) { return x.permute(axis); }
Tensor TransposeGrad(const Tensor& dout, IntArrayRef axis) {
  std::vector<int64_t> back(axis.size());
  for (size_t i = 0; i < axis.size(); ++i) {
    back[at::maybe_wrap_dim(axis[i], dout.dim())] = i;
  }
  return dout.permute(back);
}

// Gradient of everything that only gives X another shape.
Tensor BackToX(const Tensor& x, const Tensor& dout) {
  return dout.reshape(x.sizes());
}

Tensor Reshape(const Tensor& x, const Tensor& shape_tensor, IntArrayRef shape) {
  std::vector<int64_t> dims = IntsOf(shape_tensor, shape);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != 0) continue;
    TORCH_CHECK(static_cast<int64_t>(i) < x.dim(), "shape ", dims,
                " has 0 at position ", i, ", where X has no dimension");
    dims[i] = x.size(i);
  }
  return x.reshape(dims);
}

Tensor Flatten(const Tensor& x, int64_t start_axis, int64_t stop_axis) {
  if (x.dim() == 0) return x.reshape({1});
  int64_t start = at::maybe_wrap_dim(start_axis, x.dim());
  int64_t stop = at::maybe_wrap_dim(stop_axis, x.dim());
  TORCH_CHECK(start <= stop, "start_axis ", start, " lies behind stop_axis ",
              stop);
  std::vector<int64_t> dims(x.sizes().begin(), x.sizes().begin() + start);
  int64_t joined = 1;
  for (int64_t i = start; i <= stop; ++i) joined *= x.size(i);
  dims.push_back(joined);
  dims.insert(dims.end(), x.sizes().begin() + stop + 1, x.sizes().end());
  return x.reshape(dims);
}

Tensor Squeeze(const Tensor& x, IntArrayRef axes) {
  return axes.empty() ? x.squeeze() : x.squeeze(axes);
}

Tensor Unsqueeze(const Tensor& x, IntArrayRef axes) {
  TORCH_CHECK(!axes.empty(), "axis is empty");
  Tensor out = x;
  for (int64_t axis : axes) out = out.unsqueeze(axis);
  return out;
}

Tensor Flatten2(const Tensor& x, int64_t axis) {
  TORCH_CHECK(axis >= 0 && axis <= x.dim(), "no axis ", axis);
  int64_t rows = 1, columns = 1;
  for (int64_t i = 0; i < x.dim(); ++i)
    (i < axis ? rows : columns) *= x.size(i);
  return x.reshape({rows, columns});
}

void AddReshaping(KernelTable& k) {
  k.Add<Transpose, TransposeGrad>("transpose2");
  k.Add<Reshape, [](const Tensor& x, const Tensor& dout, IntArrayRef) {
    return BackToX(x, dout);
  }>("reshape2");
  k.Add<Flatten, [](const Tensor& x, const Tensor& dout, int64_t, int64_t) {
    return BackToX(x, dout);
  }>("flatten_contiguous_range");
  k.Add<Squeeze, [](const Tensor& x, const Tensor& dout, IntArrayRef) {
    return BackToX(x, dout);
  }>("squeeze2");
  k.Add<Unsqueeze, [](const Tensor& x, const Tensor& dout, IntArrayRef) {
    return BackToX(x, dout);
  }>("unsqueeze2");
  k.Add<Flatten2, [](const Tensor& x, const Tensor& dout, int64_t) {
    return dout.reshape(x.sizes());
  }>("flatten2");
}

// ---- joining and splitting

void CheckJoinable(TensorList x) {
  TORCH_CHECK(!x.empty(), "x is an empty list");
  for (const Tensor& part : x) {
    TORCH_CHECK(
        part.scalar_type() == x[0].scalar_type() && part.dim() == x[0].dim(),
        "the tensors differ in dtype or number of dimensions");
  }
}

Tensor Concat(TensorList x, int64_t axis) {
  CheckJoinable(x);
  return at::cat(x, axis);
}
std::vector<Tensor> ConcatGrad(TensorList x, const Tensor& dout, int64_t axis) {
  int64_t dim = at::maybe_wrap_dim(axis, dout.dim());
  std::vector<int64_t> sizes;
  for (const Tensor& part : x) sizes.push_back(part.size(dim));
  return dout.split_with_sizes(sizes, dim);
}

Tensor Stack(TensorList x, int64_t axis) {
  CheckJoinable(x);
  return at::stack(x, axis);
}
std::vector<Tensor> StackGrad(const Tensor& dout, int64_t axis) {
  return at::unbind(dout, axis);
}

std::vector<Tensor> Split(const Tensor& x, int64_t num, IntArrayRef sections,
                          int64_t axis) {
  int64_t dim = at::maybe_wrap_dim(axis, x.dim(), /*wrap_scalar=*/false);
  int64_t size = x.size(dim);
  std::vector<int64_t> sizes = sections.vec();
  if (num > 0) {
    TORCH_CHECK(size % num == 0, "size ", size, " does not divide by ", num);
    sizes.assign(num, size / num);
  }
  TORCH_CHECK(!sizes.empty(), "into no parts");
  auto open = std::find(sizes.begin(), sizes.end(), -1);
  if (open != sizes.end()) {
    int64_t sum = 1;
    for (int64_t s : sizes) sum += s;
    *open = size - sum;
  }
  return x.split_with_sizes(sizes, dim);
}
Tensor SplitGrad(TensorList dout, int64_t, IntArrayRef, int64_t axis) {
  return at::cat(dout, axis);
}

std::vector<Tensor> Unstack(const Tensor& x, int64_t axis, int64_t num) {
  int64_t dim = at::maybe_wrap_dim(axis, x.dim(), /*wrap_scalar=*/false);
  TORCH_CHECK(num <= 0 || num == x.size(dim), "num is ", num);
  TORCH_CHECK(x.size(dim) > 0, "dimension ", dim, " is empty");
  return at::unbind(x, dim);
}
Tensor UnstackGrad(TensorList dout, int64_t axis, int64_t) {
  int64_t rank = dout[0].dim() + 1;
  return at::stack(dout, at::maybe_wrap_dim(axis, rank));
}

void AddJoining(KernelTable& k) {
  k.Add<Concat, ConcatGrad>("concat");
  k.Add<Stack, StackGrad>("stack");
  k.Add<Split, SplitGrad>("split");
  k.Add<Unstack, UnstackGrad>("unstack");
}

// ---- copies along dimensions

Tensor Expand(const Tensor& x, const Tensor& shape_tensor, IntArrayRef shape) {
  return x.expand(IntsOf(shape_tensor, shape));
}
// Each element of X takes the gradients of all its copies.
Tensor SumToX(const Tensor& x, const Tensor& dout) {
  return at::sum_to(dout, x.sizes());
}

std::vector<int64_t> AtLeast(std::vector<int64_t> numbers, int64_t rank) {
  auto missing = rank - static_cast<int64_t>(numbers.size());
  if (missing > 0) numbers.insert(numbers.begin(), missing, 1);
  return numbers;
}

Tensor Tile(const Tensor& x, const Tensor& times_tensor, IntArrayRef times) {
  return x.repeat(AtLeast(IntsOf(times_tensor, times), x.dim()));
}
// Seen as [times, size, times, size, ...], the copies lie along the even
// dimensions.
Tensor TileGrad(const Tensor& x, const Tensor& dout, IntArrayRef) {
  std::vector<int64_t> sizes = AtLeast(x.sizes().vec(), dout.dim());
  std::vector<int64_t> pairs, copies;
  for (int64_t i = 0; i < dout.dim(); ++i) {
    copies.push_back(2 * i);
    pairs.push_back(sizes[i] == 0 ? 1 : dout.size(i) / sizes[i]);
    pairs.push_back(sizes[i]);
  }
  if (copies.empty()) return at::alias(dout);
  if (dout.numel() == 0) return at::zeros(x.sizes(), dout.options());
  return at::sum(dout.reshape(pairs), copies).reshape(x.sizes());
}

// For each row of the result, the row of X that it copies.
Tensor RepeatedRows(int64_t size, const Tensor& repeats, int64_t count,
                    at::Device device) {
  Tensor rows = at::arange(size, at::TensorOptions(at::kLong).device(device));
  if (!repeats.defined()) return at::repeat_interleave(rows, count);
  return at::repeat_interleave(rows, repeats.to(at::kLong));
}
Tensor RepeatInterleave(const Tensor& x, const Tensor& repeats, int64_t count,
                        int64_t axis) {
  int64_t dim = at::maybe_wrap_dim(axis, x.dim(), /*wrap_scalar=*/false);
  return at::index_select(
      x, dim, RepeatedRows(x.size(dim), repeats, count, x.device()));
}
Tensor RepeatInterleaveGrad(const Tensor& x, const Tensor& repeats,
                            const Tensor& dout, int64_t count, int64_t axis) {
  int64_t dim = at::maybe_wrap_dim(axis, x.dim());
  return at::index_add(at::zeros(x.sizes(), dout.options()), dim,
                       RepeatedRows(x.size(dim), repeats, count, x.device()),
                       dout);
}

Tensor Flip(const Tensor& x, IntArrayRef axis) { return at::flip(x, axis); }

Tensor RollBack(const Tensor& dout, IntArrayRef shifts, IntArrayRef axis) {
  std::vector<int64_t> back = shifts.vec();
  for (int64_t& shift : back) shift = -shift;
  return at::roll(dout, back, axis);
}

// As programs of Paddle 1.8 say it: how often, for each dimension.
Tensor ExpandTimes(const Tensor& x, IntArrayRef times) {
  TORCH_CHECK(times.size() == static_cast<size_t>(x.dim()),
              "expand_times does not fit");
  return x.repeat(times);
}

// [times, size] for each dimension; the gradient is the sum over times.
Tensor ExpandTimesGrad(const Tensor& x, const Tensor& dout, IntArrayRef times) {
  std::vector<int64_t> shape, axes;
  for (int64_t i = 0; i < x.dim(); ++i) {
    axes.push_back(static_cast<int64_t>(shape.size()));
    shape.push_back(times[i]);
    shape.push_back(x.size(i));
  }
  return x.dim() == 0 ? dout : at::sum(dout.reshape(shape), axes);
}

void AddCopying(KernelTable& k) {
  k.Add<Expand, [](const Tensor& x, const Tensor& dout, IntArrayRef) {
    return SumToX(x, dout);
  }>("expand_v2");
  k.Add<[](const Tensor& x, const Tensor& y) { return x.expand(y.sizes()); },
        SumToX>("expand_as_v2");
  k.Add<Tile, TileGrad>("tile");
  k.Add<RepeatInterleave, RepeatInterleaveGrad>("repeat_interleave");
  k.Add<Flip, Flip>("flip");
  k.Add<[](const Tensor& x, IntArrayRef shifts, IntArrayRef axis) {
    return at::roll(x, shifts, axis);
  },
        RollBack>("roll");
  k.Add<ExpandTimes, ExpandTimesGrad>("expand");
}

// ---- types and facts

Tensor To(const Tensor& x, DType dtype) {
  at::ScalarType type = ToScalarType(dtype);
  return x.scalar_type() == type ? at::alias(x) : x.to(type);
}

Tensor Shape(const Tensor& x) {
  Tensor out = at::empty({x.dim()}, at::kInt);
  std::copy(x.sizes().begin(), x.sizes().end(), out.data_ptr<int32_t>());
  return out.to(x.device());
}

// The place of each id within shard `shard_id`, when ids below `index_num` are
// dealt out in `nshards` equal runs; `ignore` for those of other shards.
Tensor ShardIndex(const Tensor& x, int64_t index_num, int64_t nshards,
                  int64_t shard_id, int64_t ignore) {
  TORCH_CHECK(nshards > 0 && index_num > 0, "index_num ", index_num,
              " and nshards ", nshards, " must be positive");
  TORCH_CHECK(shard_id >= 0 && shard_id < nshards, "shard_id ", shard_id,
              " must lie in [0, ", nshards, ")");
  TORCH_CHECK(at::isIntegralType(x.scalar_type(), false),
              "input must hold integers");
  TORCH_CHECK(
      at::all(x >= 0).item<bool>() && at::all(x < index_num).item<bool>(),
      "input has a number outside of [0, ", index_num, ")");
  int64_t size = (index_num + nshards - 1) / nshards;
  int64_t begin = shard_id * size;
  return at::where((x >= begin).logical_and(x < begin + size),
                   at::remainder(x, size), at::full_like(x, ignore));
}

// Pairs as complex numbers, which begin at an even place only.
Tensor AsComplex(const Tensor& x) {
  const Tensor pairs = x.contiguous();
  return at::view_as_complex(pairs.storage_offset() % 2 == 0 ? pairs
                                                             : pairs.clone());
}
Tensor AsReal(const Tensor& x) { return at::view_as_real(x); }

Tensor Identity(const Tensor& dout) { return dout; }

void AddFacts(KernelTable& k) {
  k.Add<[](const Tensor& x, DType, DType to) { return To(x, to); },
        [](const Tensor& dout, DType from, DType) { return To(dout, from); }>(
      "cast");
  k.Add<[](const Tensor& x) { return x.clone(); }, Identity>("assign");
  k.Add<[](const Tensor& x, double step) {
    return at::isIntegralType(x.scalar_type(), false)
               ? x + static_cast<int64_t>(step)
               : x + step;
  },
        [](const Tensor& dout, double) { return dout; }>("increment");
  k.Add<Shape>("shape");
  k.Add<[](const Tensor& x) {
    return at::full({1}, x.numel(), x.options().dtype(at::kLong));
  }>("size");
  k.Add<ShardIndex>("shard_index");
  k.Add<AsReal, AsComplex>("as_real");
  k.Add<AsComplex, AsReal>("as_complex");
}

}  // namespace

void AddManipulationKernels(KernelTable& kernels) {
  AddReshaping(kernels);
  AddJoining(kernels);
  AddCopying(kernels);
  AddFacts(kernels);
}

}  // namespace fleet::ops
