// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/add.h>
#include <ATen/ops/all.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/any.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/le.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logical_xor.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/round.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/trunc.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/base/simd.h"
#include "fleet/ops/cpu_path.h"
#include "fleet/ops/kernels.h"

namespace fleet::ops {
namespace {

using at::Tensor;

// ---- one input
// ---------------------------------------------------------------

template <auto Simd>
Tensor SimdUnary(const Tensor& x) {
  Tensor in = x.contiguous();
  Tensor out = at::empty_like(in);
  Simd(in.const_data_ptr<float>(), out.mutable_data_ptr<float>(), in.numel());
  return out;
}

template <auto Simd>
Tensor SimdUnaryGrad(const Tensor& out, const Tensor& dout) {
  Tensor y = out.contiguous(), dy = dout.contiguous();
  Tensor dx = at::empty_like(y);
  Simd(y.const_data_ptr<float>(), dy.const_data_ptr<float>(),
       dx.mutable_data_ptr<float>(), y.numel());
  return dx;
}

Tensor Tanh(const Tensor& x) {
  return FastOnCpu(x) ? SimdUnary<base::Tanh>(x) : at::tanh(x);
}
Tensor TanhGrad(const Tensor& out, const Tensor& dout) {
  return FastOnCpu(out, dout) ? SimdUnaryGrad<base::TanhGrad>(out, dout)
                              : at::tanh_backward(dout, out);
}

Tensor Sigmoid(const Tensor& x) {
  return FastOnCpu(x) ? SimdUnary<base::Sigmoid>(x) : at::sigmoid(x);
}
Tensor SigmoidGrad(const Tensor& out, const Tensor& dout) {
  return FastOnCpu(out, dout) ? SimdUnaryGrad<base::SigmoidGrad>(out, dout)
                              : at::sigmoid_backward(dout, out);
}

Tensor Exp(const Tensor& x) {
  return FastOnCpu(x) ? SimdUnary<base::Exp>(x) : at::exp(x);
}

Tensor ReluGrad(const Tensor& out, const Tensor& dout) {
  return at::threshold_backward(dout, out, 0);
}

Tensor MishGrad(const Tensor& x, const Tensor& dout) {
  Tensor t = at::tanh(at::softplus(x)), s = at::sigmoid(x);
  return dout * (t + x * s * (1 - t * t));
}

Tensor SiluGrad(const Tensor& x, const Tensor& dout) {
  Tensor s = at::sigmoid(x);
  return dout * (s * (1 + x * (1 - s)));
}

Tensor SoftsignGrad(const Tensor& x, const Tensor& dout) {
  Tensor d = 1 + x.abs();
  return dout / (d * d);
}

Tensor NoGradient(const Tensor& dout) { return at::zeros_like(dout); }

void AddUnary(KernelTable& k) {
  k.Add<Tanh, TanhGrad>("tanh");
  k.Add<Sigmoid, SigmoidGrad>("sigmoid");
  k.Add<Exp, [](const Tensor& y, const Tensor& dy) { return dy * y; }>("exp");
  k.Add<[](const Tensor& x) { return at::relu(x); }, ReluGrad>("relu");
  k.Add<[](const Tensor& x) { return at::sqrt(x); },
        [](const Tensor& y, const Tensor& dy) { return dy / (2 * y); }>("sqrt");
  k.Add<[](const Tensor& x) { return at::rsqrt(x); },
        [](const Tensor& y, const Tensor& dy) {
          return -0.5 * dy * y * y * y;
        }>("rsqrt");
  k.Add<[](const Tensor& x) { return at::reciprocal(x); },
        [](const Tensor& y, const Tensor& dy) { return -dy * y * y; }>(
      "reciprocal");

  k.Add<[](const Tensor& x) { return at::abs(x); },
        [](const Tensor& x, const Tensor& dy) { return dy * at::sign(x); }>(
      "abs");
  k.Add<[](const Tensor& x) { return x * x; },
        [](const Tensor& x, const Tensor& dy) { return 2 * x * dy; }>("square");
  k.Add<[](const Tensor& x) { return at::log(x); },
        [](const Tensor& x, const Tensor& dy) { return dy / x; }>("log");
  k.Add<[](const Tensor& x) { return at::log2(x); },
        [](const Tensor& x, const Tensor& dy) {
          return dy / (x * std::log(2.0));
        }>("log2");
  k.Add<[](const Tensor& x) { return at::log10(x); },
        [](const Tensor& x, const Tensor& dy) {
          return dy / (x * std::log(10.0));
        }>("log10");
  k.Add<[](const Tensor& x) { return at::log1p(x); },
        [](const Tensor& x, const Tensor& dy) { return dy / (1 + x); }>(
      "log1p");
  k.Add<[](const Tensor& x) { return at::expm1(x); },
        [](const Tensor& x, const Tensor& dy) { return dy * at::exp(x); }>(
      "expm1");
  k.Add<[](const Tensor& x) { return at::sin(x); },
        [](const Tensor& x, const Tensor& dy) { return dy * at::cos(x); }>(
      "sin");
  k.Add<[](const Tensor& x) { return at::cos(x); },
        [](const Tensor& x, const Tensor& dy) { return -dy * at::sin(x); }>(
      "cos");
  k.Add<[](const Tensor& x) { return at::tan(x); },
        [](const Tensor& x, const Tensor& dy) {
          Tensor c = at::cos(x);
          return dy / (c * c);
        }>("tan");
  k.Add<[](const Tensor& x) { return at::asin(x); },
        [](const Tensor& x, const Tensor& dy) {
          return dy * at::rsqrt(1 - x * x);
        }>("asin");
  k.Add<[](const Tensor& x) { return at::acos(x); },
        [](const Tensor& x, const Tensor& dy) {
          return -dy * at::rsqrt(1 - x * x);
        }>("acos");
  k.Add<[](const Tensor& x) { return at::atan(x); },
        [](const Tensor& x, const Tensor& dy) { return dy / (1 + x * x); }>(
      "atan");
  k.Add<[](const Tensor& x) { return at::sinh(x); },
        [](const Tensor& x, const Tensor& dy) { return dy * at::cosh(x); }>(
      "sinh");
  k.Add<[](const Tensor& x) { return at::cosh(x); },
        [](const Tensor& x, const Tensor& dy) { return dy * at::sinh(x); }>(
      "cosh");
  k.Add<[](const Tensor& x) { return at::erf(x); },
        [](const Tensor& x, const Tensor& dy) {
          return dy * (2 / std::sqrt(M_PI)) * at::exp(-x * x);
        }>("erf");
  k.Add<[](const Tensor& x) { return at::sign(x); },
        [](const Tensor& x, const Tensor&) { return at::zeros_like(x); }>(
      "sign");
  k.Add<[](const Tensor& x) { return at::silu(x); }, SiluGrad>("silu");
  k.Add<[](const Tensor& x) { return x / (1 + x.abs()); }, SoftsignGrad>(
      "softsign");
  k.Add<[](const Tensor& x) { return x - at::tanh(x); },
        [](const Tensor& x, const Tensor& dy) {
          Tensor t = at::tanh(x);
          return dy * t * t;
        }>("tanhshrink");
  k.Add<[](const Tensor& x) { return at::log_sigmoid(x); },
        [](const Tensor& x, const Tensor& dy) { return dy * at::sigmoid(-x); }>(
      "logsigmoid");
  k.Add<[](const Tensor& x) { return at::mish(x); }, MishGrad>("mish");

  k.Add<[](const Tensor& x) { return at::floor(x); }, NoGradient>("floor");
  k.Add<[](const Tensor& x) { return at::ceil(x); }, NoGradient>("ceil");
  k.Add<[](const Tensor& x) { return at::round(x); }, NoGradient>("round");
  k.Add<[](const Tensor& x) { return at::trunc(x); }, NoGradient>("trunc");
  k.Add<[](const Tensor& x) { return at::isnan(x); }>("isnan_v2");
  k.Add<[](const Tensor& x) { return at::isinf(x); }>("isinf_v2");
  k.Add<[](const Tensor& x) { return at::isfinite(x); }>("isfinite_v2");
}

// ---- two inputs
// --------------------------------------------------------------

using TensorPair = std::tuple<Tensor, Tensor>;

// `grad` summed over the dimensions that broadcasting gave to `like`.
Tensor Unbroadcast(const Tensor& grad, const Tensor& like) {
  Tensor g = at::sum_to(grad, like.sizes());
  return g.scalar_type() == like.scalar_type() ? g : g.to(like.scalar_type());
}

TensorPair AddGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                   GradNeeds needs) {
  return {needs[0] ? Unbroadcast(dout, x) : Tensor(),
          needs[1] ? Unbroadcast(dout, y) : Tensor()};
}

TensorPair SubGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                   GradNeeds needs) {
  return {needs[0] ? Unbroadcast(dout, x) : Tensor(),
          needs[1] ? Unbroadcast(-dout, y) : Tensor()};
}

