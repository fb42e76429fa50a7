// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/shape_argument.h"

// Most ops on sequences choose rows: row i of the result is row index[i] of X,
// and the gradient adds up in the other direction.

namespace fleet::ops {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Ints = std::vector<int64_t>;

// Where sequences begin; the last number is `rows`.
Ints Offsets(const Tensor& lod, int64_t rows) {
  TORCH_CHECK(lod.defined(), "the input is no sequence: it has no LoD");
  Ints offsets = IntsOf(lod, {});
  bool good = !offsets.empty() && offsets.front() == 0 &&
              std::is_sorted(offsets.begin(), offsets.end());
  TORCH_CHECK(good, "offsets must begin with 0 and never fall");
  TORCH_CHECK(offsets.back() == rows, "the offsets end at ", offsets.back(),
              " but there are ", rows, " rows");
  return offsets;
}

Tensor Indices(const Ints& values, const Tensor& like) {
  return at::tensor(values, at::kLong).to(like.device());
}

Tensor ChooseRows(const Tensor& x, const Ints& index) {
  return at::index_select(x, 0, Indices(index, x));
}

Tensor ChooseRowsGrad(const Tensor& dout, const Ints& index,
                      IntArrayRef shape) {
  return at::index_add(at::zeros(shape, dout.options()), 0,
                       Indices(index, dout), dout);
}

Tensor OffsetsOf(const Ints& lengths, const Tensor& like) {
  Ints offsets = {0};
  for (int64_t n : lengths) offsets.push_back(offsets.back() + n);
  return Indices(offsets, like);
}

Ints Lengths(const Ints& offsets) {
  Ints lengths;
  for (size_t i = 1; i < offsets.size(); ++i) {
    lengths.push_back(offsets[i] - offsets[i - 1]);
  }
  return lengths;
}

// Row -> its sequence.
Ints Owners(const Ints& offsets) {
  Ints owners(offsets.back());
  for (size_t i = 1; i < offsets.size(); ++i) {
    std::fill(owners.begin() + offsets[i - 1], owners.begin() + offsets[i],
              static_cast<int64_t>(i - 1));
  }
  return owners;
}

std::vector<int64_t> WithFirst(const Tensor& x, int64_t first) {
  std::vector<int64_t> shape = x.sizes().vec();
  TORCH_CHECK(!shape.empty(), "X has no dimensions");
  shape[0] = first;
  return shape;
}

// Numbers for each row, shaped so that they broadcast over rows.
Tensor PerRow(const std::vector<double>& values, const Tensor& like) {
  std::vector<int64_t> shape(like.dim(), 1);
  shape[0] = static_cast<int64_t>(values.size());
  return at::tensor(values, at::kDouble).to(like.options()).reshape(shape);
}

// ---- pools

enum class Pooling { kSum, kAverage, kSqrt, kMax, kFirst, kLast };

Pooling ParsePooling(const std::string& type) {
  if (type == "SUM") return Pooling::kSum;
  if (type == "AVERAGE") return Pooling::kAverage;
  if (type == "SQRT") return Pooling::kSqrt;
  if (type == "MAX") return Pooling::kMax;
  if (type == "FIRST") return Pooling::kFirst;
  TORCH_CHECK(type == "LAST", "unknown pooltype '", type, "'");
  return Pooling::kLast;
}

bool IsSum(Pooling pooling) {
  return pooling == Pooling::kSum || pooling == Pooling::kAverage ||
         pooling == Pooling::kSqrt;
}

// By what the sum of a sequence of `length` rows is multiplied.
double Share(Pooling pooling, int64_t length) {
  if (length == 0 || pooling == Pooling::kSum) return 1;
  const auto n = static_cast<double>(length);
  return pooling == Pooling::kAverage ? 1 / n : 1 / std::sqrt(n);
}

std::vector<double> Shares(Pooling pooling, const Ints& offsets) {
  std::vector<double> shares;
  for (int64_t n : Lengths(offsets)) shares.push_back(Share(pooling, n));
  return shares;
}

void SumRows(const Tensor& x, const Ints& offsets, Pooling pooling,
             const Tensor& out) {
  const int64_t width = x.size(0) == 0 ? 0 : x.numel() / x.size(0);
  const float* from = x.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  for (size_t i = 1; i < offsets.size(); ++i, to += width) {
    const auto share =
        static_cast<float>(Share(pooling, offsets[i] - offsets[i - 1]));
    for (int64_t row = offsets[i - 1]; row < offsets[i]; ++row) {
      for (int64_t j = 0; j < width; ++j) to[j] += from[row * width + j];
    }
    if (share == 1) continue;
    for (int64_t j = 0; j < width; ++j) to[j] *= share;
  }
}

// The rows of FIRST or LAST; -1 for an empty sequence.
Ints Ends(const Ints& offsets, Pooling pooling) {
  Ints rows;
  for (size_t i = 1; i < offsets.size(); ++i) {
    const bool empty = offsets[i] == offsets[i - 1];
    const bool first = pooling == Pooling::kFirst;
    rows.push_back(empty ? -1 : first ? offsets[i - 1] : offsets[i] - 1);
  }
  return rows;
}

Tensor FillEmpty(const Tensor& out, const Ints& offsets, double pad_value) {
  std::vector<double> empty;
  bool any = false;
  for (int64_t n : Lengths(offsets)) {
    empty.push_back(n == 0 ? 1 : 0);
    any |= n == 0;
  }
  if (!any) return out;
  return at::where(PerRow(empty, out) > 0, at::full_like(out, pad_value), out);
}

std::tuple<Tensor, Tensor> MaxRows(const Tensor& x, const Ints& offsets) {
  const auto n = static_cast<int64_t>(offsets.size()) - 1;
  Tensor out = at::zeros(WithFirst(x, n), x.options());
  Tensor index = at::full(WithFirst(x, n), -1, x.options().dtype(at::kInt));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t length = offsets[i + 1] - offsets[i];
    if (length == 0) continue;
    auto [best, where] = x.narrow(0, offsets[i], length).max(0);
    out.select(0, i).copy_(best);
    index.select(0, i).copy_(where + offsets[i]);
  }
  return {out, index};
}

