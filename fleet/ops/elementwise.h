// SPDX-License-Identifier: Apache-2.0

// Element by element over bare floats: what kernels do with such tensors, and
// forms where types and shapes are known beforehand.

#ifndef FLEET_OPS_ELEMENTWISE_H_
#define FLEET_OPS_ELEMENTWISE_H_

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "fleet/ops/bare.h"
#include "fleet/ops/cpu_path.h"
#include "fleet/ops/spread.h"
#include "fleet/ops/sums.h"

namespace fleet::ops {

// f(begin, end) for parts of [0, n), in several threads if it is long.
template <class F>
void ForElements(int64_t n, F f) {
  constexpr int64_t kGrain = 32768;  // worth a thread of its own
  if (n <= kGrain) {
    f(int64_t{0}, n);
  } else {
    at::parallel_for(0, n, kGrain, f);
  }
}

// ---- small tensors of one shape
// There an ATen call spends most of its time before the first element: a scalar
// operand costs 2.5 us, a plain loop over ten floats 0.9, op call included.

// From here on ATen's own loops (wider vectors, several threads) win.
inline constexpr int64_t kSmallNumel = 4096;

// Whether Map() may take these: dense floats of one shape.
template <class First, class... Rest>
bool SmallOnCpu(const First& first, const Rest&... rest) {
  return FastOnCpu(first, rest...) && first.numel() <= kSmallNumel &&
         first.is_contiguous() &&
         (... && (rest.sizes() == first.sizes() && rest.is_contiguous()));
}

// out[i] = f(first[i], rest[i]...). SmallOnCpu(first, rest...) must hold.
template <class F, class First, class... Rest>
at::Tensor Map(F f, const First& first, const Rest&... rest) {
  at::Tensor out = at::empty(first.sizes(), first.options());
  const int64_t n = first.numel();
  float* to = out.mutable_data_ptr<float>();
  [&](const float* __restrict a, auto... b) {
    for (int64_t i = 0; i < n; ++i) to[i] = f(a[i], b[i]...);
  }(first.template const_data_ptr<float>(),
    rest.template const_data_ptr<float>()...);
  return out;
}

// ---- functions of one operand, and their gradients

// y[i] of x[i], and dx[i] of dy[i] and what the gradient rule names first. May
// work in place.
using OfOne = void (*)(const float* x, float* y, size_t n);
using OfTwo = void (*)(const float* x, const float* dy, float* dx, size_t n);

template <OfOne kFunction>
void Over(int64_t n, const float* x, float* y) {
  ForElements(n, [=](int64_t begin, int64_t end) {
    kFunction(x + begin, y + begin, end - begin);
  });
}
template <OfTwo kFunction>
void Over(int64_t n, const float* x, const float* dy, float* dx) {
  ForElements(n, [=](int64_t begin, int64_t end) {
    kFunction(x + begin, dy + begin, dx + begin, end - begin);
  });
}

// The function over tensors that FastOnCpu() takes.
template <OfOne kFunction>
at::Tensor Elements(const at::Tensor& x) {
  const at::Tensor in = x.is_non_overlapping_and_dense() ? x : x.contiguous();
  at::Tensor out = at::empty_like(in);
  Over<kFunction>(in.numel(), in.const_data_ptr<float>(),
                  out.mutable_data_ptr<float>());
  return out;
}
template <OfTwo kFunction>
at::Tensor Elements(const at::Tensor& x, const at::Tensor& dy) {
  const bool alike =
      x.is_non_overlapping_and_dense() && x.strides() == dy.strides();
  const at::Tensor a = alike ? x : x.contiguous();
  const at::Tensor b = alike ? dy : dy.contiguous();
  at::Tensor dx = at::empty_like(a);
  Over<kFunction>(a.numel(), a.const_data_ptr<float>(),
                  b.const_data_ptr<float>(), dx.mutable_data_ptr<float>());
  return dx;
}

template <OfOne kFunction>
bool ElementsForm(BareCall& c) {
  const int x = c.In(0), y = c.Out(0);
  if (!c.AreFloat({x, y}) || c.numel(x) != c.numel(y)) return false;
  return c.Run({x}, [=, n = c.numel(x)](void* const* m) {
    Over<kFunction>(n, FloatIn(m, x), FloatOut(m, y));
  });
}
template <OfTwo kFunction>
bool ElementsGradForm(BareCall& c) {
  const int x = c.In(0), dy = c.In(1), dx = c.Out(0);
  if (!c.AreFloat({x, dy, dx}) || c.numel(x) != c.numel(dy) ||
      c.numel(dx) != c.numel(dy)) {
    return false;
  }
  return c.Run({x, dy}, [=, n = c.numel(x)](void* const* m) {
    Over<kFunction>(n, FloatIn(m, x), FloatIn(m, dy), FloatOut(m, dx));
  });
}

// The layout rule of a function of one operand.
inline ImageLayout AnyLayout(const BareCall&) { return ImageLayout::kAny; }

// x * factor + bias, or (x + bias) * factor.
struct Affine {
  float factor, bias;
  bool bias_after;

