// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "fleet/exec/direct.h"
#include "fleet/exec/plan_layout.h"

// Batch norm of images with the channels last: rows of channels.

namespace fleet::exec {
namespace {

// sums[c] = the sum of f(row, c) over all rows. Floats are added up over a few
// rows only, doubles above them, so that a sum is as near as a float can be.
template <class F>
void SumRows(int64_t rows, int64_t channels, std::vector<float>& part,
             std::vector<double>& sums, F f) {
  constexpr int64_t kStretch = 8;
  std::fill(sums.begin(), sums.end(), 0.0);
  for (int64_t first = 0; first < rows; first += kStretch) {
    std::fill(part.begin(), part.end(), 0.0f);
    const int64_t last = std::min(first + kStretch, rows);
    for (int64_t r = first; r < last; ++r) f(r, part.data());
    for (int64_t c = 0; c < channels; ++c) sums[c] += part[c];
  }
}

struct Scratch {
  explicit Scratch(int64_t channels)
      : part(channels), a(channels), b(channels), sums(channels) {}
  std::vector<float> part, a, b;
  std::vector<double> sums;
};

struct Norm {
  int64_t rows, channels;
  double momentum, epsilon;
};

void Forward(const Norm& s, Scratch& scratch, const float* x,
             const float* scale, const float* bias, float* running_mean,
             float* running_variance, float* y, float* saved_mean,
             float* saved_inverse) {
  const int64_t channels = s.channels;
  const auto count = static_cast<double>(s.rows);
  SumRows(s.rows, channels, scratch.part, scratch.sums,
          [&](int64_t r, float* part) {
            const float* row = x + r * channels;
            for (int64_t c = 0; c < channels; ++c) part[c] += row[c];
          });
  for (int64_t c = 0; c < channels; ++c) {
    saved_mean[c] = static_cast<float>(scratch.sums[c] / count);
  }
  SumRows(s.rows, channels, scratch.part, scratch.sums,
          [&](int64_t r, float* part) {
            const float* row = x + r * channels;
            for (int64_t c = 0; c < channels; ++c) {
              const float d = row[c] - saved_mean[c];
              part[c] += d * d;
            }
          });
  const auto keep = static_cast<float>(s.momentum);
  for (int64_t c = 0; c < channels; ++c) {
    const double variance = scratch.sums[c] / count;
    saved_inverse[c] =
        static_cast<float>(1.0 / std::sqrt(variance + s.epsilon));
    running_mean[c] = keep * running_mean[c] + (1 - keep) * saved_mean[c];
    running_variance[c] =
        keep * running_variance[c] + (1 - keep) * static_cast<float>(variance);
    scratch.a[c] = saved_inverse[c] * scale[c];
    scratch.b[c] = bias[c] - saved_mean[c] * scratch.a[c];
  }
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* row = x + r * channels;
    float* out = y + r * channels;
    for (int64_t c = 0; c < channels; ++c) {
      out[c] = row[c] * scratch.a[c] + scratch.b[c];
    }
  }
}

// dx = scale * inverse * (dy - mean(dy) - xhat * mean(dy * xhat)).
void Backward(const Norm& s, Scratch& scratch, const float* x,
              const float* scale, const float* mean, const float* inverse,
              const float* dy, float* dx, float* dscale, float* dbias) {
  const int64_t channels = s.channels;
  const auto count = static_cast<double>(s.rows);
  SumRows(s.rows, channels, scratch.part, scratch.sums,
          [&](int64_t r, float* part) {
            const float* up = dy + r * channels;
            for (int64_t c = 0; c < channels; ++c) part[c] += up[c];
          });
  for (int64_t c = 0; c < channels; ++c) {
    if (dbias != nullptr) dbias[c] = static_cast<float>(scratch.sums[c]);
    scratch.b[c] = static_cast<float>(scratch.sums[c] / count);
  }
  SumRows(s.rows, channels, scratch.part, scratch.sums,
          [&](int64_t r, float* part) {
            const float* up = dy + r * channels;
            const float* row = x + r * channels;
            for (int64_t c = 0; c < channels; ++c) {
              part[c] += up[c] * (row[c] - mean[c]);
            }
          });
  for (int64_t c = 0; c < channels; ++c) {
    const double dot = scratch.sums[c] * inverse[c];
    if (dscale != nullptr) dscale[c] = static_cast<float>(dot);
    scratch.a[c] = static_cast<float>(dot / count * inverse[c]);
  }
  if (dx == nullptr) return;
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* up = dy + r * channels;
    const float* row = x + r * channels;
    float* out = dx + r * channels;
    for (int64_t c = 0; c < channels; ++c) {
      out[c] = scale[c] * inverse[c] *
               (up[c] - scratch.b[c] - (row[c] - mean[c]) * scratch.a[c]);
    }
  }
}

Norm SizeOf(const Graph& g, const Node& n, int x) {
  const int64_t channels = g.dims(x)[1];
  return {g.numel(x) / channels, channels, g.attr<double>(n, "momentum"),
          g.attr<double>(n, "epsilon")};
}

bool MakeNorm(Graph& g, int node) {
  Node& n = g.nodes[node];
  if (!IsTrainingNorm(g, n)) return false;
  const int x = g.In(n, 0), mean = g.In(n, 1), variance = g.In(n, 2);
  const int scale = g.In(n, 3), bias = g.In(n, 4);
  const int y = g.Out(n, 0), saved_mean = g.Out(n, 1), inverse = g.Out(n, 2);
  if (!LiesLast(g, x) || !LiesLast(g, y)) return false;
  g.Reads(node, {x, mean, variance, scale, bias});
  const Norm size = SizeOf(g, n, x);
  auto scratch = std::make_shared<Scratch>(size.channels);
  n.direct = [=](void* const* m) {
    Forward(size, *scratch, FloatIn(m, x), FloatIn(m, scale), FloatIn(m, bias),
            FloatOut(m, mean), FloatOut(m, variance), FloatOut(m, y),
            FloatOut(m, saved_mean), FloatOut(m, inverse));
  };
  return true;
}

bool MakeNormGrad(Graph& g, int node) {
  Node& n = g.nodes[node];
  if (!IsTrainingNorm(g, n)) return false;
  const int x = g.In(n, 0), scale = g.In(n, 1), mean = g.In(n, 2);
  const int inverse = g.In(n, 3), dy = g.In(n, 4);
  const int dx = g.Out(n, 0), dscale = g.Out(n, 1), dbias = g.Out(n, 2);
  if (!LiesLast(g, x) || !LiesLast(g, dy) ||
      (dx != kNone && !LiesLast(g, dx))) {
    return false;
  }
  g.Reads(node, {x, scale, mean, inverse, dy});
  const Norm size = SizeOf(g, n, x);
  auto scratch = std::make_shared<Scratch>(size.channels);
  n.direct = [=](void* const* m) {
    auto maybe = [&](int value) {
      return value == kNone ? nullptr : FloatOut(m, value);
    };
    Backward(size, *scratch, FloatIn(m, x), FloatIn(m, scale), FloatIn(m, mean),
             FloatIn(m, inverse), FloatIn(m, dy), maybe(dx), maybe(dscale),
             maybe(dbias));
  };
  return true;
}

}  // namespace

void AddNormForms(DirectForms& forms) {
  forms["batch_norm"] = MakeNorm;
  forms["batch_norm_grad"] = MakeNormGrad;
}

}  // namespace fleet::exec