std::tuple<Tensor, Tensor> SequencePool(const Tensor& x, const Tensor& lod,
                                        const std::string& type,
                                        double pad_value) {
  const Pooling pooling = ParsePooling(type);
  const Ints offsets = Offsets(lod, x.size(0));
  const auto n = static_cast<int64_t>(offsets.size()) - 1;
  if (pooling == Pooling::kMax) {
    auto [out, index] = MaxRows(x, offsets);
    return {FillEmpty(out, offsets, pad_value), index};
  }
  Tensor out;
  if (IsSum(pooling)) {
    out = at::zeros(WithFirst(x, n), x.options());
    if (FastOnCpu(x) && x.is_contiguous()) {
      SumRows(x, offsets, pooling, out);
    } else {
      out = at::index_add(out, 0, Indices(Owners(offsets), x), x);
      out = out * PerRow(Shares(pooling, offsets), out);
    }
  } else {
    Ints rows = Ends(offsets, pooling);
    if (x.size(0) == 0) {
      out = at::zeros(WithFirst(x, n), x.options());
    } else {
      for (int64_t& row : rows) row = std::max<int64_t>(row, 0);
      out = ChooseRows(x, rows);
    }
  }
  return {FillEmpty(out, offsets, pad_value), Tensor()};
}

Tensor SequencePoolGrad(const Tensor& x, const Tensor& lod,
                        const Tensor& max_index, const Tensor& dout,
                        const std::string& type, double) {
  const Pooling pooling = ParsePooling(type);
  const Ints offsets = Offsets(lod, x.size(0));
  if (IsSum(pooling)) {
    Tensor shared = dout * PerRow(Shares(pooling, offsets), dout);
    return ChooseRows(shared, Owners(offsets));
  }
  Tensor zeros = at::zeros(x.sizes(), dout.options());
  if (pooling == Pooling::kMax) {
    Tensor index = max_index.to(at::kLong);
    Tensor from = at::where(index < 0, at::zeros_like(dout), dout);
    return at::scatter_add(zeros, 0, index.clamp_min(0), from);
  }
  Ints rows = Ends(offsets, pooling), filled;
  Ints kept;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0) continue;
    filled.push_back(rows[i]);
    kept.push_back(static_cast<int64_t>(i));
  }
  return ChooseRowsGrad(ChooseRows(dout, kept), filled, x.sizes());
}

// ---- softmax