TensorPair MulGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                   GradNeeds needs) {
  return {needs[0] ? Unbroadcast(dout * y, x) : Tensor(),
          needs[1] ? Unbroadcast(dout * x, y) : Tensor()};
}

TensorPair DivGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                   GradNeeds needs) {
  return {needs[0] ? Unbroadcast(dout / y, x) : Tensor(),
          needs[1] ? Unbroadcast(-dout * x / (y * y), y) : Tensor()};
}

TensorPair PowGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                   GradNeeds needs) {
  Tensor dx, dy;
  if (needs[0]) {
    dx = Unbroadcast(
        at::where(y == 0, at::zeros_like(dout), dout * y * at::pow(x, y - 1)),
        x);
  }
  if (needs[1]) {
    Tensor safe = at::where(x > 0, x, at::ones_like(x));
    dy = Unbroadcast(dout * at::pow(x, y) * at::log(safe), y);
  }
  return {dx, dy};
}

// The larger (smaller) operand takes the gradient; at a tie, X does.
template <bool kMax>
TensorPair ExtremeGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                       GradNeeds needs) {
  Tensor from_x = kMax ? at::ge(x, y) : at::le(x, y);
  Tensor zero = at::zeros_like(dout);
  return {needs[0] ? Unbroadcast(at::where(from_x, dout, zero), x) : Tensor(),
          needs[1] ? Unbroadcast(at::where(from_x, zero, dout), y) : Tensor()};
}

