// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/layout.h"
#include "fleet/ops/rows.h"

namespace fleet::ops {
namespace {

using at::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// ---- over bare memory: rows of channels

// Elements that are worth a thread of their own.
constexpr int64_t kPart = 32768;

// For each column the sum of what f(row, sums) adds to `sums`. Floats are added
// up over a few rows only, doubles above them, so that a sum is as near as a
// float can be. The order depends on the size alone: parts of the rows, which
// threads may take, and then their sums.
template <class F>
std::vector<double> SumRows(Matrix size, F f) {
  constexpr int64_t kStretch = 8;
  const int64_t n = size.columns;
  const int64_t rows = std::max<int64_t>(kPart / (n * kStretch), 1) * kStretch;
  const int64_t num_parts = (size.rows + rows - 1) / rows;
  std::vector<double> sums(num_parts * n);
  at::parallel_for(0, num_parts, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> few(n);
    for (int64_t p = begin; p < end; ++p) {
      double* to = sums.data() + p * n;
      const int64_t end_row = std::min((p + 1) * rows, size.rows);
      for (int64_t first = p * rows; first < end_row; first += kStretch) {
        std::fill(few.begin(), few.end(), 0.0f);
        const int64_t last = std::min(first + kStretch, end_row);
        for (int64_t r = first; r < last; ++r) f(r, few.data());
        for (int64_t c = 0; c < n; ++c) to[c] += few[c];
      }
    }
  });
  for (int64_t p = 1; p < num_parts; ++p) {
    for (int64_t c = 0; c < n; ++c) sums[c] += sums[p * n + c];
  }
  return sums;
}

template <class F>
void ForRows(Matrix size, F f) {
  at::parallel_for(0, size.rows, std::max<int64_t>(kPart / size.columns, 1),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t r = begin; r < end; ++r) f(r);
                   });
}

struct Norm {
  Matrix size;
  double momentum, epsilon;
};

// running = momentum * running + (1 - momentum) * batch; the variance is that
// of the batch itself, not an estimate from it.
void MoveRunning(float keep, float batch, float& running) {
  running = keep * running + (1 - keep) * batch;
}

void NormRows(const Norm& s, const float* x, const float* scale,
              const float* bias, float* running_mean, float* running_variance,
              float* y, float* saved_mean, float* saved_inverse) {
  const int64_t n = s.size.columns;
  const auto count = static_cast<double>(s.size.rows);
  std::vector<double> sums = SumRows(s.size, [&](int64_t r, float* few) {
    const float* row = x + r * n;
    for (int64_t c = 0; c < n; ++c) few[c] += row[c];
  });
  for (int64_t c = 0; c < n; ++c) {
    saved_mean[c] = static_cast<float>(sums[c] / count);
  }
  sums = SumRows(s.size, [&](int64_t r, float* few) {
    const float* row = x + r * n;
    for (int64_t c = 0; c < n; ++c) {
      const float d = row[c] - saved_mean[c];
      few[c] += d * d;
    }
  });
  const auto keep = static_cast<float>(s.momentum);
  std::vector<float> factor(n), shift(n);
  for (int64_t c = 0; c < n; ++c) {
    const double variance = sums[c] / count;
    saved_inverse[c] =
        static_cast<float>(1.0 / std::sqrt(variance + s.epsilon));
    MoveRunning(keep, saved_mean[c], running_mean[c]);
    MoveRunning(keep, static_cast<float>(variance), running_variance[c]);
    factor[c] = saved_inverse[c] * scale[c];
    shift[c] = bias[c] - saved_mean[c] * factor[c];
  }
  ForRows(s.size, [&](int64_t r) {
    const float* row = x + r * n;
    float* out = y + r * n;
    for (int64_t c = 0; c < n; ++c) out[c] = row[c] * factor[c] + shift[c];
  });
}

