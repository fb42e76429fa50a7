// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/any.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>

#include "fleet/ops/gpu_kernels.h"
#include "fleet/ops/index_check.h"
#include "fleet/ops/kernels.h"

namespace fleet::ops {
namespace {

using at::Tensor;

std::tuple<Tensor, Tensor, Tensor> Accuracy(const Tensor& out,
                                            const Tensor& indices,
                                            const Tensor& label) {
  int64_t num_rows = indices.size(0);
  TORCH_CHECK(num_rows > 0, "the batch is empty");
  // A NaN counts as larger than every number, so it is among the best.
  const char* message = "input has a NaN";
  Tensor bad = at::isnan(out);
  if (LateChecks* late = LateChecks::Of(out.device())) {
    GpuCheckRange(bad.to(at::kLong).contiguous(), 0, 1, 0, 0,
                  late->Add(message));
  } else {
    TORCH_CHECK(!at::any(bad).item<bool>(), message);
  }
  Tensor correct = at::any(indices == label.reshape({num_rows, 1}), 1).sum();
  auto options = correct.options().dtype(at::kInt);
  return {(correct.to(at::kFloat) / static_cast<double>(num_rows)).reshape({1}),
          correct.to(at::kInt).reshape({1}), at::full({1}, num_rows, options)};
}

// ---- auc

// Counts of predictions by bucket, on the CPU.
struct Buckets {
  int64_t* positive;
  int64_t* negative;
  int64_t count;
};

void CountInto(const Buckets& buckets, const Tensor& predict,
               const Tensor& label) {
  Tensor p = predict.select(1, predict.size(1) - 1)
                 .to(at::kCPU, at::kDouble)
                 .contiguous();
  Tensor l = label.reshape({-1}).to(at::kCPU, at::kLong).contiguous();
  TORCH_CHECK(l.numel() == p.numel(), "there are ", p.numel(),
              " predictions but ", l.numel(), " labels");
  const double* value = p.const_data_ptr<double>();
  const int64_t* is_positive = l.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < p.numel(); ++i) {
    TORCH_CHECK(value[i] >= 0 && value[i] <= 1, "prediction ", i, " is ",
                value[i], " but must lie in [0, 1]");
    const auto bucket =
        static_cast<int64_t>(value[i] * static_cast<double>(buckets.count - 1));
    ++(is_positive[i] != 0 ? buckets.positive : buckets.negative)[bucket];
  }
}

// The area under the curve by trapezoids, from the highest threshold down.
double Area(const Buckets& buckets) {
  double area = 0, positives = 0, negatives = 0;
  for (int64_t i = buckets.count; i-- > 0;) {
    const double before = positives;
    positives += static_cast<double>(buckets.positive[i]);
    const auto step = static_cast<double>(buckets.negative[i]);
    negatives += step;
    area += step * (before + positives) / 2;
  }
  return positives > 0 && negatives > 0 ? area / positives / negatives : 0;
}

// The sum of the last batches, whose counts stand before it, moved on by one.
void Slide(int64_t* stat, int64_t steps, int64_t count, int64_t current) {
  int64_t* sum = stat + steps * count;
  int64_t* oldest = stat + current * count;
  for (int64_t i = 0; i < count; ++i) {
    sum[i] -= oldest[i];
    oldest[i] = 0;
  }
}

std::tuple<Tensor, Tensor, Tensor> Auc(const Tensor& predict,
                                       const Tensor& label, const Tensor& pos,
                                       const Tensor& neg, const std::string&,
                                       int64_t num_thresholds, int64_t steps) {
  const int64_t count = num_thresholds + 1;
  const int64_t wanted = steps == 0 ? count : (steps + 1) * count + 1;
  TORCH_CHECK(pos.numel() == wanted && neg.numel() == wanted &&
                  pos.scalar_type() == at::kLong &&
                  neg.scalar_type() == at::kLong,
              "the states must be int64 with ", wanted, " elements");
  TORCH_CHECK(predict.dim() == 2 && predict.size(1) >= 1,
              "Predict must have two dimensions");
  // On another device the counts travel; they are few.
  Tensor positive = pos.to(at::kCPU).contiguous();
  Tensor negative = neg.to(at::kCPU).contiguous();
  auto* p = positive.mutable_data_ptr<int64_t>();
  auto* n = negative.mutable_data_ptr<int64_t>();
  Buckets counted{p, n, count};
  if (steps == 0) {
    CountInto(counted, predict, label);
  } else {
    const int64_t current = p[wanted - 1] % steps;
    for (int64_t* stat : {p, n}) {
      Slide(stat, steps, count, current);
      ++stat[wanted - 1];
    }
    const Buckets newest{p + current * count, n + current * count, count};
    CountInto(newest, predict, label);
    counted = {p + steps * count, n + steps * count, count};
    for (int64_t i = 0; i < count; ++i) {
      counted.positive[i] += newest.positive[i];
      counted.negative[i] += newest.negative[i];
    }
  }
  Tensor area =
      at::full({1}, Area(counted), predict.options().dtype(at::kDouble));
  if (!positive.is_same(pos)) pos.copy_(positive);
  if (!negative.is_same(neg)) neg.copy_(negative);
  return {area, pos, neg};
}

}  // namespace

void AddMetricKernels(KernelTable& kernels) {
  kernels.Add<Auc>("auc");
  kernels.Add<Accuracy>("accuracy");
}

}  // namespace fleet::ops
