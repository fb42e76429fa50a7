// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/cumprod_backward.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/full.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "fleet/ops/kernels.h"
#include "fleet/ops/reduction.h"

namespace fleet::ops {
namespace {

using at::Tensor;

// ---- running sums, products and differences

Tensor RunningSum(const Tensor& x, int64_t axis, bool exclusive, bool reverse) {
  Tensor in = reverse ? at::flip(x, {axis}) : x;
  Tensor out = at::cumsum(in, axis, x.scalar_type());
  if (exclusive) out = out - in;
  return reverse ? at::flip(out, {axis}) : out;
}
Tensor Cumsum(const Tensor& x, int64_t axis, bool flatten, bool exclusive,
              bool reverse) {
  return flatten ? RunningSum(x.reshape({-1}), 0, exclusive, reverse)
                 : RunningSum(x, axis, exclusive, reverse);
}
// An element is in every sum from it on: the gradient runs the other way.
Tensor CumsumGrad(const Tensor& x, const Tensor& dout, int64_t axis,
                  bool flatten, bool exclusive, bool reverse) {
  Tensor grad = RunningSum(dout, flatten ? 0 : axis, exclusive, !reverse);
  return flatten ? grad.reshape(x.sizes()) : grad;
}

Tensor Cumprod(const Tensor& x, int64_t dim) {
  return at::cumprod(x, dim, x.scalar_type());
}
Tensor CumprodGrad(const Tensor& x, const Tensor& out, const Tensor& dout,
                   int64_t dim) {
  return at::cumprod_backward(dout, x, dim, out);
}

Tensor Diff(const Tensor& x, int64_t n, int64_t axis) {
  TORCH_CHECK(n >= 0, "n must not be negative");
  TORCH_CHECK(n <= x.size(axis), "n ", n, " differences of ", x.size(axis),
              " elements");
  return n == 0 ? x.clone() : at::diff(x, n, axis);
}
// The transpose of a difference is the negative difference between zeros.
Tensor DiffGrad(const Tensor& dout, int64_t n, int64_t axis) {
  Tensor grad = dout.movedim(axis, -1);
  for (int64_t i = 0; i < n; ++i) {
    grad = -at::diff(at::constant_pad_nd(grad, {1, 1}), 1, -1);
  }
  return grad.movedim(-1, axis);
}

// ---- order

// X as a matrix: the axes that stay, then those that are reduced.
Tensor Rows(const Tensor& x, const std::vector<int64_t>& axes) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < x.dim(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) {
      order.push_back(i);
    }
  }
  order.insert(order.end(), axes.begin(), axes.end());
  return x.permute(order).reshape({-1, ReducedCount(x, axes)});
}

// A gradient of Rows(x) as one of x.
Tensor FromRows(const Tensor& rows, const Tensor& x,
                const std::vector<int64_t>& axes) {
  std::vector<int64_t> order, shape;
  for (int64_t i = 0; i < x.dim(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) {
      order.push_back(i);
    }
  }
  order.insert(order.end(), axes.begin(), axes.end());
  for (int64_t i : order) shape.push_back(x.size(i));
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = i;
  return rows.reshape(shape).permute(back);
}

// Where quantile q lies among n sorted elements: between two neighbours.
struct Position {
  int64_t low, high;
  double weight;  // of `high`

  Position(double q, int64_t n)
      : low(std::floor(q * (n - 1))),
        high(std::ceil(q * (n - 1))),
        weight(q * (n - 1) - low) {}
};