// dx = scale * inverse * (dy - mean(dy) - xhat * mean(dy * xhat)). Outputs that
// nobody wants are null.
void NormRowsGrad(Matrix size, const float* x, const float* scale,
                  const float* mean, const float* inverse, const float* dy,
                  float* dx, float* dscale, float* dbias) {
  const int64_t n = size.columns;
  const auto count = static_cast<double>(size.rows);
  std::vector<float> average(n), along(n);
  std::vector<double> sums = SumRows(size, [&](int64_t r, float* few) {
    const float* up = dy + r * n;
    for (int64_t c = 0; c < n; ++c) few[c] += up[c];
  });
  for (int64_t c = 0; c < n; ++c) {
    if (dbias != nullptr) dbias[c] = static_cast<float>(sums[c]);
    average[c] = static_cast<float>(sums[c] / count);
  }
  sums = SumRows(size, [&](int64_t r, float* few) {
    const float* up = dy + r * n;
    const float* row = x + r * n;
    for (int64_t c = 0; c < n; ++c) few[c] += up[c] * (row[c] - mean[c]);
  });
  for (int64_t c = 0; c < n; ++c) {
    const double dot = sums[c] * inverse[c];
    if (dscale != nullptr) dscale[c] = static_cast<float>(dot);
    along[c] = static_cast<float>(dot / count * inverse[c]);
  }
  if (dx == nullptr) return;
  ForRows(size, [&](int64_t r) {
    const float* up = dy + r * n;
    const float* row = x + r * n;
    float* out = dx + r * n;
    for (int64_t c = 0; c < n; ++c) {
      out[c] = scale[c] * inverse[c] *
               (up[c] - average[c] - (row[c] - mean[c]) * along[c]);
    }
  });
}

// ---- kernels

std::optional<Tensor> Maybe(const Tensor& x) {
  if (!x.defined()) return std::nullopt;
  return x;
}

float* Write(const Tensor& x) {
  return x.defined() ? x.mutable_data_ptr<float>() : nullptr;
}

// `x` as rows of channels, where its memory is that without turning it around.
std::optional<Matrix> AsRows(const Tensor& x, bool channels_last) {
  const int64_t channels = x.size(channels_last ? -1 : 1);
  if (x.numel() == 0 || !x.is_contiguous()) return std::nullopt;
  if (!channels_last && channels != 1 && x.numel() != x.size(0) * channels) {
    return std::nullopt;
  }
  return Matrix{x.numel() / channels, channels};
}

bool FastVectors(const Tensor& a, const Tensor& b, const Tensor& c) {
  return c.defined() && FastOnCpu(a, b, c) && a.is_contiguous() &&
         b.is_contiguous() && c.is_contiguous();
}

// What ATen gives is the inverse deviation; the running statistics are ours.
void UpdateRunning(const Tensor& mean, const Tensor& variance,
                   const Tensor& batch_mean, const Tensor& inverse,
                   double momentum, double epsilon) {
  if (!FastVectors(batch_mean, inverse, mean) || !FastOnCpu(variance) ||
      !variance.is_contiguous()) {
    Tensor batch_variance = (1 / (inverse * inverse) - epsilon).clamp_min(0);
    mean.mul_(momentum).add_(batch_mean.reshape(mean.sizes()), 1 - momentum);
    variance.mul_(momentum).add_(batch_variance.reshape(variance.sizes()),
                                 1 - momentum);
    return;
  }
  const auto keep = static_cast<float>(momentum);
  float* m = Write(mean);
  float* v = Write(variance);
  const float* batch = batch_mean.const_data_ptr<float>();
  const float* inv = inverse.const_data_ptr<float>();
  for (int64_t c = 0; c < mean.numel(); ++c) {
    const auto of_batch =
        static_cast<float>(1.0 / (double{inv[c]} * inv[c]) - epsilon);
    MoveRunning(keep, batch[c], m[c]);
    MoveRunning(keep, std::max(of_batch, 0.0f), v[c]);
  }
  mean.unsafeGetTensorImpl()->bump_version();
  variance.unsafeGetTensorImpl()->bump_version();
}