Tensor SequenceSoftmax(const Tensor& x, const Tensor& lod) {
  const Ints offsets = Offsets(lod, x.size(0));
  Tensor out = at::empty_like(x);
  for (size_t i = 1; i < offsets.size(); ++i) {
    const int64_t begin = offsets[i - 1], length = offsets[i] - begin;
    if (length == 0) continue;
    out.narrow(0, begin, length)
        .copy_(at::softmax(x.narrow(0, begin, length), 0));
  }
  return out;
}

Tensor SequenceSoftmaxGrad(const Tensor& out, const Tensor& lod,
                           const Tensor& dout) {
  const Ints offsets = Offsets(lod, out.size(0));
  Tensor owners = Indices(Owners(offsets), out);
  Tensor product = out * dout;
  Tensor sums = at::index_add(
      at::zeros(WithFirst(out, static_cast<int64_t>(offsets.size()) - 1),
                out.options()),
      0, owners, product);
  return product - out * at::index_select(sums, 0, owners);
}

// ---- rows in another order

Ints Reversed(const Ints& offsets) {
  Ints index;
  for (size_t i = 1; i < offsets.size(); ++i) {
    for (int64_t row = offsets[i]; row-- > offsets[i - 1];) {
      index.push_back(row);
    }
  }
  return index;
}

Tensor SequenceReverse(const Tensor& x, const Tensor& lod) {
  return ChooseRows(x, Reversed(Offsets(lod, x.size(0))));
}
Tensor SequenceReverseGrad(const Tensor& lod, const Tensor& dy) {
  return ChooseRows(dy, Reversed(Offsets(lod, dy.size(0))));
}

// ---- rows repeated

struct Expansion {
  Ints index;    // into the rows of X
  Ints lengths;  // of the new sequences
};

Expansion Expand(const Tensor& x, const Tensor& x_lod, const Tensor& y_lod) {
  const Ints y = IntsOf(y_lod, {});
  const Ints times = Lengths(y);
  Ints begins;
  if (x_lod.defined()) {
    begins = Offsets(x_lod, x.size(0));
  } else {
    for (int64_t i = 0; i <= x.size(0); ++i) begins.push_back(i);
  }
  TORCH_CHECK(begins.size() == y.size(), "X has ", begins.size() - 1,
              " sequences but Y has ", times.size());
  Expansion out;
  for (size_t i = 0; i < times.size(); ++i) {
    for (int64_t k = 0; k < times[i]; ++k) {
      for (int64_t row = begins[i]; row < begins[i + 1]; ++row) {
        out.index.push_back(row);
      }
      if (x_lod.defined()) out.lengths.push_back(begins[i + 1] - begins[i]);
    }
    if (!x_lod.defined()) out.lengths.push_back(times[i]);
  }
  return out;
}

std::tuple<Tensor, Tensor> SequenceExpand(const Tensor& x, const Tensor&,
                                          const Tensor& x_lod,
                                          const Tensor& y_lod, int64_t) {
  Expansion e = Expand(x, x_lod, y_lod);
  return {ChooseRows(x, e.index), OffsetsOf(e.lengths, x)};
}
Tensor SequenceExpandGrad(const Tensor& x, const Tensor& x_lod,
                          const Tensor& y_lod, const Tensor& dout, int64_t) {
  return ChooseRowsGrad(dout, Expand(x, x_lod, y_lod).index, x.sizes());
}

Tensor SequenceExpandAs(const Tensor& x, const Tensor&, const Tensor& y_lod) {
  return ChooseRows(x, Expand(x, {}, y_lod).index);
}
Tensor SequenceExpandAsGrad(const Tensor& x, const Tensor& y_lod,
                            const Tensor& dout) {
  return ChooseRowsGrad(dout, Expand(x, {}, y_lod).index, x.sizes());
}

// ---- sequences joined

