// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <tuple>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/log.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "fleet/ops/index_check.h"
#include "fleet/ops/kernels.h"

// Noise-contrastive estimation: instead of all classes, a row is compared with
// its own and with a few that are drawn.

namespace fleet::ops {
namespace {

using at::Tensor;

enum Sampler : int64_t { kUniform = 0, kLogUniform = 1, kCustom = 2 };

std::optional<at::Generator> GeneratorFor(int64_t seed) {
  if (seed == 0) return std::nullopt;
  return at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
}

Tensor Draw(int64_t rows, int64_t count, int64_t classes, int64_t sampler,
            const Tensor& probabilities, int64_t seed) {
  std::optional<at::Generator> generator = GeneratorFor(seed);
  if (sampler == kCustom) {
    TORCH_CHECK(probabilities.defined() && probabilities.numel() == classes,
                "the custom sampler needs a probability for each class");
    return at::multinomial(probabilities.reshape({-1}).to(at::kCPU),
                           rows * count, /*replacement=*/true, generator)
        .reshape({rows, count});
  }
  Tensor u = at::empty({rows, count}, at::kDouble).uniform_(0, 1, generator);
  const auto n = static_cast<double>(classes);
  // The inverse of the distribution: P(k) = log((k + 2) / (k + 1)) / log(n).
  Tensor k = sampler == kUniform ? u * n : (u * std::log(n)).exp() - 1;
  return at::floor(k).clamp(0, n - 1).to(at::kLong);
}

// How often a class is expected among the drawn ones of a row.
Tensor Expected(const Tensor& labels, int64_t count, int64_t classes,
                int64_t sampler, const Tensor& probabilities,
                const Tensor& like) {
  const auto drawn = static_cast<double>(count);
  const auto n = static_cast<double>(classes);
  if (sampler == kUniform) {
    return at::ones(labels.sizes(), like.options()) * (drawn / n);
  }
  if (sampler == kCustom) {
    return at::index_select(probabilities.reshape({-1}).to(like.options()), 0,
                            labels.reshape({-1}))
               .reshape(labels.sizes()) *
           drawn;
  }
  Tensor k = labels.to(like.scalar_type());
  return at::log((k + 2) / (k + 1)) * (drawn / std::log(n));
}

Tensor WeightOf(const Tensor& sample_weight, const Tensor& like) {
  return sample_weight.defined() ? sample_weight.reshape({-1, 1})
                                 : at::ones({1, 1}, like.options());
}

std::tuple<Tensor, Tensor, Tensor> Nce(const Tensor& input, const Tensor& label,
                                       const Tensor& weight, const Tensor& bias,
                                       const Tensor& sample_weight,
                                       const Tensor& probs, int64_t classes,
                                       int64_t count, int64_t sampler,
                                       int64_t seed, bool) {
  TORCH_CHECK(input.dim() == 2 && weight.dim() == 2 &&
                  weight.size(0) == classes && weight.size(1) == input.size(1),
              "shapes do not fit");
  Tensor own = label.reshape({input.size(0), -1}).to(at::kLong);
  CheckIndices("label", own.reshape({-1}).contiguous(), 0, classes);
  Tensor drawn = Draw(input.size(0), count, classes, sampler, probs, seed)
                     .to(input.device());
  Tensor labels = at::cat({own, drawn}, 1);
  Tensor flat = labels.reshape({-1});
  Tensor rows = at::index_select(weight, 0, flat)
                    .reshape({labels.size(0), labels.size(1), -1});
  Tensor scores = at::sum(rows * input.unsqueeze(1), {2});
  if (bias.defined()) {
    scores =
        scores +
        at::index_select(bias.reshape({-1}), 0, flat).reshape(labels.sizes());
  }
  Tensor o = at::sigmoid(scores);
  Tensor b = Expected(labels, count, classes, sampler, probs, o);
  Tensor mine = -at::log(o / (o + b)).narrow(1, 0, own.size(1));
  Tensor others = -at::log(b / (o + b)).narrow(1, own.size(1), count);
  Tensor cost = (at::sum(mine, {1}, true) + at::sum(others, {1}, true)) *
                WeightOf(sample_weight, o);
  return {cost, o, labels};
}

std::tuple<Tensor, Tensor, Tensor> NceGrad(
    const Tensor& input, const Tensor& weight, const Tensor& bias,
    const Tensor& sample_weight, const Tensor& probs, const Tensor& o,
    const Tensor& labels, const Tensor& dcost, int64_t classes, int64_t count,
    int64_t sampler, int64_t, bool, GradNeeds needs) {
  const int64_t own = labels.size(1) - count;
  Tensor b = Expected(labels, count, classes, sampler, probs, o);
  // By the scores before the sigmoid.
  Tensor mine = (b * (o - 1) / (o + b)).narrow(1, 0, own);
  Tensor others = (o * (1 - o) / (o + b)).narrow(1, own, count);
  Tensor d = at::cat({mine, others}, 1) * WeightOf(sample_weight, o) *
             dcost.reshape({-1, 1});
  Tensor flat = labels.reshape({-1});
  Tensor dx, dw, db;
  if (needs[0]) {
    Tensor rows = at::index_select(weight, 0, flat)
                      .reshape({labels.size(0), labels.size(1), -1});
    dx = at::sum(rows * d.unsqueeze(2), {1});
  }
  if (needs[1]) {
    Tensor rows = (d.unsqueeze(2) * input.unsqueeze(1))
                      .reshape({flat.size(0), input.size(1)});
    dw = at::index_add(at::zeros(weight.sizes(), weight.options()), 0, flat,
                       rows);
  }
  if (needs[2] && bias.defined()) {
    db = at::index_add(at::zeros({classes}, bias.options()), 0, flat,
                       d.reshape({-1}))
             .reshape(bias.sizes());
  }
  return {dx, dw, db};
}

}  // namespace

void AddNceKernels(KernelTable& k) { k.Add<Nce, NceGrad>("nce"); }

}  // namespace fleet::ops