Three TrainRows(const Norm& norm, const Tensor& x, const Tensor& mean,
                const Tensor& variance, const Tensor& scale,
                const Tensor& bias) {
  Tensor y = at::empty(x.sizes(), x.options());
  Tensor batch_mean = at::empty(mean.sizes(), mean.options());
  Tensor inverse = at::empty(mean.sizes(), mean.options());
  NormRows(norm, x.const_data_ptr<float>(), scale.const_data_ptr<float>(),
           bias.const_data_ptr<float>(), Write(mean), Write(variance), Write(y),
           Write(batch_mean), Write(inverse));
  mean.unsafeGetTensorImpl()->bump_version();
  variance.unsafeGetTensorImpl()->bump_version();
  return {y, batch_mean, inverse};
}

Three BatchNorm(const Tensor& x, const Tensor& mean, const Tensor& variance,
                const Tensor& scale, const Tensor& bias, double momentum,
                double epsilon, bool is_test, bool use_global_stats,
                const std::string& data_layout) {
  bool last = program::ChannelsLast(data_layout);
  Tensor in = ChannelsFirst(x, last);
  TORCH_CHECK(in.dim() >= 2 && in.size(1) == mean.numel() &&
                  mean.numel() == variance.numel() &&
                  (!scale.defined() || scale.numel() == mean.numel()) &&
                  (!bias.defined() || bias.numel() == mean.numel()),
              "channels do not fit");
  if (is_test || use_global_stats) {
    auto [out, unused_mean, unused_deviation] =
        at::native_batch_norm(in, Maybe(scale), Maybe(bias), mean, variance,
                              false, 1 - momentum, epsilon);
    return {BackToLayout(out, last), mean.clone(), variance.clone()};
  }
  if (x.numel() == 0) {
    return {at::empty_like(x), at::zeros_like(mean), at::ones_like(mean)};
  }
  const auto size = AsRows(x, last);
  if (size && FastOnCpu(x) && FastVectors(mean, variance, scale) &&
      FastVectors(mean, variance, bias)) {
    return TrainRows({*size, momentum, epsilon}, x, mean, variance, scale,
                     bias);
  }
  auto [out, batch_mean, inverse] =
      at::native_batch_norm(in, Maybe(scale), Maybe(bias), std::nullopt,
                            std::nullopt, true, 1 - momentum, epsilon);
  UpdateRunning(mean, variance, batch_mean, inverse, momentum, epsilon);
  return {BackToLayout(out, last), batch_mean, inverse};
}

Three BatchNormGrad(const Tensor& x, const Tensor& scale,
                    const Tensor& saved_mean, const Tensor& saved_variance,
                    const Tensor& dout, double, double epsilon, bool is_test,
                    bool use_global_stats, const std::string& data_layout,
                    GradNeeds needs) {
  bool last = program::ChannelsLast(data_layout);
  bool training = !is_test && !use_global_stats;
  if (x.numel() == 0) {
    return {at::zeros_like(x), at::zeros_like(saved_mean),
            at::zeros_like(saved_mean)};
  }
  const auto size = AsRows(x, last);
  if (training && size && FastOnCpu(x, dout) &&
      FastVectors(saved_mean, saved_variance, scale)) {
    const auto dy = dout.expect_contiguous();
    Tensor dx = needs[0] ? at::empty(x.sizes(), x.options()) : Tensor();
    Tensor dscale = needs[1] ? at::empty_like(scale) : Tensor();
    Tensor dbias = needs[2] ? at::empty_like(scale) : Tensor();
    NormRowsGrad(
        *size, x.const_data_ptr<float>(), scale.const_data_ptr<float>(),
        saved_mean.const_data_ptr<float>(),
        saved_variance.const_data_ptr<float>(), dy->const_data_ptr<float>(),
        Write(dx), Write(dscale), Write(dbias));
    return {dx, dscale, dbias};
  }
  std::optional<Tensor> running_mean, running_variance, mean, inverse;
  if (training) {
    mean = saved_mean;
    inverse = saved_variance;
  } else {
    running_mean = saved_mean;
    running_variance = saved_variance;
    // On CUDA these two must be there, and say by their size that they are not.
    mean = inverse = at::empty({0}, x.options());
  }
  auto [dx, dscale, dbias] = at::native_batch_norm_backward(
      ChannelsFirst(dout, last), ChannelsFirst(x, last), Maybe(scale),
      running_mean, running_variance, mean, inverse, training, epsilon,
      {needs[0], needs[1], needs[2]});
  if (dx.defined()) dx = BackToLayout(dx, last);
  return {dx, dscale, dbias};
}