// Rows of the concatenation of all X, in the order of the result.
Expansion Join(at::TensorList x, at::TensorList lods) {
  TORCH_CHECK(!x.empty() && x.size() == lods.size(),
              "every tensor in X must be a sequence");
  std::vector<Ints> offsets;
  Ints first = {0};
  for (size_t i = 0; i < x.size(); ++i) {
    offsets.push_back(Offsets(lods[i], x[i].size(0)));
    TORCH_CHECK(offsets[i].size() == offsets[0].size(), "X[", i, "] has ",
                offsets[i].size() - 1, " sequences but X[0] has ",
                offsets[0].size() - 1);
    first.push_back(first.back() + x[i].size(0));
  }
  Expansion out;
  for (size_t s = 1; s < offsets[0].size(); ++s) {
    int64_t length = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      for (int64_t r = offsets[i][s - 1]; r < offsets[i][s]; ++r, ++length) {
        out.index.push_back(first[i] + r);
      }
    }
    out.lengths.push_back(length);
  }
  return out;
}

std::tuple<Tensor, Tensor> SequenceConcat(at::TensorList x,
                                          at::TensorList lods) {
  Expansion e = Join(x, lods);
  return {ChooseRows(at::cat(x, 0), e.index), OffsetsOf(e.lengths, x[0])};
}
std::vector<Tensor> SequenceConcatGrad(at::TensorList x, at::TensorList lods,
                                       const Tensor& dout) {
  Expansion e = Join(x, lods);
  std::vector<Tensor> grads;
  Tensor all = ChooseRowsGrad(dout, e.index, dout.sizes());
  int64_t first = 0;
  for (const Tensor& one : x) {
    grads.push_back(all.narrow(0, first, one.size(0)));
    first += one.size(0);
  }
  return grads;
}

// ---- sequences of one length

std::tuple<Tensor, Tensor> SequencePad(const Tensor& x, const Tensor& pad_value,
                                       const Tensor& lod,
                                       int64_t padded_length) {
  const Ints offsets = Offsets(lod, x.size(0));
  const Ints lengths = Lengths(offsets);
  int64_t longest = 0;
  for (int64_t n : lengths) longest = std::max(longest, n);
  TORCH_CHECK(padded_length < 0 || padded_length >= longest, "padded_length ",
              padded_length, " is less than the longest sequence, ", longest);
  if (padded_length < 0) padded_length = longest;
  std::vector<int64_t> shape = WithFirst(x, padded_length);
  shape.insert(shape.begin(), static_cast<int64_t>(lengths.size()));
  Tensor out = at::empty(shape, x.options());
  out.copy_(pad_value.numel() == 1
                ? pad_value.reshape({}).to(x.options()).expand(shape)
                : pad_value.to(x.options()).expand(shape));
  for (size_t i = 0; i < lengths.size(); ++i) {
    out.select(0, static_cast<int64_t>(i))
        .narrow(0, 0, lengths[i])
        .copy_(x.narrow(0, offsets[i], lengths[i]));
  }
  return {out, Indices(lengths, x)};
}

// Rows of X [sequences * length, ...] that sequences of `lengths` have.
Ints Inside(const Ints& lengths, int64_t padded) {
  Ints index;
  for (size_t i = 0; i < lengths.size(); ++i) {
    TORCH_CHECK(lengths[i] >= 0 && lengths[i] <= padded, "length ", lengths[i],
                " of sequence ", i, " is outside [0, ", padded, "]");
    for (int64_t r = 0; r < lengths[i]; ++r) {
      index.push_back(static_cast<int64_t>(i) * padded + r);
    }
  }
  return index;
}

Tensor SequencePadGrad(const Tensor& x, const Tensor& lod, const Tensor& dout,
                       int64_t) {
  const Ints lengths = Lengths(Offsets(lod, x.size(0)));
  return ChooseRows(dout.flatten(0, 1), Inside(lengths, dout.size(1)));
}

std::tuple<Tensor, Tensor> SequenceUnpad(const Tensor& x,
                                         const Tensor& length) {
  TORCH_CHECK(x.dim() >= 2 && length.numel() == x.size(0), "there are ",
              length.numel(), " lengths for X ", x.sizes());
  const Ints lengths = IntsOf(length.reshape({-1}), {});
  return {ChooseRows(x.flatten(0, 1), Inside(lengths, x.size(1))),
          OffsetsOf(lengths, x)};
}
Tensor SequenceUnpadGrad(const Tensor& x, const Tensor& length,
                         const Tensor& dout) {
  const Ints lengths = IntsOf(length.reshape({-1}), {});
  std::vector<int64_t> flat = x.sizes().slice(1).vec();
  flat[0] = x.size(0) * x.size(1);
  return ChooseRowsGrad(dout, Inside(lengths, x.size(1)), flat)
      .reshape(x.sizes());
}