Tensor FloorDivide(const Tensor& x, const Tensor& y) {
  TORCH_CHECK(!at::isIntegralType(y.scalar_type(), true) ||
                  !at::any(y == 0).item<bool>(),
              "integer division by zero in Y");
  return at::div(x, y, "floor");
}

Tensor Remainder(const Tensor& x, const Tensor& y) {
  TORCH_CHECK(!at::isIntegralType(y.scalar_type(), true) ||
                  !at::any(y == 0).item<bool>(),
              "integer modulo by zero in Y");
  return at::remainder(x, y);
}

// Integers divide exactly only by becoming floating point.
Tensor Divide(const Tensor& x, const Tensor& y) { return at::div(x, y); }

Tensor Scale(const Tensor& x, double scale, double bias,
             bool bias_after_scale) {
  if (bias == 0 && scale == 1) return x.clone();
  bool integral = at::isIntegralType(x.scalar_type(), true);
  at::Scalar s = integral ? at::Scalar(static_cast<int64_t>(scale)) : scale;
  at::Scalar b = integral ? at::Scalar(static_cast<int64_t>(bias)) : bias;
  if (bias == 0) return at::mul(x, s);
  if (scale == 1) return at::add(x, b);
  return bias_after_scale ? at::add(at::mul(x, s), b)
                          : at::mul(at::add(x, b), s);
}
Tensor ScaleGrad(const Tensor& dout, double scale, double, bool) {
  return scale == 1 ? dout : dout * scale;
}