  void operator()(int64_t n, const float* x, float* y) const {
    const float f = factor, b = bias;
    ForElements(n, [=, after = bias_after](int64_t begin, int64_t end) {
      if (b == 0) {  // adding it would make a negative zero another one
        for (int64_t i = begin; i < end; ++i) y[i] = x[i] * f;
      } else if (after) {
        for (int64_t i = begin; i < end; ++i) y[i] = x[i] * f + b;
      } else {
        for (int64_t i = begin; i < end; ++i) y[i] = (x[i] + b) * f;
      }
    });
  }
};

// ---- functions of two operands, of which one may be spread over the other

struct AddOp {
  float operator()(float x, float y) const { return x + y; }
};
struct SubtractOp {
  float operator()(float x, float y) const { return x - y; }
};
struct MultiplyOp {
  float operator()(float x, float y) const { return x * y; }
};

// out = f(x, y spread like s).
template <class F>
void Combine(const Spread& s, F f, const float* x, const float* y, float* out) {
  if (s.same()) {
    ForElements(s.middle, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = f(x[i], y[i]);
    });
    return;
  }
  for (int64_t o = 0; o < s.outer; ++o) {
    if (s.inner == 1) {
      const int64_t row = o * s.middle;
      for (int64_t j = 0; j < s.middle; ++j) out[row + j] = f(x[row + j], y[j]);
      continue;
    }
    for (int64_t j = 0; j < s.middle; ++j) {
      const int64_t row = (o * s.middle + j) * s.inner;
      const float value = y[j];
      for (int64_t i = 0; i < s.inner; ++i) out[row + i] = f(x[row + i], value);
    }
  }
}

// sums[j] = the sum of f(i) over the elements i of X that element j of Y was
// spread over.
template <class F>
void Collect(const Spread& s, F f, float* sums) {
  if (s.same()) {
    for (int64_t j = 0; j < s.middle; ++j) sums[j] = f(j);
    return;
  }
  if (s.inner == 1) {  // whole rows at a time
    std::fill_n(sums, s.middle, 0.0f);
    for (int64_t o = 0; o < s.outer; ++o) {
      const int64_t row = o * s.middle;
      for (int64_t j = 0; j < s.middle; ++j) sums[j] += f(row + j);
    }
    return;
  }
  for (int64_t j = 0; j < s.middle; ++j) {
    double sum = 0;
    for (int64_t o = 0; o < s.outer; ++o) {
      const int64_t row = (o * s.middle + j) * s.inner;
      sum += SumOf(s.inner, [=](int64_t i) { return f(row + i); });
    }
    sums[j] = static_cast<float>(sum);
  }
}

}  // namespace fleet::ops

#endif  // FLEET_OPS_ELEMENTWISE_H_