Tensor SequenceMask(const Tensor& x, const Tensor& max_len_tensor,
                    int64_t maxlen, DType out_dtype) {
  if (max_len_tensor.defined()) maxlen = max_len_tensor.item().toLong();
  if (maxlen < 0) maxlen = x.numel() == 0 ? 0 : x.max().item().toLong();
  Tensor places = at::arange(maxlen, x.options());
  return (places < x.unsqueeze(-1))
      .to(ToScalarType(out_dtype == DType::kNone ? DType::kInt64 : out_dtype));
}

// ---- around each row

// X [rows, width] as [rows, length * width]: each row with its neighbours from
// `start` on, zeros outside of its sequence. Index 0 stands for the zeros.
Ints Around(const Ints& offsets, int64_t length, int64_t start) {
  Ints index;
  for (size_t i = 1; i < offsets.size(); ++i) {
    for (int64_t row = offsets[i - 1]; row < offsets[i]; ++row) {
      for (int64_t k = 0; k < length; ++k) {
        const int64_t from = row + start + k;
        const bool inside = from >= offsets[i - 1] && from < offsets[i];
        index.push_back(inside ? from + 1 : 0);
      }
    }
  }
  return index;
}

Tensor WithZeroRow(const Tensor& x) {
  return at::cat({at::zeros(WithFirst(x, 1), x.options()), x}, 0);
}

Tensor WithNeighbours(const Tensor& x, const Ints& index, int64_t length) {
  return ChooseRows(WithZeroRow(x), index)
      .reshape({x.size(0), length * x.size(1)});
}

Tensor SequenceConv(const Tensor& x, const Tensor& filter, const Tensor& lod,
                    int64_t length, int64_t start, int64_t) {
  TORCH_CHECK(x.dim() == 2 && filter.dim() == 2, "X and Filter are matrices");
  Ints index = Around(Offsets(lod, x.size(0)), length, start);
  return at::matmul(WithNeighbours(x, index, length), filter);
}

std::tuple<Tensor, Tensor> SequenceConvGrad(const Tensor& x,
                                            const Tensor& filter,
                                            const Tensor& lod,
                                            const Tensor& dout, int64_t length,
                                            int64_t start, int64_t,
                                            GradNeeds needs) {
  Ints index = Around(Offsets(lod, x.size(0)), length, start);
  Tensor dx, dfilter;
  if (needs[0]) {
    Tensor rows = at::matmul(dout, filter.t())
                      .reshape({static_cast<int64_t>(index.size()), x.size(1)});
    dx = ChooseRowsGrad(rows, index, WithFirst(x, x.size(0) + 1))
             .narrow(0, 1, x.size(0));
  }
  if (needs[1])
    dfilter = at::matmul(WithNeighbours(x, index, length).t(), dout);
  return {dx, dfilter};
}

// The neighbours of a row from itself on, each times a row of the filter.
Tensor RowConv(const Tensor& x, const Tensor& filter, const Tensor& lod) {
  Ints index = Around(Offsets(lod, x.size(0)), filter.size(0), 0);
  Tensor rows = ChooseRows(WithZeroRow(x), index)
                    .reshape({x.size(0), filter.size(0), x.size(1)});
  return at::sum(rows * filter, {1});
}

std::tuple<Tensor, Tensor> RowConvGrad(const Tensor& x, const Tensor& filter,
                                       const Tensor& lod, const Tensor& dout,
                                       GradNeeds needs) {
  Ints index = Around(Offsets(lod, x.size(0)), filter.size(0), 0);
  Tensor d = dout.unsqueeze(1);
  Tensor dx, dfilter;
  if (needs[0]) {
    dx = ChooseRowsGrad((d * filter).flatten(0, 1), index,
                        WithFirst(x, x.size(0) + 1))
             .narrow(0, 1, x.size(0));
  }
  if (needs[1]) {
    Tensor rows = ChooseRows(WithZeroRow(x), index)
                      .reshape({x.size(0), filter.size(0), x.size(1)});
    dfilter = at::sum(rows * d, {0});
  }
  return {dx, dfilter};
}