Tensor Pow(const Tensor& x, double factor) {
  if (at::isIntegralType(x.scalar_type(), false) &&
      factor == std::floor(factor) && factor >= 0) {
    return at::pow(x, static_cast<int64_t>(factor));
  }
  return at::pow(x, factor);
}
Tensor PowScalarGrad(const Tensor& x, const Tensor& dout, double factor) {
  if (factor == 0) return at::zeros_like(dout);
  return dout * factor * at::pow(x, factor - 1);
}

Tensor Clip(const Tensor& x, double min, double max) {
  TORCH_CHECK(min <= max, "min ", min, " is above max ", max);
  if (!at::isIntegralType(x.scalar_type(), true)) {
    return at::clamp(x, min, max);
  }
  std::optional<at::Scalar> low, high;
  if (std::isfinite(min)) low = static_cast<int64_t>(std::ceil(min));
  if (std::isfinite(max)) high = static_cast<int64_t>(std::floor(max));
  return low || high ? at::clamp(x, low, high) : x.clone();
}
Tensor ClipGrad(const Tensor& x, const Tensor& dout, double min, double max) {
  return dout * at::logical_and(at::ge(x, min), at::le(x, max));
}

void AddBinary(KernelTable& k) {
  k.Add<[](const Tensor& x, const Tensor& y) { return at::add(x, y); },
        AddGrad>("elementwise_add");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::sub(x, y); },
        SubGrad>("elementwise_sub");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::mul(x, y); },
        MulGrad>("elementwise_mul");
  k.Add<Divide, DivGrad>("elementwise_div");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::maximum(x, y); },
        ExtremeGrad<true>>("elementwise_max");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::minimum(x, y); },
        ExtremeGrad<false>>("elementwise_min");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::pow(x, y); },
        PowGrad>("elementwise_pow");
  k.Add<Remainder>("elementwise_mod");
  k.Add<FloorDivide>("elementwise_floordiv");

  k.Add<[](const Tensor& x, const Tensor& y) { return at::eq(x, y); }>("equal");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::ne(x, y); }>(
      "not_equal");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::lt(x, y); }>(
      "less_than");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::le(x, y); }>(
      "less_equal");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::gt(x, y); }>(
      "greater_than");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::ge(x, y); }>(
      "greater_equal");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::logical_and(x, y); }>(
      "logical_and");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::logical_or(x, y); }>(
      "logical_or");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::logical_xor(x, y); }>(
      "logical_xor");
  k.Add<[](const Tensor& x) { return at::logical_not(x); }>("logical_not");
  k.Add<Scale, ScaleGrad>("scale");
  k.Add<Pow, PowScalarGrad>("pow");
  k.Add<Clip, ClipGrad>("clip");
}

// ---- reductions
// --------------------------------------------------------------

