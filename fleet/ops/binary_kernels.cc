// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/add.h>
#include <ATen/ops/all.h>
#include <ATen/ops/any.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/fmax.h>
#include <ATen/ops/fmin.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/isclose.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/le.h>
#include <ATen/ops/log.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logical_xor.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/ops/broadcast.h"
#include "fleet/ops/cpu_path.h"
#include "fleet/ops/elementwise.h"
#include "fleet/ops/gpu_kernels.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/update/merged_rows.h"
#include "fleet/program/shape_rules.h"

namespace fleet::ops {
namespace {

using at::Tensor;

using TensorPair = std::tuple<Tensor, Tensor>;

// ---- Paddle's broadcasting

// `y` with ones behind it, so that it begins at dimension `axis` of `x`.
Tensor AlignedAt(const Tensor& x, const Tensor& y, int64_t axis) {
  if (axis == -1 || y.dim() >= x.dim()) return y;
  auto shape = program::AlignAt(x.sizes().vec(), y.sizes().vec(), axis);
  TORCH_CHECK(shape.ok(), shape.status().message());
  return y.reshape(*shape);
}

// A kernel of two tensors that broadcast as numpy's do, for an op with `axis`.
template <auto Fn>
Tensor AtAxis(const Tensor& x, const Tensor& y, int64_t axis) {
  return Fn(AlignedAt(y, x, axis), AlignedAt(x, y, axis));
}
template <auto Fn>
TensorPair GradAtAxis(const Tensor& x, const Tensor& y, const Tensor& dout,
                      int64_t axis, GradNeeds needs) {
  auto [dx, dy] = Fn(AlignedAt(y, x, axis), AlignedAt(x, y, axis), dout, needs);
  if (axis != -1) {
    if (dx.defined()) dx = dx.reshape(x.sizes());
    if (dy.defined()) dy = dy.reshape(y.sizes());
  }
  return {dx, dy};
}

// ---- the kernels

Tensor Add(const Tensor& x, const Tensor& y) {
  if (!SmallOnCpu(x, y)) return at::add(x, y);
  return Map(AddOp(), x, y);
}
Tensor Subtract(const Tensor& x, const Tensor& y) {
  if (!SmallOnCpu(x, y)) return at::sub(x, y);
  return Map(SubtractOp(), x, y);
}
Tensor Multiply(const Tensor& x, const Tensor& y) {
  if (!SmallOnCpu(x, y)) return at::mul(x, y);
  return Map(MultiplyOp(), x, y);
}

Tensor Divide(const Tensor& x, const Tensor& y) { return at::div(x, y); }
Tensor Maximum(const Tensor& x, const Tensor& y) { return at::maximum(x, y); }
Tensor Minimum(const Tensor& x, const Tensor& y) { return at::minimum(x, y); }
Tensor Power(const Tensor& x, const Tensor& y) { return at::pow(x, y); }
Tensor NumberMaximum(const Tensor& x, const Tensor& y) {
  return at::fmax(x, y);
}
Tensor NumberMinimum(const Tensor& x, const Tensor& y) {
  return at::fmin(x, y);
}

// How `term` was spread over bare floats whose gradient is `dout`; nothing
// where it is as large, or they are no such floats.
std::optional<Spread> SpreadOver(const Tensor& term, const Tensor& dout) {
  if (term.sizes() == dout.sizes() || dout.numel() == 0 ||
      !FastOnCpu(term, dout)) {
    return std::nullopt;
  }
  return SpreadOf(dout.sizes().vec(), term.sizes().vec(), -1);
}

// The sums of f(i), i over the elements of `dout`, for each element of `term`.
template <class F>
Tensor Collected(const Tensor& term, const Spread& spread, F f) {
  Tensor sums = at::empty(term.sizes(), term.options());
  Collect(spread, f, sums.mutable_data_ptr<float>());
  return sums;
}

// Whether `term` is one row that was added to every row.
bool IsRow(const Tensor& term, const Tensor& dout) {
  return term.dim() > 0 && term.dim() <= dout.dim() && dout.numel() > 0 &&
         term.numel() == term.size(-1) && term.size(-1) == dout.size(-1);
}

// The gradient of a term with this sign, mostly of a bias.
template <int kSign>
Tensor TermGrad(const Tensor& term, const Tensor& dout) {
  if (const auto spread = SpreadOver(term, dout)) {
    const auto rows = dout.expect_contiguous();
    return Collected(term, *spread,
                     [up = rows->const_data_ptr<float>()](int64_t i) {
                       return static_cast<float>(kSign) * up[i];
                     });
  }
  if (kSign < 0) return Unbroadcast(-dout, term);
  if (term.sizes() != dout.sizes() && IsRow(term, dout) &&
      dout.device().is_cpu()) {
    return at::sum(dout.contiguous().reshape({-1, term.numel()}), {0})
        .reshape(term.sizes());
  }
  if (term.sizes() != dout.sizes() && !Recording() &&
      term.scalar_type() == dout.scalar_type()) {
    Tensor sum = GpuSumTo(dout, term.sizes());
    if (sum.defined()) return sum;
  }
  return Unbroadcast(dout, term);
}

TensorPair AddGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                   GradNeeds needs) {
  return {needs[0] ? TermGrad<1>(x, dout) : Tensor(),
          needs[1] ? TermGrad<1>(y, dout) : Tensor()};
}

TensorPair SubGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                   GradNeeds needs) {
  return {needs[0] ? TermGrad<1>(x, dout) : Tensor(),
          needs[1] ? TermGrad<-1>(y, dout) : Tensor()};
}

