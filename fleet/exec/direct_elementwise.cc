// SPDX-License-Identifier: Apache-2.0

// Elementwise operations that stand alone; those beside each other become
// chains (plan_chains.cc). A chain of one is as fast, but for LinearNet, whose
// gradients of biases take 5 % of its step more. What keeps these forms is what
// chains refuse (operands that share memory under several names), and that
// FuseFc and FuseConv take an operation that has one.

#include <algorithm>
#include <cstring>

#include <ATen/Parallel.h>

#include "fleet/base/simd.h"
#include "fleet/exec/direct.h"
#include "fleet/exec/spread.h"

namespace fleet::exec {
namespace {

// Fewer elements than this are not worth a thread of their own.
constexpr int64_t kGrain = 32768;

template <class F>
void Split(int64_t n, F f) {
  if (n <= kGrain) {
    f(int64_t{0}, n);
  } else {
    at::parallel_for(0, n, kGrain, f);
  }
}

// ---- one operand

using Unary = void (*)(const float* x, float* y, size_t n);
using UnaryGrad = void (*)(const float* y, const float* dy, float* dx,
                           size_t n);

void Relu(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float a = x[i];
    y[i] = a <= 0 ? 0 : a;  // a NaN stays one
  }
}

// Reads both before it asks: a load under a condition makes no vector code.
void ReluGrad(const float* y, const float* dy, float* dx, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float out = y[i], up = dy[i];
    dx[i] = out <= 0 ? 0 : up;
  }
}

void Square(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = x[i] * x[i];
}

void SquareGrad(const float* x, const float* dy, float* dx, size_t n) {
  for (size_t i = 0; i < n; ++i) dx[i] = 2 * x[i] * dy[i];
}

template <Unary kFunction>
bool MakeUnary(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int x = g.In(n, 0), y = g.Out(n, 0);
  if (!g.AreFloat({x, y}) || g.numel(x) != g.numel(y)) return false;
  g.Reads(node, {x});
  n.direct = [x, y, size = g.numel(x)](void* const* m) {
    const float* from = FloatIn(m, x);
    float* to = FloatOut(m, y);
    Split(size, [&](int64_t begin, int64_t end) {
      kFunction(from + begin, to + begin, end - begin);
    });
  };
  return true;
}

// Reads what the gradient rule names first (X or Out), and Out'.
template <UnaryGrad kFunction>
bool MakeUnaryGrad(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int y = g.In(n, 0), dy = g.In(n, 1), dx = g.Out(n, 0);
  if (!g.AreFloat({y, dy, dx}) || g.numel(y) != g.numel(dy) ||
      g.numel(dx) != g.numel(dy)) {
    return false;
  }
  g.Reads(node, {y, dy});
  n.direct = [y, dy, dx, size = g.numel(y)](void* const* m) {
    const float* out = FloatIn(m, y);
    const float* up = FloatIn(m, dy);
    float* to = FloatOut(m, dx);
    Split(size, [&](int64_t begin, int64_t end) {
      kFunction(out + begin, up + begin, to + begin, end - begin);
    });
  };
  return true;
}

// y = x * factor + bias, or (x + bias) * factor.
void MakeAffine(Graph& g, int node, int x, int y, float factor, float bias,
                bool bias_after) {
  g.Reads(node, {x});
  g.nodes[node].direct = [=, size = g.numel(x)](void* const* m) {
    const float* from = FloatIn(m, x);
    float* to = FloatOut(m, y);
    Split(size, [&](int64_t begin, int64_t end) {
      if (bias_after) {
        for (int64_t i = begin; i < end; ++i) to[i] = from[i] * factor + bias;
      } else {
        for (int64_t i = begin; i < end; ++i) to[i] = (from[i] + bias) * factor;
      }
    });
  };
}

bool MakeScale(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int x = g.In(n, 0), y = g.Out(n, 0);
  if (n.kernel->slot_end.size() != 1 || !g.AreFloat({x, y})) return false;
  MakeAffine(g, node, x, y, static_cast<float>(g.attr<double>(n, "scale")),
             static_cast<float>(g.attr<double>(n, "bias")),
             g.attr<bool>(n, "bias_after_scale"));
  return true;
}

