// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "fleet/ops/detection.h"
#include "fleet/program/define_detection.h"

// Boxes around the places of a grid. They depend on shapes alone, and are few
// beside what a model computes.

namespace fleet::ops {
namespace {

using at::ArrayRef;
using at::Tensor;

bool AllPositive(ArrayRef<double> values) {
  return std::ranges::all_of(values, [](double x) { return x > 0; });
}

// The shape rules say which argument is wrong.
void CheckFits(bool fits, const Tensor& input, const Tensor& image,
               ArrayRef<double> variances) {
  TORCH_CHECK(fits && input.dim() == 4 && image.dim() == 4 &&
                  variances.size() == 4 && AllPositive(variances),
              "arguments do not fit");
}

// A box's half width and height in pixels, and how far its centre lies from
// that of its place.
struct Box {
  double half_width;
  double half_height;
  double right = 0;
  double down = 0;
};

// Where the places of a grid are in the image, in pixels.
struct Places {
  Places(const Tensor& input, const Tensor& image, double step_w, double step_h,
         double offset)
      : rows(input.size(2)),
        columns(input.size(3)),
        width(static_cast<double>(image.size(3))),
        height(static_cast<double>(image.size(2))),
        step_w(step_w),
        step_h(step_h),
        offset(offset) {
    if (step_w != 0 && step_h != 0) return;
    this->step_w = width / static_cast<double>(columns);
    this->step_h = height / static_cast<double>(rows);
  }
  int64_t rows, columns;
  double width, height;
  double step_w, step_h;
  double offset;
};

// The boxes of all places, [rows, columns, boxes, 4], and their variances.
std::tuple<Tensor, Tensor> Spread(const Tensor& input, const Places& places,
                                  const std::vector<Box>& boxes, bool clip,
                                  ArrayRef<double> variances) {
  const auto count = static_cast<int64_t>(boxes.size());
  const at::ScalarType type =
      input.is_floating_point() ? input.scalar_type() : at::kFloat;
  Tensor made = at::empty({places.rows, places.columns, count, 4}, at::kDouble);
  auto* to = made.mutable_data_ptr<double>();
  for (int64_t row = 0; row < places.rows; ++row) {
    for (int64_t column = 0; column < places.columns; ++column) {
      const double x =
          (static_cast<double>(column) + places.offset) * places.step_w;
      const double y =
          (static_cast<double>(row) + places.offset) * places.step_h;
      for (const Box& box : boxes) {
        *to++ = (x + box.right - box.half_width) / places.width;
        *to++ = (y + box.down - box.half_height) / places.height;
        *to++ = (x + box.right + box.half_width) / places.width;
        *to++ = (y + box.down + box.half_height) / places.height;
      }
    }
  }
  if (clip) made.clamp_(0, 1);
  Tensor each = at::tensor(variances, at::kDouble).to(input.device(), type);
  return {made.to(input.device(), type), each.expand(made.sizes()).clone()};
}

Box Ratio(double size, double ratio) {
  return {size * std::sqrt(ratio) / 2, size / std::sqrt(ratio) / 2};
}

std::tuple<Tensor, Tensor> PriorBox(const Tensor& input, const Tensor& image,
                                    ArrayRef<double> min_sizes,
                                    ArrayRef<double> max_sizes,
                                    ArrayRef<double> aspect_ratios, bool flip,
                                    ArrayRef<double> variances, bool clip,
                                    double step_w, double step_h, double offset,
                                    bool sizes_first) {
  const bool above =
      max_sizes.empty() ||
      std::ranges::equal(min_sizes, max_sizes, [](double least, double most) {
        return least < most;
      });
  CheckFits(!min_sizes.empty() && above && AllPositive(min_sizes) &&
                AllPositive(aspect_ratios),
            input, image, variances);
  const std::vector<double> ratios =
      program::ExpandAspectRatios(aspect_ratios.vec(), flip);
  std::vector<Box> boxes;
  for (size_t i = 0; i < min_sizes.size(); ++i) {
    std::vector<Box> others;
    for (size_t r = 1; r < ratios.size(); ++r) {
      others.push_back(Ratio(min_sizes[i], ratios[r]));
    }
    boxes.push_back(Ratio(min_sizes[i], 1));
    if (!sizes_first) boxes.insert(boxes.end(), others.begin(), others.end());
    if (!max_sizes.empty()) {
      boxes.push_back(Ratio(std::sqrt(min_sizes[i] * max_sizes[i]), 1));
    }
    if (sizes_first) boxes.insert(boxes.end(), others.begin(), others.end());
  }
  const Places places(input, image, step_w, step_h, offset);
  return Spread(input, places, boxes, clip, variances);
}

std::tuple<Tensor, Tensor> DensityPriorBox(
    const Tensor& input, const Tensor& image, at::IntArrayRef densities,
    ArrayRef<double> sizes, ArrayRef<double> ratios, ArrayRef<double> variances,
    bool, double step_w, double step_h, double offset, bool flatten) {
  CheckFits(!sizes.empty() && sizes.size() == densities.size() &&
                !ratios.empty() && AllPositive(sizes) && AllPositive(ratios) &&
                std::ranges::all_of(densities, [](int64_t n) { return n > 0; }),
            input, image, variances);
  const Places places(input, image, step_w, step_h, offset);
  // Whole pixels, and always clipped: as in Paddle.
  const auto step = static_cast<int64_t>((places.step_w + places.step_h) / 2);
  std::vector<Box> boxes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto shift = static_cast<double>(step / densities[i]);
    const double first = (shift - static_cast<double>(step)) / 2;
    for (double ratio : ratios) {
      for (int64_t down = 0; down < densities[i]; ++down) {
        for (int64_t right = 0; right < densities[i]; ++right) {
          Box box = Ratio(sizes[i], ratio);
          box.right = first + static_cast<double>(right) * shift;
          box.down = first + static_cast<double>(down) * shift;
          boxes.push_back(box);
        }
      }
    }
  }
  auto [made, each] = Spread(input, places, boxes, true, variances);
  if (flatten) return {made.reshape({-1, 4}), each.reshape({-1, 4})};
  return {made, each};
}

}  // namespace

void AddPriorBoxKernels(KernelTable& k) {
  k.Add<PriorBox>("prior_box");
  k.Add<DensityPriorBox>("density_prior_box");
}

}  // namespace fleet::ops
