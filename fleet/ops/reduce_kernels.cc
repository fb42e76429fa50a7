// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/all.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/any.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var.h>

#include "fleet/ops/elementwise.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/reduction.h"
#include "fleet/ops/update/merged_rows.h"
#include "fleet/optim/clip.h"

namespace fleet::ops {
namespace {

using at::Tensor;

// The sum of all elements, in double. Eight running sums, since an addition
// waits four cycles for the one before.
double SmallSum(const Tensor& x) {
  const float* p = x.const_data_ptr<float>();
  const int64_t n = x.numel();
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) sums[lane] += p[i + lane];
  }
  for (; i < n; ++i) sums[i % 8] += p[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
         ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Whether all of a small tensor goes into one number.
bool IsSmallTotal(const Tensor& x, at::IntArrayRef dim, bool all) {
  return (all || dim.empty() || x.dim() == 1) && SmallOnCpu(x);
}

Tensor Filled(at::IntArrayRef shape, const Tensor& like, double value) {
  Tensor out = at::empty(shape, like.options());
  std::fill_n(out.mutable_data_ptr<float>(), out.numel(),
              static_cast<float>(value));
  return out;
}

// A total as shape [1], or as many ones as x has dimensions.
Tensor Total(const Tensor& x, bool keep, double value) {
  std::vector<int64_t> shape(keep && x.dim() > 0 ? x.dim() : 1, 1);
  return Filled(shape, x, value);
}

Tensor Sum(const Tensor& given, at::IntArrayRef dim, bool keep, bool all) {
  const Tensor x = Packed(given);
  std::vector<int64_t> axes = ReducedAxes(x, dim, all);
  if (IsSmallTotal(x, dim, all)) return Total(x, keep, SmallSum(x));
  return AtLeast1D(at::sum(x, axes, keep, x.scalar_type()));
}
Tensor SumGrad(const Tensor& x, const Tensor& dout, at::IntArrayRef dim, bool,
               bool all) {
  if (IsSmallTotal(x, dim, all) && SmallOnCpu(dout)) {
    return Filled(x.sizes(), dout, *dout.const_data_ptr<float>());
  }
  return KeepAxes(dout, x, ReducedAxes(x, dim, all)).expand(x.sizes());
}

Tensor Mean(const Tensor& given, at::IntArrayRef dim, bool keep, bool all) {
  const Tensor x = Packed(given);
  TORCH_CHECK(x.is_floating_point() || x.is_complex(),
              "the mean of integers is not one: cast X to a floating-point "
              "type first");
  std::vector<int64_t> axes = ReducedAxes(x, dim, all);
  if (IsSmallTotal(x, dim, all)) {
    return Total(x, keep, SmallSum(x) / static_cast<double>(x.numel()));
  }
  return AtLeast1D(at::mean(x, axes, keep));
}
Tensor MeanGrad(const Tensor& x, const Tensor& dout, at::IntArrayRef dim, bool,
                bool all) {
  std::vector<int64_t> axes = ReducedAxes(x, dim, all);
  if (IsSmallTotal(x, dim, all) && SmallOnCpu(dout)) {
    double share = *dout.const_data_ptr<float>();
    return Filled(x.sizes(), dout, share / static_cast<double>(x.numel()));
  }
  return (KeepAxes(dout, x, axes) / ReducedCount(x, axes)).expand(x.sizes());
}

// Every element that equals the extreme takes the gradient: all of it for max
// and min, an even share for amax and amin.
template <bool kShare>
Tensor ExtremeReduceGrad(const Tensor& x, const Tensor& out, const Tensor& dout,
                         at::IntArrayRef dim, bool, bool all) {
  std::vector<int64_t> axes = ReducedAxes(x, dim, all);
  Tensor mask = at::eq(x, KeepAxes(out, x, axes)).to(dout.scalar_type());
  Tensor dy = KeepAxes(dout, x, axes);
  return mask * (kShare ? dy / at::sum(mask, axes, true) : dy);
}

Tensor Max(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  return AtLeast1D(at::amax(x, ReducedAxes(x, dim, all), keep));
}
Tensor Min(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  return AtLeast1D(at::amin(x, ReducedAxes(x, dim, all), keep));
}

Tensor Prod(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  std::vector<int64_t> axes = ReducedAxes(x, dim, all);
  Tensor out = Packed(x);
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    out = at::prod(out, *axis, keep, x.scalar_type());
  }
  return AtLeast1D(out);
}
// Where one factor is zero, the quotient out / x says nothing: the product of
// the others is computed along the reduced axes, moved to the back and joined.
Tensor ProdGrad(const Tensor& x, const Tensor& out, const Tensor& dout,
                at::IntArrayRef dim, bool, bool all) {
  std::vector<int64_t> axes = ReducedAxes(x, dim, all);
  if (!at::any(x == 0).item<bool>()) {
    return KeepAxes(dout * out, x, axes) / x;
  }
  std::vector<int64_t> order;
  for (int64_t i = 0; i < x.dim(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end())
      order.push_back(i);
  }
  order.insert(order.end(), axes.begin(), axes.end());
  Tensor moved = x.permute(order);
  int64_t n = ReducedCount(x, axes);
  Tensor flat = moved.reshape({-1, n});
  std::vector<Tensor> others;
  for (int64_t i = 0; i < n; ++i) {
    others.push_back(at::prod(flat.narrow(1, 0, i), 1) *
                     at::prod(flat.narrow(1, i + 1, n - i - 1), 1));
  }
  Tensor grad = at::stack(others, 1).reshape(moved.sizes());
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = i;
  return grad.permute(back) * KeepAxes(dout, x, axes);
}

Tensor LogSumExp(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  return AtLeast1D(at::logsumexp(Packed(x), ReducedAxes(x, dim, all), keep));
}
Tensor LogSumExpGrad(const Tensor& x, const Tensor& out, const Tensor& dout,
                     at::IntArrayRef dim, bool, bool all) {
  std::vector<int64_t> axes = ReducedAxes(x, dim, all);
  return KeepAxes(dout, x, axes) * at::exp(x - KeepAxes(out, x, axes));
}

Tensor Var(const Tensor& x, at::IntArrayRef dim, bool keep, bool all,
           bool unbiased) {
  TORCH_CHECK(x.is_floating_point(), "X must hold floating-point numbers");
  return AtLeast1D(
      at::var(Packed(x), ReducedAxes(x, dim, all), unbiased, keep));
}
Tensor VarGrad(const Tensor& x, const Tensor& dout, at::IntArrayRef dim, bool,
               bool all, bool unbiased) {
  std::vector<int64_t> axes = ReducedAxes(x, dim, all);
  double n = ReducedCount(x, axes) - (unbiased ? 1 : 0);
  return KeepAxes(dout, x, axes) * (2 / n) *
         (x - at::mean(Packed(x), axes, true));
}

Tensor All(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  return AtLeast1D(at::all(x, ReducedAxes(x, dim, all), keep).to(at::kBool));
}
Tensor Any(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  return AtLeast1D(at::any(x, ReducedAxes(x, dim, all), keep).to(at::kBool));
}

// ---- all of X to one number

template <class T>
std::span<const T> Memory(const Tensor& x) {
  return {x.const_data_ptr<T>(), static_cast<size_t>(x.numel())};
}

// Added up in double and rounded once, as optimizers do it that clip by norm.
Tensor SquaredNorm(const Tensor& x) {
  if (x.is_sparse()) {  // a row that occurs twice counts with its sum
    return SquaredNorm(MergeRows(x).values);
  }
  const bool single = x.scalar_type() == at::kFloat;
  if (!x.device().is_cpu() || (Recording() && x.requires_grad()) ||
      (!single && x.scalar_type() != at::kDouble)) {
    return at::sum(x * x).reshape({1});
  }
  const Tensor values = x.contiguous();
  const double sum = single ? optim::SumOfSquares(Memory<float>(values))
                            : optim::SumOfSquares(Memory<double>(values));
  // Infinite where the type cannot hold it.
  return at::full({1}, single ? double{static_cast<float>(sum)} : sum,
                  x.options());
}
Tensor SquaredNormGrad(const Tensor& x, const Tensor& dout) {
  return 2 * x * dout;
}

// X times min(1, max_norm / |X|).
Tensor ClipByNorm(const Tensor& x, double max_norm) {
  TORCH_CHECK(max_norm > 0, "max_norm is ", max_norm);
  Tensor norm = SquaredNorm(x).sqrt();
  return x * (max_norm / norm.clamp_min(max_norm));
}
Tensor ClipByNormGrad(const Tensor& x, const Tensor& dout, double max_norm) {
  Tensor norm = at::sum(x * x).sqrt();
  Tensor most = norm.clamp_min(max_norm);
  Tensor scale = max_norm / most;
  // d(max_norm / |x|) = -max_norm x / |x|^3, only where the norm counts.
  Tensor along = at::sum(x * dout) / most / most;
  Tensor clipped = (norm > max_norm).to(x.scalar_type());
  return scale * (dout - x * (along * clipped));
}

}  // namespace

void AddReduceKernels(KernelTable& k) {
  k.Add<Sum, SumGrad>("reduce_sum");
  k.Add<Mean, MeanGrad>("reduce_mean");
  k.Add<[](const Tensor& x) { return Mean(x, {}, false, true); },
        [](const Tensor& x, const Tensor& dout) {
          return MeanGrad(x, dout, {}, false, true);
        }>("mean");
  k.Add<SquaredNorm, SquaredNormGrad>("squared_l2_norm");
  k.Add<ClipByNorm, ClipByNormGrad>("clip_by_norm");
  k.Add<Max, ExtremeReduceGrad<false>>("reduce_max");
  k.Add<Min, ExtremeReduceGrad<false>>("reduce_min");
  k.Add<Max, ExtremeReduceGrad<true>>("reduce_amax");
  k.Add<Min, ExtremeReduceGrad<true>>("reduce_amin");
  k.Add<Prod, ProdGrad>("reduce_prod");
  k.Add<LogSumExp, LogSumExpGrad>("logsumexp");
  k.Add<Var, VarGrad>("var");
  k.Add<All>("reduce_all");
  k.Add<Any>("reduce_any");
}

}  // namespace fleet::ops