// The gradient of a factor beside `other`.
Tensor FactorGrad(const Tensor& factor, const Tensor& other,
                  const Tensor& dout) {
  const auto spread = other.sizes() == dout.sizes() && FastOnCpu(other)
                          ? SpreadOver(factor, dout)
                          : std::nullopt;
  if (!spread) return Unbroadcast(Multiply(dout, other), factor);
  const auto up = dout.expect_contiguous(), from = other.expect_contiguous();
  return Collected(
      factor, *spread,
      [up = up->const_data_ptr<float>(), from = from->const_data_ptr<float>()](
          int64_t i) { return up[i] * from[i]; });
}

TensorPair MulGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                   GradNeeds needs) {
  return {needs[0] ? FactorGrad(x, y, dout) : Tensor(),
          needs[1] ? FactorGrad(y, x, dout) : Tensor()};
}

TensorPair DivGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                   GradNeeds needs) {
  return {needs[0] ? Unbroadcast(dout / y, x) : Tensor(),
          needs[1] ? Unbroadcast(-dout * x / (y * y), y) : Tensor()};
}

// A number beside a tensor on a GPU is a tensor on the CPU.
TensorPair PowGrad(const Tensor& base, const Tensor& exponent,
                   const Tensor& dout, GradNeeds needs) {
  Tensor x = base.to(dout.device()), y = exponent.to(dout.device());
  Tensor dx, dy;
  if (needs[0]) {
    dx = Unbroadcast(
        at::where(y == 0, at::zeros_like(dout), dout * y * at::pow(x, y - 1)),
        base);
  }
  if (needs[1]) {
    Tensor safe = at::where(x > 0, x, at::ones_like(x));
    dy = Unbroadcast(dout * at::pow(x, y) * at::log(safe), exponent);
  }
  return {dx, dy};
}

// The larger (smaller) operand takes the gradient; at a tie, Y does.
template <bool kMax>
TensorPair ExtremeGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                       GradNeeds needs) {
  Tensor from_x = kMax ? at::gt(x, y) : at::lt(x, y);
  Tensor zero = at::zeros_like(dout);
  return {needs[0] ? Unbroadcast(at::where(from_x, dout, zero), x) : Tensor(),
          needs[1] ? Unbroadcast(at::where(from_x, zero, dout), y) : Tensor()};
}

