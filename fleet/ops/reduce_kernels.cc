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
#include "fleet/ops/sums.h"
#include "fleet/ops/update/merged_rows.h"
#include "fleet/optim/clip.h"

namespace fleet::ops {
namespace {

using at::Tensor;

// ---- sums and means

float TotalOf(int64_t n, const float* x, bool mean) {
  const double sum = Total(n, x);
  return static_cast<float>(mean ? sum / static_cast<double>(n) : sum);
}

// What each of n elements gets from the gradient of their total.
float ShareOf(int64_t n, float dout, bool mean) {
  return mean ? static_cast<float>(dout / static_cast<double>(n)) : dout;
}

// Whether all of X, which is bare floats, goes into one number.
bool IsFastTotal(const Tensor& x, const std::vector<int64_t>& axes) {
  return FastOnCpu(x) && x.numel() > 0 && ReducedCount(x, axes) == x.numel();
}

Tensor Filled(at::IntArrayRef shape, const Tensor& like, float value) {
  Tensor out = at::empty(shape, like.options());
  std::fill_n(out.mutable_data_ptr<float>(), out.numel(), value);
  return out;
}

template <bool kMean>
Tensor Sum(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  TORCH_CHECK(!kMean || x.is_floating_point() || x.is_complex(),
              "the mean of integers is not one: cast X to a floating-point "
              "type first");
  const std::vector<int64_t> axes = ReducedAxes(x, dim, all);
  if (IsFastTotal(x, axes)) {
    const int64_t left = x.dim() - static_cast<int64_t>(axes.size());
    const std::vector<int64_t> ones(std::max<int64_t>(keep ? x.dim() : left, 1),
                                    1);
    return Filled(
        ones, x,
        TotalOf(x.numel(), x.expect_contiguous()->const_data_ptr<float>(),
                kMean));
  }
  const Tensor packed = Packed(x);
  return AtLeast1D(kMean ? at::mean(packed, axes, keep)
                         : at::sum(packed, axes, keep, x.scalar_type()));
}

template <bool kMean>
Tensor SumGrad(const Tensor& x, const Tensor& dout, at::IntArrayRef dim, bool,
               bool all) {
  const std::vector<int64_t> axes = ReducedAxes(x, dim, all);
  if (IsFastTotal(x, axes) && FastOnCpu(dout)) {
    const float share =
        ShareOf(x.numel(), *dout.const_data_ptr<float>(), kMean);
    if (x.numel() <= kSmallNumel) return Filled(x.sizes(), dout, share);
    return Filled({1}, dout, share).expand(x.sizes());
  }
  Tensor kept = KeepAxes(dout, x, axes);
  return (kMean ? kept / ReducedCount(x, axes) : kept).expand(x.sizes());
}

template <bool kMean>
bool SumForm(BareCall& c) {
  const int x = c.In(0), out = c.Out(0);
  if (!c.AreFloat({x, out}) || c.numel(out) != 1) return false;
  return c.Run({x}, [=, n = c.numel(x)](void* const* m) {
    *FloatOut(m, out) = TotalOf(n, FloatIn(m, x), kMean);
  });
}

template <bool kMean>
bool SumGradForm(BareCall& c) {
  const int dout = c.In(1), dx = c.Out(0);
  if (!c.AreFloat({dout, dx}) || c.numel(dout) != 1) return false;
  const int64_t n = c.numel(dx);
  const auto up = c.Constant(dout);
  if (up && c.Fill(dx, ShareOf(n, *up, kMean))) return true;
  return c.Run({dout}, [=](void* const* m) {
    std::fill_n(FloatOut(m, dx), n, ShareOf(n, *FloatIn(m, dout), kMean));
  });
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
  k.Add<Sum<false>, SumGrad<false>>("reduce_sum");
  k.OnMemory("reduce_sum", SumForm<false>, SumGradForm<false>);
  k.Add<Sum<true>, SumGrad<true>>("reduce_mean");
  k.OnMemory("reduce_mean", SumForm<true>, SumGradForm<true>);
  k.Add<[](const Tensor& x) { return Sum<true>(x, {}, false, true); },
        [](const Tensor& x, const Tensor& dout) {
          return SumGrad<true>(x, dout, {}, false, true);
        }>("mean");
  k.OnMemory("mean", SumForm<true>, SumGradForm<true>);
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