bool MakeScaleGrad(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int dy = g.In(n, 0), dx = g.Out(n, 0);
  if (n.kernel->slot_end.size() != 1 || !g.AreFloat({dy, dx})) return false;
  const auto factor = static_cast<float>(g.attr<double>(n, "scale"));
  const Value& up = g.values[dy];
  if (up.origin == Value::kConstant && !g.values[dx].pinned) {
    g.MakeConstant(node, dx, up.constant * factor);
    return true;
  }
  MakeAffine(g, node, dy, dx, factor, 0, true);
  return true;
}

// ---- two operands

struct Add {
  static float Of(float x, float y) { return x + y; }
};
struct Sub {
  static float Of(float x, float y) { return x - y; }
};
struct Mul {
  static float Of(float x, float y) { return x * y; }
};

// out = f(x, y spread like s).
template <class F>
void Combine(const Spread& s, const float* x, const float* y, float* out) {
  if (s.same()) {
    Split(s.middle, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = F::Of(x[i], y[i]);
    });
    return;
  }
  for (int64_t o = 0; o < s.outer; ++o) {
    if (s.inner == 1) {
      const int64_t row = o * s.middle;
      for (int64_t j = 0; j < s.middle; ++j) {
        out[row + j] = F::Of(x[row + j], y[j]);
      }
      continue;
    }
    for (int64_t j = 0; j < s.middle; ++j) {
      const int64_t row = (o * s.middle + j) * s.inner;
      const float value = y[j];
      for (int64_t i = 0; i < s.inner; ++i) {
        out[row + i] = F::Of(x[row + i], value);
      }
    }
  }
}

// sums = the parts of f(i), i over X, that belong to each element of Y.
template <class F>
void Collect(const Spread& s, float* sums, F f) {
  if (s.same()) {
    for (int64_t j = 0; j < s.middle; ++j) sums[j] = f(j);
    return;
  }
  std::fill_n(sums, s.middle, 0.0f);
  if (s.inner == 1) {  // whole rows at a time
    for (int64_t o = 0; o < s.outer; ++o) {
      const int64_t row = o * s.middle;
      for (int64_t j = 0; j < s.middle; ++j) sums[j] += f(row + j);
    }
    return;
  }
  for (int64_t o = 0; o < s.outer; ++o) {
    for (int64_t j = 0; j < s.middle; ++j) {
      const int64_t row = (o * s.middle + j) * s.inner;
      // Several sums at a time: one would wait for itself at every element.
      constexpr int64_t kParts = 16;
      float parts[kParts] = {};
      int64_t i = 0;
      for (; i + kParts <= s.inner; i += kParts) {
        for (int64_t k = 0; k < kParts; ++k) parts[k] += f(row + i + k);
      }
      float sum = 0;
      for (float part : parts) sum += part;
      for (; i < s.inner; ++i) sum += f(row + i);
      sums[j] += sum;
    }
  }
}

template <class F>
bool MakeBinary(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int x = g.In(n, 0), y = g.In(n, 1), out = g.Out(n, 0);
  const auto spread = ReadSpread(g, n, x, y, out);
  if (!spread) return false;
  g.Reads(node, {x, y});
  n.direct = [x, y, out, s = *spread](void* const* m) {
    Combine<F>(s, FloatIn(m, x), FloatIn(m, y), FloatOut(m, out));
  };
  return true;
}

// dX = dOut and dY = sign * dOut, summed where Y was spread.
template <int kSign>
bool MakeSumGrad(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int x = g.In(n, 0), y = g.In(n, 1), dout = g.In(n, 2);
  const int dx = g.Out(n, 0), dy = g.Out(n, 1);
  const auto spread = ReadSpread(g, n, x, y, dout);
  if (!spread || (dx != kNone && !g.AreFloat({dx})) ||
      (dy != kNone && !g.AreFloat({dy}))) {
    return false;
  }
  g.Reads(node, {dout});
  const bool copy_x = dx != kNone && !g.Share(dx, dout);
  bool make_y = dy != kNone;
  if (make_y && spread->same() && kSign == 1 && g.Share(dy, dout)) {
    make_y = false;
  }
  if (!copy_x && !make_y) {
    n.direct = [](void* const*) {};
    return true;
  }
  n.direct = [=, s = *spread](void* const* m) {
    const float* up = FloatIn(m, dout);
    if (copy_x) {
      std::memcpy(FloatOut(m, dx), up, s.numel() * sizeof(float));
    }
    if (!make_y) return;
    Collect(s, FloatOut(m, dy),
            [up](int64_t i) { return static_cast<float>(kSign) * up[i]; });
  };
  return true;
}