Tensor SequenceEnumerate(const Tensor& x, const Tensor& lod, int64_t size,
                         int64_t pad_value) {
  Ints index = Around(Offsets(lod, x.size(0)), size, 0);
  Tensor flat = x.reshape({-1});
  Tensor padded = at::cat({at::full({1}, pad_value, x.options()), flat}, 0);
  return ChooseRows(padded, index).reshape({x.size(0), size});
}

// ---- other offsets

std::tuple<Tensor, Tensor> SequenceReshape(const Tensor& x, const Tensor& lod,
                                           int64_t new_dim) {
  Ints lengths = Lengths(Offsets(lod, x.size(0)));
  for (int64_t& n : lengths) {
    TORCH_CHECK(n * x.size(1) % new_dim == 0, "a sequence of ", n * x.size(1),
                " elements cannot have rows of ", new_dim);
    n = n * x.size(1) / new_dim;
  }
  return {x.reshape({-1, new_dim}), OffsetsOf(lengths, x)};
}

Ints Sliced(const Tensor& x, const Tensor& offset, const Tensor& length,
            const Tensor& lod) {
  const Ints offsets = Offsets(lod, x.size(0));
  const Ints begin = IntsOf(offset.reshape({-1}), {});
  const Ints count = IntsOf(length.reshape({-1}), {});
  TORCH_CHECK(
      begin.size() + 1 == offsets.size() && count.size() == begin.size(),
      "Offset and Length must have a number for each sequence");
  Ints index;
  for (size_t i = 0; i < begin.size(); ++i) {
    const int64_t first = offsets[i] + begin[i];
    TORCH_CHECK(
        begin[i] >= 0 && count[i] >= 0 && first + count[i] <= offsets[i + 1],
        "rows ", begin[i], " to ", begin[i] + count[i], " are not in sequence ",
        i);
    for (int64_t r = 0; r < count[i]; ++r) index.push_back(first + r);
  }
  return index;
}

std::tuple<Tensor, Tensor> SequenceSlice(const Tensor& x, const Tensor& offset,
                                         const Tensor& length,
                                         const Tensor& lod) {
  return {ChooseRows(x, Sliced(x, offset, length, lod)),
          OffsetsOf(IntsOf(length.reshape({-1}), {}), x)};
}
Tensor SequenceSliceGrad(const Tensor& x, const Tensor& offset,
                         const Tensor& length, const Tensor& lod,
                         const Tensor& dout) {
  return ChooseRowsGrad(dout, Sliced(x, offset, length, lod), x.sizes());
}

std::tuple<Tensor, Tensor> LodReset(const Tensor& x, const Tensor& y,
                                    const Tensor& y_lod, IntArrayRef target) {
  Ints offsets = target.vec();
  if (y_lod.defined()) {
    offsets = IntsOf(y_lod, {});
  } else if (y.defined()) {
    offsets = IntsOf(y.reshape({-1}), {});
  }
  return {x.clone(), Indices(Offsets(Indices(offsets, x), x.size(0)), x)};
}

}  // namespace

void AddSequenceKernels(KernelTable& k) {
  k.Add<SequencePool, SequencePoolGrad>("sequence_pool");
  k.Add<SequenceSoftmax, SequenceSoftmaxGrad>("sequence_softmax");
  k.Add<SequenceReverse, SequenceReverseGrad>("sequence_reverse");
  k.Add<SequenceExpand, SequenceExpandGrad>("sequence_expand");
  k.Add<SequenceExpandAs, SequenceExpandAsGrad>("sequence_expand_as");
  k.Add<SequenceConcat, SequenceConcatGrad>("sequence_concat");
  k.Add<SequencePad, SequencePadGrad>("sequence_pad");
  k.Add<SequenceUnpad, SequenceUnpadGrad>("sequence_unpad");
  k.Add<SequenceMask>("sequence_mask");
  k.Add<SequenceConv, SequenceConvGrad>("sequence_conv");
  k.Add<RowConv, RowConvGrad>("row_conv");
  k.Add<SequenceReshape, [](const Tensor& x, const Tensor& dout, int64_t) {
    return dout.reshape(x.sizes());
  }>("sequence_reshape");
  k.Add<SequenceSlice, SequenceSliceGrad>("sequence_slice");
  k.Add<SequenceEnumerate>("sequence_enumerate");
  k.Add<LodReset, [](const Tensor& dout, IntArrayRef) { return dout; }>(
      "lod_reset");
}

}  // namespace fleet::ops
