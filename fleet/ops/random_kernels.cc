// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <optional>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/all.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/poisson.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>

#include "fleet/ops/kernels.h"
#include "fleet/ops/shape_argument.h"

namespace fleet::ops {
namespace {

using at::IntArrayRef;
using at::Tensor;

// Nothing for seed 0: then ATen draws from the generator of the process, which
// paddle.seed() set. Any other seed starts a generator of the call's own.
std::optional<at::Generator> GeneratorFor(int64_t seed, at::Device device) {
  if (seed == 0) return std::nullopt;
  at::Generator own = at::globalContext().defaultGenerator(device).clone();
  own.set_current_seed(static_cast<uint64_t>(seed));
  return own;
}

Tensor NewFloats(const Tensor& shape_tensor, IntArrayRef shape, DType dtype,
                 const Context& context) {
  at::ScalarType type =
      ToScalarType(dtype == DType::kNone ? context.default_dtype : dtype);
  TORCH_CHECK(at::isFloatingType(type),
              "dtype must be a floating-point type, not ", type);
  std::vector<int64_t> dims = IntsOf(shape_tensor, shape);
  for (int64_t d : dims) TORCH_CHECK(d >= 0, "shape ", dims, " has ", d);
  return at::empty(dims, at::TensorOptions(type).device(context.device));
}

Tensor Gaussian(const Tensor& shape_tensor, IntArrayRef shape, double mean,
                double std, int64_t seed, DType dtype, const Context& context) {
  Tensor out = NewFloats(shape_tensor, shape, dtype, context);
  return out.normal_(mean, std, GeneratorFor(seed, context.device));
}

// Normal numbers, drawn again until they lie within two deviations: by the
// inverse of the distribution function, at once.
Tensor TruncatedGaussian(const Tensor& shape_tensor, IntArrayRef shape,
                         double mean, double std, int64_t seed, DType dtype,
                         const Context& context) {
  Tensor out = NewFloats(shape_tensor, shape, dtype, context);
  double edge = std::erf(2 / std::sqrt(2.0));
  out.uniform_(-edge, edge, GeneratorFor(seed, context.device));
  out.erfinv_().mul_(std * std::sqrt(2.0)).add_(mean);
  return out.clamp_(mean - 2 * std, mean + 2 * std);
}

Tensor Uniform(const Tensor& shape_tensor, IntArrayRef shape, double min,
               double max, int64_t seed, DType dtype, const Context& context) {
  TORCH_CHECK(min <= max, "min ", min, " is above max ", max);
  Tensor out = NewFloats(shape_tensor, shape, dtype, context);
  return out.uniform_(min, max, GeneratorFor(seed, context.device));
}

Tensor UniformLikeBatch(const Tensor& input, IntArrayRef shape, int64_t from,
                        int64_t to, DType dtype, double min, double max,
                        int64_t seed, const Context& context) {
  return Uniform({}, ShapeLikeBatch(input, shape, from, to), min, max, seed,
                 dtype, context);
}

Tensor GaussianLikeBatch(const Tensor& input, IntArrayRef shape, int64_t from,
                         int64_t to, DType dtype, double mean, double std,
                         int64_t seed, const Context& context) {
  return Gaussian({}, ShapeLikeBatch(input, shape, from, to), mean, std, seed,
                  dtype, context);
}

at::TensorOptions Integers(DType dtype, const Context& context) {
  TORCH_CHECK(dtype != DType::kNone, "dtype is missing");
  return at::TensorOptions(ToScalarType(dtype)).device(context.device);
}

Tensor Randint(const Tensor& shape_tensor, IntArrayRef shape, int64_t low,
               int64_t high, int64_t seed, DType dtype,
               const Context& context) {
  TORCH_CHECK(low < high, "low ", low, " must be below high ", high);
  return at::randint(low, high, IntsOf(shape_tensor, shape),
                     GeneratorFor(seed, context.device),
                     Integers(dtype, context));
}

Tensor Randperm(int64_t n, int64_t seed, DType dtype, const Context& context) {
  return at::randperm(n, GeneratorFor(seed, context.device),
                      Integers(dtype, context));
}

Tensor Bernoulli(const Tensor& x) {
  TORCH_CHECK(at::all((x >= 0).logical_and(x <= 1)).item<bool>(),
              "x has a probability outside of [0, 1]");
  return at::bernoulli(x);
}

Tensor Poisson(const Tensor& x) {
  TORCH_CHECK(at::all(x >= 0).item<bool>(), "x has a negative rate");
  return at::poisson(x);
}

Tensor Multinomial(const Tensor& x, int64_t num_samples, bool replacement) {
  return at::multinomial(x, num_samples, replacement);
}

}  // namespace

void AddRandomKernels(KernelTable& k) {
  k.Add<Gaussian>("gaussian_random");
  k.Add<TruncatedGaussian>("truncated_gaussian_random");
  k.Add<Uniform>("uniform_random");
  k.Add<UniformLikeBatch>("uniform_random_batch_size_like");
  k.Add<GaussianLikeBatch>("gaussian_random_batch_size_like");
  k.Add<Randint>("randint");
  k.Add<Randperm>("randperm");
  k.Add<Bernoulli>("bernoulli");
  k.Add<Poisson>("poisson");
  k.Add<Multinomial>("multinomial");
}

}  // namespace fleet::ops
