// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstdint>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_ctc_loss_backward.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/all.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_backward.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/index_check.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/rows.h"
#include "fleet/ops/sums.h"

namespace fleet::ops {
namespace {

using at::Tensor;
using Two = std::tuple<Tensor, Tensor>;

// ---- reduction

Tensor Reduce(const Tensor& losses, const std::string& reduction) {
  if (reduction == "none") return losses;
  if (reduction == "sum") return at::sum(losses).reshape({1});
  TORCH_CHECK(reduction == "mean", "reduction must be 'mean', 'sum' or 'none'");
  return at::mean(losses).reshape({1});
}

// The gradient of each loss, from that of their reduction; broadcasts.
Tensor Spread(const Tensor& dout, const Tensor& losses_like,
              const std::string& reduction) {
  if (reduction != "mean") return dout;
  return dout / losses_like.numel();
}

Tensor ToShapeOf(const Tensor& grad, const Tensor& like) {
  return grad.sizes() == like.sizes() ? grad : at::sum_to(grad, like.sizes());
}

// ---- of a difference

bool BothFast(const Tensor& x, const Tensor& y) {
  return FastOnCpu(x, y) && x.sizes() == y.sizes();
}

void CheckPair(const Tensor& x, const Tensor& y) {
  TORCH_CHECK(at::isFloatingType(x.scalar_type()) &&
                  at::isFloatingType(y.scalar_type()),
              "input and label must be floating point");
}

// out = (a - b)^2, or their mean or sum.
void SquaredError(int64_t n, const float* a, const float* b,
                  LossReduction reduction, float* out) {
  if (reduction == LossReduction::kNone) {
    for (int64_t i = 0; i < n; ++i) out[i] = (a[i] - b[i]) * (a[i] - b[i]);
    return;
  }
  const double sum = SquaredDistance(n, a, b);
  const bool mean = reduction == LossReduction::kMean;
  *out = static_cast<float>(mean ? sum / static_cast<double>(n) : sum);
}

void SquaredErrorGrad(int64_t n, const float* a, const float* b,
                      LossReduction reduction, const float* dout, float* da) {
  if (reduction == LossReduction::kNone) {
    for (int64_t i = 0; i < n; ++i) da[i] = 2 * dout[i] * (a[i] - b[i]);
    return;
  }
  float g = 2 * *dout;
  if (reduction == LossReduction::kMean) g /= static_cast<float>(n);
  for (int64_t i = 0; i < n; ++i) da[i] = g * (a[i] - b[i]);
}

Tensor Mse(const Tensor& x, const Tensor& y, const std::string& reduction) {
  CheckPair(x, y);
  const LossReduction how = ReadReduction(reduction);
  if (!BothFast(x, y)) {
    Tensor d = x - y;
    return Reduce(d * d, reduction);
  }
  const auto a = x.expect_contiguous(), b = y.expect_contiguous();
  Tensor out = how == LossReduction::kNone ? at::empty(x.sizes(), x.options())
                                           : at::empty({1}, x.options());
  SquaredError(x.numel(), a->const_data_ptr<float>(),
               b->const_data_ptr<float>(), how, out.mutable_data_ptr<float>());
  return out;
}

Two MseGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
            const std::string& reduction, GradNeeds needs) {
  Tensor dx, dy;
  if (BothFast(x, y) && FastOnCpu(dout) && !needs[1]) {
    const auto a = x.expect_contiguous(), b = y.expect_contiguous();
    dx = at::empty(x.sizes(), x.options());
    SquaredErrorGrad(x.numel(), a->const_data_ptr<float>(),
                     b->const_data_ptr<float>(), ReadReduction(reduction),
                     dout.expect_contiguous()->const_data_ptr<float>(),
                     dx.mutable_data_ptr<float>());
    return {dx, dy};
  }
  Tensor d = x - y;
  Tensor g = Spread(dout, d, reduction) * 2 * d;
  if (needs[0]) dx = ToShapeOf(g, x);
  if (needs[1]) dy = ToShapeOf(-g, y);
  return {dx, dy};
}

bool MseForm(BareCall& c) {
  const int x = c.In(0), y = c.In(1), out = c.Out(0);
  if (!c.AreFloat({x, y, out}) || c.dims(x) != c.dims(y)) return false;
  const LossReduction how = ReadReduction(c.attr<std::string>("reduction"));
  return c.Run({x, y}, [=, n = c.numel(x)](void* const* m) {
    SquaredError(n, FloatIn(m, x), FloatIn(m, y), how, FloatOut(m, out));
  });
}

bool MseGradForm(BareCall& c) {
  const int x = c.In(0), y = c.In(1), dout = c.In(2), dx = c.Out(0);
  if (!c.AreFloat({x, y, dout, dx}) || c.dims(x) != c.dims(y) ||
      c.Out(1) != kNone) {
    return false;
  }
  const LossReduction how = ReadReduction(c.attr<std::string>("reduction"));
  return c.Run({x, y, dout}, [=, n = c.numel(x)](void* const* m) {
    SquaredErrorGrad(n, FloatIn(m, x), FloatIn(m, y), how, FloatIn(m, dout),
                     FloatOut(m, dx));
  });
}

Tensor L1(const Tensor& x, const Tensor& y, const std::string& reduction) {
  CheckPair(x, y);
  return Reduce(at::abs(x - y), reduction);
}

Two L1Grad(const Tensor& x, const Tensor& y, const Tensor& dout,
           const std::string& reduction, GradNeeds needs) {
  Tensor d = x - y;
  Tensor g = Spread(dout, d, reduction) * at::sign(d);
  return {needs[0] ? ToShapeOf(g, x) : Tensor(),
          needs[1] ? ToShapeOf(-g, y) : Tensor()};
}

// d^2 / 2 near zero, delta |d| - delta^2 / 2 beyond delta.
Tensor SmoothL1(const Tensor& x, const Tensor& y, double delta,
                const std::string& reduction) {
  CheckPair(x, y);
  Tensor d = x - y, size = at::abs(d);
  return Reduce(
      at::where(size < delta, 0.5 * d * d, delta * size - 0.5 * delta * delta),
      reduction);
}

Two SmoothL1Grad(const Tensor& x, const Tensor& y, const Tensor& dout,
                 double delta, const std::string& reduction, GradNeeds needs) {
  Tensor d = x - y;
  Tensor g = Spread(dout, d, reduction) * at::clamp(d, -delta, delta);
  return {needs[0] ? ToShapeOf(g, x) : Tensor(),
          needs[1] ? ToShapeOf(-g, y) : Tensor()};
}

// ---- of probabilities

Tensor SafeLog(const Tensor& x) {
  return at::log(at::where(x > 0, x, at::ones_like(x)));
}

// x holds logarithms, target probabilities.
Tensor KlDiv(const Tensor& x, const Tensor& target,
             const std::string& reduction) {
  CheckPair(x, target);
  Tensor loss = target * (SafeLog(target) - x);
  return Reduce(at::where(target > 0, loss, at::zeros_like(loss)), reduction);
}

Two KlDivGrad(const Tensor& x, const Tensor& target, const Tensor& dout,
              const std::string& reduction, GradNeeds needs) {
  Tensor dx, dt;
  Tensor like = x + target;
  Tensor g = Spread(dout, like, reduction);
  Tensor positive = (target > 0).to(like.scalar_type());
  if (needs[0]) dx = ToShapeOf((-g * target * positive).expand_as(like), x);
  if (needs[1]) {
    dt = ToShapeOf(g * (SafeLog(target) - x + 1) * positive, target);
  }
  return {dx, dt};
}

void CheckSameShape(const Tensor& x, const Tensor& y) {
  TORCH_CHECK(x.sizes() == y.sizes(), "input and label differ in shape");
  CheckPair(x, y);
}

Tensor LogLoss(const Tensor& p, const Tensor& label, double epsilon) {
  CheckSameShape(p, label);
  return -(label * at::log(p + epsilon)) -
         (1 - label) * at::log(1 - p + epsilon);
}

Two LogLossGrad(const Tensor& p, const Tensor& label, const Tensor& dout,
                double epsilon, GradNeeds needs) {
  Tensor dp, dl;
  if (needs[0]) {
    dp = dout * ((1 - label) / (1 - p + epsilon) - label / (p + epsilon));
  }
  if (needs[1]) {
    dl = dout * (at::log(1 - p + epsilon) - at::log(p + epsilon));
  }
  return {dp, dl};
}

Tensor Bce(const Tensor& x, const Tensor& label) {
  CheckSameShape(x, label);
  // On a GPU a value outside would kill the context, not only this call.
  TORCH_CHECK(at::all((x >= 0) & (x <= 1)).item<bool>(),
              "the input holds a value that is not between 0 and 1");
  return at::binary_cross_entropy(x, label, {}, at::Reduction::None);
}

Two BceGrad(const Tensor& x, const Tensor& label, const Tensor& dout,
            GradNeeds needs) {
  Tensor dx, dl;
  if (needs[0]) {
    dx = at::binary_cross_entropy_backward(dout, x, label, {},
                                           at::Reduction::None);
  }
  if (needs[1]) {
    dl = dout * (at::clamp_min(at::log(1 - x), -100) -
                 at::clamp_min(at::log(x), -100));
  }
  return {dx, dl};
}

Tensor BceWithLogits(const Tensor& x, const Tensor& label) {
  CheckSameShape(x, label);
  return at::clamp_min(x, 0) - x * label + at::log1p(at::exp(-at::abs(x)));
}

Two BceWithLogitsGrad(const Tensor& x, const Tensor& label, const Tensor& dout,
                      GradNeeds needs) {
  return {needs[0] ? dout * (at::sigmoid(x) - label) : Tensor(),
          needs[1] ? -dout * x : Tensor()};
}

// ---- of sequences

std::vector<int64_t> ToVector(const Tensor& lengths) {
  Tensor flat = lengths.reshape({-1}).to(at::kCPU, at::kLong).contiguous();
  const int64_t* begin = flat.const_data_ptr<int64_t>();
  return {begin, begin + flat.numel()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> Ctc(const Tensor& logits,
                                               const Tensor& label,
                                               const Tensor& logits_length,
                                               const Tensor& label_length,
                                               int64_t blank) {
  TORCH_CHECK(logits.dim() == 3 && label.dim() == 2, "shapes do not fit");
  // What stands behind a row's length is padding, and may be anything.
  Tensor wide = label.to(at::kLong);
  Tensor used = at::arange(label.size(1), wide.options()).unsqueeze(0) <
                label_length.to(wide.options()).reshape({-1, 1});
  CheckIndices("label", at::where(used, wide, at::zeros_like(wide)), 0,
               logits.size(2));
  Tensor log_probs = at::_log_softmax(logits, 2, false);
  auto [loss, alpha] =
      at::_ctc_loss(log_probs, label.to(at::kLong), ToVector(logits_length),
                    ToVector(label_length), blank, false);
  return {loss.clone(), log_probs, loss, alpha};
}

Tensor CtcGrad(const Tensor& label, const Tensor& logits_length,
               const Tensor& label_length, const Tensor& log_probs,
               const Tensor& likelihood, const Tensor& alpha,
               const Tensor& dloss, int64_t blank) {
  TORCH_CHECK(!Recording(), "ctc_loss has no second derivative");
  Tensor grad = at::_ctc_loss_backward(
      dloss, log_probs, label.to(at::kLong), ToVector(logits_length),
      ToVector(label_length), likelihood, alpha, blank, false);
  return at::_log_softmax_backward_data(grad, log_probs, 2,
                                        log_probs.scalar_type());
}

// ---- loss scaling

// Whether `count` floats from `x` on, times `factor` in `out`, are all finite.
bool Unscale(const float* x, float* out, int64_t count, float factor) {
  constexpr uint32_t kExponent = 0x7f800000;  // all set: infinite or NaN
  uint32_t bad = 0;
  for (int64_t i = 0; i < count; ++i) {
    bad |= static_cast<uint32_t>((std::bit_cast<uint32_t>(x[i]) & kExponent) ==
                                 kExponent);
    out[i] = x[i] * factor;
  }
  return bad == 0;
}

std::vector<Tensor> CheckFiniteAndUnscale(at::TensorList xs,
                                          const Tensor& scale) {
  const Tensor factor = scale.reciprocal().reshape({});
  std::vector<Tensor> out;
  bool finite = true;
  Tensor bad;  // of those that went through ATen
  for (const Tensor& x : xs) {
    TORCH_CHECK(x.defined(), "a gradient has no value");
    if (x.layout() == at::kStrided && FastOnCpu(x) && x.is_contiguous()) {
      out.push_back(at::empty_like(x));
      finite &= Unscale(x.const_data_ptr<float>(),
                        out.back().mutable_data_ptr<float>(), x.numel(),
                        factor.item<float>());
      continue;
    }
    const Tensor values = x.layout() == at::kSparse ? x._values() : x;
    const Tensor one = at::isfinite(values).all().logical_not();
    bad = bad.defined() ? bad.logical_or(one) : one;
    out.push_back(at::mul(x, factor).to(x.scalar_type()));
  }
  Tensor found = at::full({1}, !finite, scale.options().dtype(at::kBool));
  if (bad.defined()) found = found.logical_or(bad);
  out.push_back(std::move(found));
  return out;
}

// On a GPU the host waits for nothing.
std::vector<Tensor> UpdateLossScaling(at::TensorList xs, const Tensor& found,
                                      const Tensor& scaling,
                                      const Tensor& good_steps,
                                      const Tensor& bad_steps,
                                      const Tensor& stop, int64_t incr_every,
                                      int64_t decr_every, double incr_ratio,
                                      double decr_ratio, bool stop_update) {
  std::vector<Tensor> out;
  const Tensor is_bad = found.reshape({1});
  // Where the host may ask, a good step costs nothing.
  const bool known_good = found.device().is_cpu() && !found.item<bool>();
  for (const Tensor& x : xs) {
    if (known_good) {
      out.push_back(x);
    } else if (x.layout() == at::kSparse) {
      out.push_back(at::mul(x, is_bad.logical_not().reshape({}).to(x.dtype())));
    } else {
      out.push_back(at::where(is_bad, at::zeros_like(x), x));
    }
  }
  if (stop_update) {
    for (const Tensor* t : {&scaling, &good_steps, &bad_steps}) {
      out.push_back(t->clone());
    }
    return out;
  }
  const Tensor zero = at::zeros_like(good_steps);
  Tensor good = at::where(is_bad, zero, good_steps + 1);
  Tensor bad = at::where(is_bad, bad_steps + 1, zero);
  const Tensor grows = good >= incr_every, shrinks = bad >= decr_every;
  const Tensor larger = scaling * incr_ratio;
  Tensor next =
      at::where(grows.logical_and(at::isfinite(larger)), larger, scaling);
  next = at::where(shrinks, (scaling * decr_ratio).clamp_min(1.0), next);
  good = at::where(grows, zero, good);
  bad = at::where(shrinks, zero, bad);
  if (stop.defined()) {
    const Tensor stays = stop.reshape({1});
    next = at::where(stays, scaling, next);
    good = at::where(stays, good_steps, good);
    bad = at::where(stays, bad_steps, bad);
  }
  out.insert(out.end(), {std::move(next), std::move(good), std::move(bad)});
  return out;
}

Tensor LabelSmooth(const Tensor& x, const Tensor& prior, double epsilon) {
  if (prior.defined()) {
    return x * (1 - epsilon) + prior.reshape({-1}) * epsilon;
  }
  return x * (1 - epsilon) + epsilon / static_cast<double>(x.size(-1));
}

Two Huber(const Tensor& x, const Tensor& y, double delta) {
  Tensor r = y - x, size = at::abs(r);
  Tensor loss =
      at::where(size <= delta, r * r * 0.5, (size - delta * 0.5) * delta);
  return {loss, r};
}

Two HuberGrad(const Tensor& r, const Tensor& dout, double delta,
              GradNeeds needs) {
  Tensor dy = dout * r.clamp(-delta, delta);
  return {needs[0] ? -dy : Tensor(), needs[1] ? dy : Tensor()};
}

}  // namespace

void AddLossKernels(KernelTable& k) {
  k.Add<Mse, MseGrad>("mse_loss");
  k.OnMemory("mse_loss", MseForm, MseGradForm);
  k.Add<L1, L1Grad>("l1_loss");
  k.Add<SmoothL1, SmoothL1Grad>("smooth_l1");
  k.Add<KlDiv, KlDivGrad>("kldiv_loss");
  k.Add<LogLoss, LogLossGrad>("log_loss");
  k.Add<Bce, BceGrad>("bce_loss");
  k.Add<BceWithLogits, BceWithLogitsGrad>("sigmoid_cross_entropy_with_logits");
  k.Add<Ctc, CtcGrad>("warpctc");
  k.Add<CheckFiniteAndUnscale>("check_finite_and_unscale");
  k.Add<UpdateLossScaling>("update_loss_scaling");
  k.Add<LabelSmooth, [](const Tensor& dout, double epsilon) {
    return dout * (1 - epsilon);
  }>("label_smooth");
  k.Add<Huber, HuberGrad>("huber_loss");
}

}  // namespace fleet::ops