// As ExtremeGrad, but NaN never wins against a number; at a tie, X does.
template <bool kMax>
TensorPair NumberExtremeGrad(const Tensor& x, const Tensor& y,
                             const Tensor& dout, GradNeeds needs) {
  Tensor from_x =
      at::logical_or(kMax ? at::ge(x, y) : at::le(x, y), at::isnan(y));
  Tensor zero = at::zeros_like(dout);
  return {needs[0] ? Unbroadcast(at::where(from_x, dout, zero), x) : Tensor(),
          needs[1] ? Unbroadcast(at::where(from_x, zero, dout), y) : Tensor()};
}

TensorPair Atan2Grad(const Tensor& x, const Tensor& y, const Tensor& dout,
                     GradNeeds needs) {
  Tensor part = dout / (x * x + y * y);
  return {needs[0] ? Unbroadcast(part * y, x) : Tensor(),
          needs[1] ? Unbroadcast(-part * x, y) : Tensor()};
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

TensorPair RemainderGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                         GradNeeds needs) {
  return {needs[0] ? Unbroadcast(dout, x) : Tensor(),
          needs[1] ? Unbroadcast(-dout * at::floor(x / y), y) : Tensor()};
}

Tensor Lerp(const Tensor& x, const Tensor& y, const Tensor& weight) {
  return x + weight * (y - x);
}
std::tuple<Tensor, Tensor, Tensor> LerpGrad(const Tensor& x, const Tensor& y,
                                            const Tensor& weight,
                                            const Tensor& dout,
                                            GradNeeds needs) {
  return {needs[0] ? Unbroadcast(dout * (1 - weight), x) : Tensor(),
          needs[1] ? Unbroadcast(dout * weight, y) : Tensor(),
          needs[2] ? Unbroadcast(dout * (y - x), weight) : Tensor()};
}

Tensor Sum(at::TensorList x) {
  TORCH_CHECK(!x.empty(), "X is an empty list");
  for (size_t i = 1; i < x.size(); ++i) {
    TORCH_CHECK(x[i].sizes() == x[0].sizes(), "X[", i, "] has shape ",
                x[i].sizes(), " but X[0] has ", x[0].sizes());
  }
  // Autograd does not see what JoinRows() does.
  if (x.size() > 1 && !Recording() && AreRowsOfOneTable(x)) return JoinRows(x);
  Tensor out = x[0].clone();
  for (size_t i = 1; i < x.size(); ++i) out = AddGradients(out, x[i]);
  return out;
}
std::vector<Tensor> SumGrad(at::TensorList x, const Tensor& dout) {
  std::vector<Tensor> grads;
  for (const Tensor& one : x) grads.push_back(Unbroadcast(dout, one));
  return grads;
}

Tensor EqualAll(const Tensor& x, const Tensor& y) {
  bool same = x.sizes() == y.sizes() && at::eq(x, y).all().item<bool>();
  return at::full({1}, same, x.options().dtype(at::kBool));
}

Tensor IsClose(const Tensor& x, const Tensor& y, double rtol, double atol,
               bool equal_nan) {
  return at::isclose(x, y, rtol, atol, equal_nan);
}
Tensor AllClose(const Tensor& x, const Tensor& y, double rtol, double atol,
                bool equal_nan) {
  return at::isclose(x, y, rtol, atol, equal_nan).all().reshape({1});
}

Tensor Scaled(const Tensor& x, const Affine& affine) {
  Tensor out = at::empty(x.sizes(), x.options());
  affine(x.numel(), x.const_data_ptr<float>(), out.mutable_data_ptr<float>());
  return out;
}

