// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <span>

#include "fleet/ops/gemm.h"

namespace fleet::ops {

bool GemmIsFast() { return false; }

void Gemm(const GemmShape& s, const float* a, const float* b, const float* bias,
          float* c) {
  for (int64_t i = 0; i < s.m; ++i) {
    float* row = c + i * s.n;
    for (int64_t j = 0; j < s.n; ++j) row[j] = bias != nullptr ? bias[j] : 0;
    for (int64_t l = 0; l < s.k; ++l) {
      float x = s.trans_a ? a[l * s.m + i] : a[i * s.k + l];
      for (int64_t j = 0; j < s.n; ++j) {
        row[j] += x * (s.trans_b ? b[j * s.k + l] : b[l * s.n + j]);
      }
    }
  }
}

struct PreparedGemm::Impl {
  GemmShape shape;
  bool has_bias;
  Activation activation;
};

PreparedGemm::PreparedGemm(const GemmShape& shape, bool has_bias,
                           Activation activation)
    : impl_(new Impl{shape, has_bias, activation}) {}
PreparedGemm::~PreparedGemm() = default;
PreparedGemm::PreparedGemm(PreparedGemm&&) noexcept = default;

void PreparedGemm::Run(const float* a, const float* b, const float* bias,
                       float* c) {
  const GemmShape& s = impl_->shape;
  Gemm(s, a, b, impl_->has_bias ? bias : nullptr, c);
  const std::span<float> all(c, static_cast<size_t>(s.m * s.n));
  switch (impl_->activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      for (float& x : all) x = x > 0 ? x : 0;
      return;
    case Activation::kTanh:
      for (float& x : all) x = std::tanh(x);
      return;
    case Activation::kSigmoid:
      for (float& x : all) x = 1 / (1 + std::exp(-x));
      return;
  }
}

}  // namespace fleet::ops