bool MakeMulGrad(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int x = g.In(n, 0), y = g.In(n, 1), dout = g.In(n, 2);
  const int dx = g.Out(n, 0), dy = g.Out(n, 1);
  const auto spread = ReadSpread(g, n, x, y, dout);
  if (!spread || (dx != kNone && !g.AreFloat({dx})) ||
      (dy != kNone && !g.AreFloat({dy}))) {
    return false;
  }
  g.Reads(node, {dout, dx == kNone ? kNone : y, dy == kNone ? kNone : x});
  n.direct = [=, s = *spread](void* const* m) {
    const float* up = FloatIn(m, dout);
    if (dx != kNone) Combine<Mul>(s, up, FloatIn(m, y), FloatOut(m, dx));
    if (dy != kNone) {
      const float* from = FloatIn(m, x);
      Collect(s, FloatOut(m, dy),
              [up, from](int64_t i) { return up[i] * from[i]; });
    }
  };
  return true;
}

// ---- many operands

bool MakeSum(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int out = g.Out(n, 0);
  if (n.inputs.empty() || !g.AreFloat({out}) || !g.AreFloat(n.inputs)) {
    return false;
  }
  for (int x : n.inputs) {
    if (g.numel(x) != g.numel(out)) return false;
  }
  g.Reads(node, n.inputs);
  n.direct = [parts = n.inputs, out, size = g.numel(out)](void* const* m) {
    float* to = FloatOut(m, out);
    Split(size, [&](int64_t begin, int64_t end) {
      std::copy(FloatIn(m, parts[0]) + begin, FloatIn(m, parts[0]) + end,
                to + begin);
      for (size_t k = 1; k < parts.size(); ++k) {
        const float* from = FloatIn(m, parts[k]);
        for (int64_t i = begin; i < end; ++i) to[i] += from[i];
      }
    });
  };
  return true;
}

// Every part gets the gradient of the sum.
bool MakePartsGrad(Graph& g, int node) {
  Node& n = g.nodes[node];
  if (n.inputs.empty()) return false;
  const int dout = n.inputs.back();
  std::vector<int> copies;
  for (int part : n.outputs) {
    if (part != kNone &&
        (!g.AreFloat({part, dout}) || g.numel(part) != g.numel(dout))) {
      return false;
    }
  }
  for (int part : n.outputs) {
    if (part != kNone && !g.Share(part, dout)) copies.push_back(part);
  }
  g.Reads(node, {dout});
  n.direct = [copies, dout,
              bytes = g.numel(dout) * sizeof(float)](void* const* m) {
    for (int part : copies) std::memcpy(m[part], m[dout], bytes);
  };
  return true;
}

}  // namespace

void AddElementwiseForms(DirectForms& forms) {
  forms["relu"] = MakeUnary<Relu>;
  forms["relu_grad"] = MakeUnaryGrad<ReluGrad>;
  forms["tanh"] = MakeUnary<base::Tanh>;
  forms["tanh_grad"] = MakeUnaryGrad<base::TanhGrad>;
  forms["sigmoid"] = MakeUnary<base::Sigmoid>;
  forms["sigmoid_grad"] = MakeUnaryGrad<base::SigmoidGrad>;
  forms["square"] = MakeUnary<Square>;
  forms["square_grad"] = MakeUnaryGrad<SquareGrad>;
  forms["scale"] = MakeScale;
  forms["scale_grad"] = MakeScaleGrad;
  forms["elementwise_add"] = MakeBinary<Add>;
  forms["elementwise_add_grad"] = MakeSumGrad<1>;
  forms["elementwise_sub"] = MakeBinary<Sub>;
  forms["elementwise_sub_grad"] = MakeSumGrad<-1>;
  forms["elementwise_mul"] = MakeBinary<Mul>;
  forms["elementwise_mul_grad"] = MakeMulGrad;
  forms["sum"] = MakeSum;
  forms["sum_grad"] = MakePartsGrad;
}

}  // namespace fleet::exec