// ---- forms

bool IsChannelsLast(const BareCall& c) {
  return program::ChannelsLast(c.attr<std::string>("data_layout"));
}

// The rows of a norm in training, or of its gradient, whose types a form takes.
std::optional<Matrix> TrainedRows(const BareCall& c) {
  const int x = c.In(0), like_x = c.backward() ? c.In(4) : c.Out(0);
  if (c.attr<bool>("is_test") || c.attr<bool>("use_global_stats") ||
      !c.AreFloat({x, like_x}) || c.dims(x).size() < 2 || c.numel(x) == 0) {
    return std::nullopt;
  }
  const int64_t channels = IsChannelsLast(c) ? c.dims(x).back() : c.dims(x)[1];
  auto fits = [&](int value) {
    return c.IsFloat(value) && c.numel(value) == channels;
  };
  if (!fits(c.In(1)) || !fits(c.In(2)) || !fits(c.In(3))) return std::nullopt;
  if (!c.backward() && !(fits(c.In(4)) && fits(c.Out(1)) && fits(c.Out(2)))) {
    return std::nullopt;
  }
  return Matrix{c.numel(x) / channels, channels};
}

ImageLayout NormLayout(const BareCall& c) {
  return c.IsImage(c.In(0)) && !IsChannelsLast(c) && TrainedRows(c)
             ? ImageLayout::kChannelsLast
             : ImageLayout::kAsDefined;
}

// Whether all of these lie as rows of channels.
bool LieAsRows(const BareCall& c, std::initializer_list<int> values) {
  return IsChannelsLast(c) ||
         std::all_of(values.begin(), values.end(), [&](int value) {
           return value == kNone || c.HasChannelsLast(value);
         });
}

bool NormForm(BareCall& c) {
  const auto size = TrainedRows(c);
  const int x = c.In(0), mean = c.In(1), variance = c.In(2);
  const int scale = c.In(3), bias = c.In(4);
  const int y = c.Out(0), saved_mean = c.Out(1), inverse = c.Out(2);
  if (!size || !LieAsRows(c, {x, y})) return false;
  const Norm norm{*size, c.attr<double>("momentum"), c.attr<double>("epsilon")};
  return c.Run({x, mean, variance, scale, bias}, [=](void* const* m) {
    NormRows(norm, FloatIn(m, x), FloatIn(m, scale), FloatIn(m, bias),
             FloatOut(m, mean), FloatOut(m, variance), FloatOut(m, y),
             FloatOut(m, saved_mean), FloatOut(m, inverse));
  });
}

bool NormGradForm(BareCall& c) {
  const auto size = TrainedRows(c);
  const int x = c.In(0), scale = c.In(1), mean = c.In(2);
  const int inverse = c.In(3), dy = c.In(4);
  const int dx = c.Out(0), dscale = c.Out(1), dbias = c.Out(2);
  if (!size || !LieAsRows(c, {x, dy, dx})) return false;
  return c.Run({x, scale, mean, inverse, dy}, [=](void* const* m) {
    NormRowsGrad(*size, FloatIn(m, x), FloatIn(m, scale), FloatIn(m, mean),
                 FloatIn(m, inverse), FloatIn(m, dy), FloatOutOrNull(m, dx),
                 FloatOutOrNull(m, dscale), FloatOutOrNull(m, dbias));
  });
}

}  // namespace

void AddBatchNormKernels(KernelTable& k) {
  k.Add<BatchNorm, BatchNormGrad>("batch_norm");
  k.OnMemory("batch_norm", NormForm, NormGradForm, NormLayout);
}

}  // namespace fleet::ops