// The axes to reduce; all of them when none is named.
std::vector<int64_t> Axes(const Tensor& x, at::IntArrayRef dim, bool all) {
  std::vector<int64_t> axes(dim.begin(), dim.end());
  if (all || axes.empty()) {
    axes.resize(x.dim());
    for (int64_t i = 0; i < x.dim(); ++i) axes[i] = i;
  }
  for (int64_t& axis : axes) axis = at::maybe_wrap_dim(axis, x.dim());
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

// A full reduction has shape [1], not [].
Tensor AtLeast1D(const Tensor& out) {
  return out.dim() == 0 ? out.reshape({1}) : out;
}

// `out` with ones where axes were reduced away, so that it broadcasts over x.
Tensor Keep(const Tensor& out, const Tensor& x,
            const std::vector<int64_t>& axes) {
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  for (int64_t axis : axes) shape[axis] = 1;
  return out.reshape(shape);
}

Tensor Sum(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  return AtLeast1D(at::sum(x, Axes(x, dim, all), keep));
}
Tensor SumGrad(const Tensor& x, const Tensor& dout, at::IntArrayRef dim, bool,
               bool all) {
  return Keep(dout, x, Axes(x, dim, all)).expand(x.sizes());
}

Tensor Mean(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  return AtLeast1D(at::mean(x, Axes(x, dim, all), keep));
}
Tensor MeanGrad(const Tensor& x, const Tensor& dout, at::IntArrayRef dim, bool,
                bool all) {
  std::vector<int64_t> axes = Axes(x, dim, all);
  int64_t count = 1;
  for (int64_t axis : axes) count *= x.size(axis);
  return (Keep(dout, x, axes) / count).expand(x.sizes());
}

// Shared evenly among equal extremes.
Tensor ExtremeReduceGrad(const Tensor& x, const Tensor& out, const Tensor& dout,
                         at::IntArrayRef dim, bool, bool all) {
  std::vector<int64_t> axes = Axes(x, dim, all);
  Tensor mask = at::eq(x, Keep(out, x, axes)).to(dout.scalar_type());
  return mask * (Keep(dout, x, axes) / at::sum(mask, axes, true));
}

Tensor Max(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  return AtLeast1D(at::amax(x, Axes(x, dim, all), keep));
}
Tensor Min(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  return AtLeast1D(at::amin(x, Axes(x, dim, all), keep));
}

Tensor Prod(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  std::vector<int64_t> axes = Axes(x, dim, all);
  Tensor out = x;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    out = at::prod(out, *axis, keep, x.scalar_type());
  }
  return AtLeast1D(out);
}
// Where one factor is zero, the quotient out / x says nothing: the product of
// the others is computed along the reduced axes, moved to the back and joined.
Tensor ProdGrad(const Tensor& x, const Tensor& out, const Tensor& dout,
                at::IntArrayRef dim, bool, bool all) {
  std::vector<int64_t> axes = Axes(x, dim, all);
  if (!at::any(x == 0).item<bool>()) {
    return Keep(dout * out, x, axes) / x;
  }
  std::vector<int64_t> order;
  for (int64_t i = 0; i < x.dim(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end())
      order.push_back(i);
  }
  order.insert(order.end(), axes.begin(), axes.end());
  Tensor moved = x.permute(order);
  int64_t n = 1;
  for (int64_t axis : axes) n *= x.size(axis);
  Tensor flat = moved.reshape({-1, n});
  std::vector<Tensor> others;
  for (int64_t i = 0; i < n; ++i) {
    others.push_back(at::prod(flat.narrow(1, 0, i), 1) *
                     at::prod(flat.narrow(1, i + 1, n - i - 1), 1));
  }
  Tensor grad = at::stack(others, 1).reshape(moved.sizes());
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = i;
  return grad.permute(back) * Keep(dout, x, axes);
}

Tensor LogSumExp(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  return AtLeast1D(at::logsumexp(x, Axes(x, dim, all), keep));
}
Tensor LogSumExpGrad(const Tensor& x, const Tensor& out, const Tensor& dout,
                     at::IntArrayRef dim, bool, bool all) {
  std::vector<int64_t> axes = Axes(x, dim, all);
  return Keep(dout, x, axes) * at::exp(x - Keep(out, x, axes));
}

Tensor All(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  return AtLeast1D(at::all(x, Axes(x, dim, all), keep).to(at::kBool));
}
Tensor Any(const Tensor& x, at::IntArrayRef dim, bool keep, bool all) {
  return AtLeast1D(at::any(x, Axes(x, dim, all), keep).to(at::kBool));
}

void AddReductions(KernelTable& k) {
  k.Add<Sum, SumGrad>("reduce_sum");
  k.Add<Mean, MeanGrad>("reduce_mean");
  k.Add<Max, ExtremeReduceGrad>("reduce_max");
  k.Add<Min, ExtremeReduceGrad>("reduce_min");
  k.Add<Prod, ProdGrad>("reduce_prod");
  k.Add<LogSumExp, LogSumExpGrad>("logsumexp");
  k.Add<All>("reduce_all");
  k.Add<Any>("reduce_any");
}

}  // namespace

void AddMathKernels(KernelTable& kernels) {
  AddUnary(kernels);
  AddBinary(kernels);
  AddReductions(kernels);
}

}  // namespace fleet::ops