std::tuple<Tensor, Tensor> Quantile(const Tensor& x, at::ArrayRef<double> q,
                                    at::IntArrayRef dim, bool keep, bool all,
                                    bool list) {
  std::vector<int64_t> axes = ReducedAxes(x, dim, all);
  TORCH_CHECK(x.numel() > 0, "X is empty");
  auto type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  auto [sorted, order] = at::sort(Rows(x, axes).to(type), 1);
  Tensor bad = at::isnan(sorted.select(1, -1));  // NaN sorts last
  std::vector<int64_t> shape;
  for (int64_t i = 0; i < x.dim(); ++i) {
    bool gone = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!gone || keep) shape.push_back(gone ? 1 : x.size(i));
  }
  if (shape.empty() && !list) shape.push_back(1);
  std::vector<Tensor> results;
  for (double one : q) {
    TORCH_CHECK(one >= 0 && one <= 1, "q must lie in [0, 1], but is ", one);
    Position p(one, sorted.size(1));
    Tensor value = sorted.select(1, p.low) * (1 - p.weight) +
                   sorted.select(1, p.high) * p.weight;
    if (p.weight == 0) value = sorted.select(1, p.low);
    value = at::where(bad, std::numeric_limits<double>::quiet_NaN(), value);
    results.push_back(value.reshape(shape));
  }
  TORCH_CHECK(!results.empty(), "q is empty");
  return {list ? at::stack(results) : results[0], order};
}
Tensor QuantileGrad(const Tensor& x, const Tensor& order, const Tensor& dout,
                    at::ArrayRef<double> q, at::IntArrayRef dim, bool, bool all,
                    bool list) {
  std::vector<int64_t> axes = ReducedAxes(x, dim, all);
  Tensor d = list ? dout : dout.unsqueeze(0);
  Tensor grad = at::zeros(order.sizes(), dout.options());
  for (size_t i = 0; i < q.size(); ++i) {
    Position p(q[i], order.size(1));
    Tensor one = d.select(0, i).reshape({-1, 1});
    grad = at::scatter_add(grad, 1, order.narrow(1, p.low, 1),
                           one * (1 - p.weight));
    grad = at::scatter_add(grad, 1, order.narrow(1, p.high, 1), one * p.weight);
  }
  return FromRows(grad, x, axes).to(x.scalar_type());
}

// ---- counting and picking

Tensor Histogram(const Tensor& x, int64_t bins, double min, double max) {
  TORCH_CHECK(bins > 0, "bins must be positive");
  Tensor values = x.is_floating_point() ? x : x.to(at::kDouble);
  return at::histc(values, bins, min, max).to(at::kLong);
}

Tensor Bincount(const Tensor& x, const Tensor& weights, int64_t minlength) {
  if (!weights.defined()) return at::bincount(x, {}, minlength);
  return at::bincount(x, weights, minlength);
}

Tensor Multiplex(at::TensorList x, const Tensor& ids) {
  TORCH_CHECK(x.size() >= 2 && x[0].dim() >= 2, "shapes do not fit");
  Tensor index = ids.reshape({-1}).to(at::kLong);
  int64_t rows = x[0].size(0);
  TORCH_CHECK(index.numel() == rows, "index has ", index.numel(),
              " elements, but the inputs have ", rows, " rows");
  TORCH_CHECK(rows == 0 || (index.min().item<int64_t>() >= 0 &&
                            index.max().item<int64_t>() <
                                static_cast<int64_t>(x.size())),
              "an index does not lie in [0, ", x.size(), ")");
  return at::stack(x).index({index, at::arange(rows, index.options())});
}
std::vector<Tensor> MultiplexGrad(at::TensorList x, const Tensor& ids,
                                  const Tensor& dout) {
  std::vector<int64_t> shape(dout.dim(), 1);
  shape[0] = dout.size(0);
  Tensor index = ids.reshape(shape);
  std::vector<Tensor> grads;
  for (size_t i = 0; i < x.size(); ++i) {
    grads.push_back(dout * at::eq(index, static_cast<int64_t>(i)));
  }
  return grads;
}

}  // namespace

void AddStatKernels(KernelTable& k) {
  k.Add<Cumsum, CumsumGrad>("cumsum");
  k.Add<Cumprod, CumprodGrad>("cumprod");
  k.Add<Diff, DiffGrad>("diff");
  k.Add<Quantile, QuantileGrad>("quantile");
  k.Add<Histogram>("histogram");
  k.Add<Bincount>("bincount");
  k.Add<Multiplex, MultiplexGrad>("multiplex");
}

}  // namespace fleet::ops