Tensor Scale(const Tensor& x, double scale, double bias,
             bool bias_after_scale) {
  TORCH_CHECK(x.scalar_type() != at::kBool, "X must hold numbers, not bools");
  if (bias == 0 && scale == 1) return x.clone();
  if (FastOnCpu(x) && x.is_contiguous()) {
    return Scaled(x, {static_cast<float>(scale), static_cast<float>(bias),
                      bias_after_scale});
  }
  bool integral = at::isIntegralType(x.scalar_type(), true);
  at::Scalar s = integral ? at::Scalar(static_cast<int64_t>(scale)) : scale;
  at::Scalar b = integral ? at::Scalar(static_cast<int64_t>(bias)) : bias;
  if (bias == 0) return at::mul(x, s);
  if (scale == 1) return at::add(x, b);
  return bias_after_scale ? at::add(at::mul(x, s), b)
                          : at::mul(at::add(x, b), s);
}
Tensor ScaleGrad(const Tensor& dout, double scale, double, bool) {
  if (scale == 1) return dout;
  if (FastOnCpu(dout) && dout.is_contiguous()) {
    return Scaled(dout, {static_cast<float>(scale), 0, true});
  }
  return dout * scale;
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
  if (x.is_sparse()) {  // a row that occurs twice is cut with its sum
    const MergedRows merged = MergeRows(x);
    return at::_sparse_coo_tensor_unsafe(merged.rows.unsqueeze(0),
                                         at::clamp(merged.values, min, max),
                                         x.sizes(), x.options());
  }
  if (!at::isIntegralType(x.scalar_type(), true)) {
    return at::clamp(x, min, max);
  }
  std::optional<at::Scalar> low, high;
  if (std::isfinite(min)) low = static_cast<int64_t>(std::ceil(min));
  if (std::isfinite(max)) high = static_cast<int64_t>(std::floor(max));
  return low || high ? at::clamp(x, low, high) : x.clone();
}
Tensor ClipGrad(const Tensor& x, const Tensor& dout, double min, double max) {
  return dout * at::logical_and(at::gt(x, min), at::lt(x, max));
}

}  // namespace

void AddBinaryKernels(KernelTable& k) {
  // Integers divide exactly only by becoming floating point.
  k.Add<AtAxis<Divide>, GradAtAxis<DivGrad>>("elementwise_div");
  k.Add<AtAxis<Add>, GradAtAxis<AddGrad>>("elementwise_add");
  k.Add<AtAxis<Subtract>, GradAtAxis<SubGrad>>("elementwise_sub");
  k.Add<AtAxis<Multiply>, GradAtAxis<MulGrad>>("elementwise_mul");
  k.Add<AtAxis<Maximum>, GradAtAxis<ExtremeGrad<true>>>("elementwise_max");
  k.Add<AtAxis<Minimum>, GradAtAxis<ExtremeGrad<false>>>("elementwise_min");
  k.Add<AtAxis<Power>, GradAtAxis<PowGrad>>("elementwise_pow");
  k.Add<AtAxis<NumberMaximum>, GradAtAxis<NumberExtremeGrad<true>>>(
      "elementwise_fmax");
  k.Add<AtAxis<NumberMinimum>, GradAtAxis<NumberExtremeGrad<false>>>(
      "elementwise_fmin");
  k.Add<Subtract, SubGrad>("minus");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::atan2(x, y); },
        Atan2Grad>("atan2");
  k.Add<Lerp, LerpGrad>("lerp");
  k.Add<Sum, SumGrad>("sum");
  k.Add<AtAxis<Remainder>, GradAtAxis<RemainderGrad>>("elementwise_mod");
  k.Add<AtAxis<FloorDivide>>("elementwise_floordiv");

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
  k.Add<[](const Tensor& x, const Tensor& y) { return at::bitwise_and(x, y); }>(
      "bitwise_and");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::bitwise_or(x, y); }>(
      "bitwise_or");
  k.Add<[](const Tensor& x, const Tensor& y) { return at::bitwise_xor(x, y); }>(
      "bitwise_xor");
  k.Add<[](const Tensor& x) { return at::bitwise_not(x); }>("bitwise_not");
  k.Add<EqualAll>("equal_all");
  k.Add<IsClose>("isclose");
  k.Add<AllClose>("allclose");
  k.Add<Scale, ScaleGrad>("scale");
  k.Add<Pow, PowScalarGrad>("pow");
  k.Add<Clip, ClipGrad>("clip");
}

}  // namespace fleet::ops
