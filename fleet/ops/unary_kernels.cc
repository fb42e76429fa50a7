// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/relu.h>
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
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/trunc.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/base/simd.h"
#include "fleet/base/simd_blocks.h"
#include "fleet/ops/cpu_path.h"
#include "fleet/ops/elementwise.h"
#include "fleet/ops/kernels.h"

namespace fleet::ops {
namespace {

using at::Tensor;

// An operation that chains are made of, too.
template <base::BlockOp kOp>
void Block(const float* x, float* y, size_t n) {
  static const base::BlockFunction function = base::FindBlockFunction(kOp);
  function({.a = x, .out = y, .size = n});
}
template <base::BlockOp kOp>
void BlockGrad(const float* x, const float* dy, float* dx, size_t n) {
  static const base::BlockFunction function = base::FindBlockFunction(kOp);
  function({.a = x, .b = dy, .out = dx, .size = n});
}

Tensor Tanh(const Tensor& x) {
  return FastOnCpu(x) ? Elements<base::Tanh>(x) : at::tanh(x);
}
Tensor TanhGrad(const Tensor& out, const Tensor& dout) {
  return FastOnCpu(out, dout) ? Elements<base::TanhGrad>(out, dout)
                              : at::tanh_backward(dout, out);
}

Tensor Sigmoid(const Tensor& x) {
  return FastOnCpu(x) ? Elements<base::Sigmoid>(x) : at::sigmoid(x);
}
Tensor SigmoidGrad(const Tensor& out, const Tensor& dout) {
  return FastOnCpu(out, dout) ? Elements<base::SigmoidGrad>(out, dout)
                              : at::sigmoid_backward(dout, out);
}

Tensor Exp(const Tensor& x) {
  return FastOnCpu(x) ? Elements<base::Exp>(x) : at::exp(x);
}

constexpr OfOne kRelu = Block<base::BlockOp::kRelu>;
constexpr OfTwo kReluGrad = BlockGrad<base::BlockOp::kReluGrad>;

Tensor Relu(const Tensor& x) {
  return FastOnCpu(x) ? Elements<kRelu>(x) : at::relu(x);
}
Tensor ReluGrad(const Tensor& out, const Tensor& dout) {
  return FastOnCpu(out, dout) ? Elements<kReluGrad>(out, dout)
                              : at::threshold_backward(dout, out, 0);
}

constexpr OfOne kSquare = Block<base::BlockOp::kSquare>;

void FloatSquareGrad(const float* x, const float* dy, float* dx, size_t n) {
  for (size_t i = 0; i < n; ++i) dx[i] = 2 * x[i] * dy[i];
}

Tensor Square(const Tensor& x) {
  return FastOnCpu(x) ? Elements<kSquare>(x) : x * x;
}
Tensor SquareGrad(const Tensor& x, const Tensor& dout) {
  return FastOnCpu(x, dout) ? Elements<FloatSquareGrad>(x, dout) : 2 * x * dout;
}

Tensor MishGrad(const Tensor& x, const Tensor& dout) {
  Tensor t = at::tanh(at::softplus(x)), s = at::sigmoid(x);
  return dout * (t + x * s * (1 - t * t));
}

Tensor SiluGrad(const Tensor& x, const Tensor& dout) {
  Tensor s = at::sigmoid(x);
  return dout * (s * (1 + x * (1 - s)));
}

void FloatSoftsign(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = x[i] / (1 + std::fabs(x[i]));
}

void FloatSoftsignGrad(const float* x, const float* dy, float* dx, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float d = 1 + std::fabs(x[i]);
    dx[i] = dy[i] / (d * d);
  }
}

Tensor Softsign(const Tensor& x) {
  return FastOnCpu(x) ? Elements<FloatSoftsign>(x) : x / (1 + x.abs());
}

Tensor SoftsignGrad(const Tensor& x, const Tensor& dout) {
  if (FastOnCpu(x, dout)) return Elements<FloatSoftsignGrad>(x, dout);
  Tensor d = 1 + x.abs();
  return dout / (d * d);
}

Tensor Stanh(const Tensor& x, double a, double b) {
  return at::tanh(x * a) * b;
}
Tensor StanhGrad(const Tensor& out, const Tensor& dout, double a, double b) {
  return dout * (a * b - (a / b) * out * out);
}

Tensor NanToNum(const Tensor& x, double nan, double posinf, double neginf) {
  return at::nan_to_num(x, nan, posinf, neginf);
}
Tensor NanToNumGrad(const Tensor& x, const Tensor& dout, double, double,
                    double) {
  return dout * at::isfinite(x);
}

// Halves go away from zero; ATen's go to the even neighbour.
Tensor Round(const Tensor& x) {
  if (!x.is_floating_point()) return x.clone();
  Tensor near = at::round(x);
  Tensor half = at::eq(at::abs(x - near), 0.5);
  return at::where(half, at::trunc(x) + at::sign(x), near);
}

// ATen takes the square root from MKL where LibTorch comes with it, whose
// result is not the nearest number in one case of six. A norm is one number: it
// is that of an optimizer which clips by it.
Tensor Sqrt(const Tensor& x) {
  if (SmallOnCpu(x)) return Map([](float a) { return std::sqrt(a); }, x);
  if (x.scalar_type() == at::kDouble && x.numel() == 1 && x.device().is_cpu() &&
      !Recording()) {
    return at::full(x.sizes(), std::sqrt(x.item<double>()), x.options());
  }
  return at::sqrt(x);
}

Tensor NoGradient(const Tensor& dout) { return at::zeros_like(dout); }

}  // namespace

void AddUnaryKernels(KernelTable& k) {
  k.Add<Tanh, TanhGrad>("tanh");
  k.Add<Sigmoid, SigmoidGrad>("sigmoid");
  k.Add<Exp, [](const Tensor& y, const Tensor& dy) { return dy * y; }>("exp");
  k.Add<Relu, ReluGrad>("relu");
  k.Add<Sqrt, [](const Tensor& y, const Tensor& dy) { return dy / (2 * y); }>(
      "sqrt");
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
  k.Add<Square, SquareGrad>("square");
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
  k.Add<Softsign, SoftsignGrad>("softsign");
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
  k.Add<Round, NoGradient>("round");
  k.Add<[](const Tensor& x) { return at::trunc(x); }, NoGradient>("trunc");
  k.Add<Stanh, StanhGrad>("stanh");
  k.Add<NanToNum, NanToNumGrad>("nan_to_num");
  k.Add<[](const Tensor& x) { return at::isnan(x); }>("isnan_v2");
  k.Add<[](const Tensor& x) { return at::isinf(x); }>("isinf_v2");
  k.Add<[](const Tensor& x) { return at::isfinite(x); }>("isfinite_v2");

  k.OnMemory("tanh", ElementsForm<base::Tanh>, ElementsGradForm<base::TanhGrad>,
             AnyLayout);
  k.OnMemory("sigmoid", ElementsForm<base::Sigmoid>,
             ElementsGradForm<base::SigmoidGrad>, AnyLayout);
  k.OnMemory("relu", ElementsForm<kRelu>, ElementsGradForm<kReluGrad>,
             AnyLayout);
  k.OnMemory("softsign", ElementsForm<FloatSoftsign>,
             ElementsGradForm<FloatSoftsignGrad>, AnyLayout);
  k.OnMemory("square", ElementsForm<kSquare>, ElementsGradForm<FloatSquareGrad>,
             AnyLayout);
}

}  // namespace fleet::ops
