// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/gemm.h"

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace fleet::ops {
namespace {

std::vector<float> Random(size_t n, unsigned seed) {
  std::mt19937 gen(seed);
  std::uniform_real_distribution<float> dist(-1, 1);
  std::vector<float> v(n);
  for (float& x : v) x = dist(gen);
  return v;
}

TEST(Gemm, AgreesWithTheDefinitionForEveryTransposition) {
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      for (bool with_bias : {false, true}) {
        GemmShape s{.m = 7, .n = 5, .k = 9, .trans_a = ta, .trans_b = tb};
        auto a = Random(s.m * s.k, 1), b = Random(s.k * s.n, 2);
        auto bias = Random(s.n, 3);
        std::vector<float> c(s.m * s.n, 100.0f);
        Gemm(s, a.data(), b.data(), with_bias ? bias.data() : nullptr,
             c.data());
        for (int64_t i = 0; i < s.m; ++i) {
          for (int64_t j = 0; j < s.n; ++j) {
            double want = with_bias ? bias[j] : 0;
            for (int64_t l = 0; l < s.k; ++l) {
              want += double(ta ? a[l * s.m + i] : a[i * s.k + l]) *
                      (tb ? b[j * s.k + l] : b[l * s.n + j]);
            }
            EXPECT_NEAR(c[i * s.n + j], want, 1e-5);
          }
        }
      }
    }
  }
}

TEST(PreparedGemm, AppliesTheActivationAfterTheBias) {
  const GemmShape s{.m = 6, .n = 17, .k = 11, .trans_b = true};
  auto a = Random(s.m * s.k, 1), b = Random(s.k * s.n, 2),
       bias = Random(s.n, 3);
  std::vector<float> plain(s.m * s.n);
  Gemm(s, a.data(), b.data(), bias.data(), plain.data());
  const std::pair<Activation, float (*)(float)> cases[] = {
      {Activation::kNone, [](float x) { return x; }},
      {Activation::kRelu, [](float x) { return x > 0 ? x : 0; }},
      {Activation::kTanh, [](float x) { return std::tanh(x); }},
      {Activation::kSigmoid, [](float x) { return 1 / (1 + std::exp(-x)); }}};
  for (const auto& [activation, function] : cases) {
    PreparedGemm gemm(s, /*has_bias=*/true, activation);
    std::vector<float> c(s.m * s.n, 100.0f);
    for (int run = 0; run < 2; ++run) {
      gemm.Run(a.data(), b.data(), bias.data(), c.data());
    }
    for (size_t i = 0; i < c.size(); ++i) {
      EXPECT_NEAR(c[i], function(plain[i]), 2e-6);
    }
  }
}

}  // namespace
}  // namespace fleet::ops
