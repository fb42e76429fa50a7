// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/define_detection.h"

#include <cmath>
#include <string>

#include "fleet/program/shape_rules.h"
#include "fleet/program/window.h"

namespace fleet::program {
namespace {

using Types = Result<std::vector<TensorType>>;
using Ints = std::vector<int64_t>;
using Floats = std::vector<double>;

Status CheckImage(const OpTypes& t, const char* slot) {
  if (t.in(slot).dims.size() == 4) return OkStatus();
  return InvalidArgument(slot, " must have shape [N, C, H, W], not ",
                         ToString(t.in(slot).dims));
}

// ---- deformable convolutions

Status CheckDims(const OpTypes& t, const char* slot, const Dims& wanted) {
  const Dims& dims = t.in(slot).dims;
  if (CanBeOne(dims, wanted)) return OkStatus();
  return InvalidArgument(slot, " must have shape ", ToString(wanted), ", not ",
                         ToString(dims));
}

Status CheckGroups(const Dims& input, const Dims& filter, int64_t groups,
                   int64_t deformable_groups) {
  if (filter.size() != 4) {
    return InvalidArgument(
        "Filter must have shape [filters, channels / groups, kh, kw], not ",
        ToString(filter));
  }
  if (groups < 1 || deformable_groups < 1) {
    return InvalidArgument("groups ", groups, " and deformable_groups ",
                           deformable_groups, " must be positive");
  }
  if (filter[1] >= 0 && KnownToDiffer(input[1], filter[1] * groups)) {
    return InvalidArgument("Input has ", input[1], " channels but Filter ",
                           ToString(filter), " with groups ", groups, " takes ",
                           filter[1] * groups);
  }
  if (filter[0] >= 0 && filter[0] % groups != 0) {
    return InvalidArgument("groups is ", groups, " but must divide the ",
                           filter[0], " filters");
  }
  if (input[1] >= 0 && input[1] % deformable_groups != 0) {
    return InvalidArgument("deformable_groups is ", deformable_groups,
                           " but must divide the ", input[1], " channels");
  }
  return OkStatus();
}

Types DeformableShape(const OpTypes& t) {
  RETURN_IF_ERROR(CheckImage(t, "Input"));
  const Dims& input = t.in("Input").dims;
  const Dims& filter = t.in("Filter").dims;
  const int64_t deformable = t.attr<int64_t>("deformable_groups");
  RETURN_IF_ERROR(
      CheckGroups(input, filter, t.attr<int64_t>("groups"), deformable));
  const auto& strides = t.attr<Ints>("strides");
  const auto& dilations = t.attr<Ints>("dilations");
  const auto& paddings = t.attr<Ints>("paddings");
  Dims kernel(filter.begin() + 2, filter.end());
  Dims spatial(input.begin() + 2, input.end());
  const int64_t elements = NumElements(kernel);
  HideUnknownWindows(kernel, spatial);
  ASSIGN_OR_RETURN(auto windows, MakeWindows({.kernel = kernel,
                                              .strides = strides,
                                              .dilations = dilations,
                                              .paddings = paddings},
                                             spatial));
  for (size_t i = 0; i < 2; ++i) {
    ASSIGN_OR_RETURN(spatial[i], WindowCount(spatial[i], windows[i]));
  }
  const int64_t field = elements < 0 ? -1 : deformable * elements;
  RETURN_IF_ERROR(
      CheckDims(t, "Offset", {input[0], 2 * field, spatial[0], spatial[1]}));
  if (t.def().InputSlot("Mask") >= 0) {
    RETURN_IF_ERROR(
        CheckDims(t, "Mask", {input[0], field, spatial[0], spatial[1]}));
  }
  return std::vector<TensorType>{
      {t.in("Input").dtype, {input[0], filter[0], spatial[0], spatial[1]}}};
}

void DefineDeformableConvs(OpDefiner& ops) {
  const std::string attrs =
      "; strides: ints = [1, 1], paddings: ints = [0, 0], "
      "dilations: ints = [1, 1], groups: int = 1, "
      "deformable_groups: int = 1, im2col_step: int = 1) -> Output";
  // Offset [N, deformable_groups * kh * kw * 2, ...]: how far down and to the
  // right of its place in the window each number is taken, between pixels by
  // bilinear weights; zeros lie outside of the image. Mask: a factor for each.
  ops.Define("deformable_conv(Input, Offset, Filter, Mask" + attrs,
             DeformableShape,
             "Input, Offset, Filter, Mask, Output' -> Input', Offset', "
             "Filter', Mask'");
  ops.Define("deformable_conv_v1(Input, Offset, Filter" + attrs,
             DeformableShape,
             "Input, Offset, Filter, Output' -> Input', Offset', Filter'");
}

// ---- prior boxes

Status CheckPositive(const OpTypes& t, const char* attr) {
  for (double n : t.attr<Floats>(attr)) {
    if (!(n > 0)) {
      return InvalidArgument(attr, " must be positive, but holds ", n);
    }
  }
  return OkStatus();
}

Status CheckBoxes(const OpTypes& t) {
  RETURN_IF_ERROR(CheckImage(t, "Input"));
  RETURN_IF_ERROR(CheckImage(t, "Image"));
  if (t.attr<Floats>("variances").size() != 4) {
    return InvalidArgument("variances must have four numbers, not ",
                           t.attr<Floats>("variances").size());
  }
  return CheckPositive(t, "variances");
}

DType BoxType(const OpTypes& t) {
  const DType given = t.in("Input").dtype;
  return IsFloating(given) ? given : DType::kFloat32;
}

Types PriorBoxShape(const OpTypes& t) {
  RETURN_IF_ERROR(CheckBoxes(t));
  const auto& least = t.attr<Floats>("min_sizes");
  const auto& most = t.attr<Floats>("max_sizes");
  if (least.empty()) return InvalidArgument("min_sizes is empty");
  if (!most.empty() && most.size() != least.size()) {
    return InvalidArgument("max_sizes has ", most.size(), " numbers, but ",
                           "min_sizes ", least.size());
  }
  RETURN_IF_ERROR(CheckPositive(t, "min_sizes"));
  RETURN_IF_ERROR(CheckPositive(t, "aspect_ratios"));
  for (size_t i = 0; i < most.size(); ++i) {
    if (most[i] > least[i]) continue;
    return InvalidArgument("max_sizes[", i, "] is ", most[i],
                           " but must be above min_sizes[", i, "], ", least[i]);
  }
  const size_t ratios =
      ExpandAspectRatios(t.attr<Floats>("aspect_ratios"), t.attr<bool>("flip"))
          .size();
  const auto boxes = static_cast<int64_t>(ratios * least.size() + most.size());
  const Dims& grid = t.in("Input").dims;
  const TensorType out{BoxType(t), {grid[2], grid[3], boxes, 4}};
  return std::vector<TensorType>{out, out};
}

Types DensityPriorBoxShape(const OpTypes& t) {
  RETURN_IF_ERROR(CheckBoxes(t));
  const auto& sizes = t.attr<Floats>("fixed_sizes");
  const auto& ratios = t.attr<Floats>("fixed_ratios");
  const auto& densities = t.attr<Ints>("densities");
  if (sizes.empty() || ratios.empty() || densities.size() != sizes.size()) {
    return InvalidArgument("fixed_sizes (", sizes.size(), " numbers), ",
                           "densities (", densities.size(),
                           ") and fixed_ratios (", ratios.size(),
                           ") must not be empty, and the first two must be "
                           "equally many");
  }
  RETURN_IF_ERROR(CheckPositive(t, "fixed_sizes"));
  RETURN_IF_ERROR(CheckPositive(t, "fixed_ratios"));
  int64_t boxes = 0;
  for (int64_t density : densities) {
    if (density < 1) {
      return InvalidArgument("densities must be positive, but holds ", density);
    }
    boxes += density * density * static_cast<int64_t>(ratios.size());
  }
  const Dims& grid = t.in("Input").dims;
  Dims dims{grid[2], grid[3], boxes, 4};
  if (t.attr<bool>("flatten_to_2d")) {
    dims = {NumElements({grid[2], grid[3], boxes}), 4};
  }
  const TensorType out{BoxType(t), dims};
  return std::vector<TensorType>{out, out};
}

void DefinePriorBoxes(OpDefiner& ops) {
  const std::string attrs =
      "variances: floats = [0.1, 0.1, 0.2, 0.2], clip: bool = false, "
      "step_w: float = 0.0, step_h: float = 0.0, offset: float = 0.5";
  // Boxes (left, top, right, bottom) around each place of Input, as parts of
  // the width and height of Image; only the shapes of the two count. A step of
  // zero: that of Image over that of Input.
  ops.Define(
      "prior_box(Input, Image; min_sizes: floats, max_sizes: floats = [], "
      "aspect_ratios: floats = [1.0], flip: bool = false, " +
          attrs +
          ", min_max_aspect_ratios_order: bool = false) -> Boxes!, Variances!",
      PriorBoxShape);
  ops.Define(
      "density_prior_box(Input, Image; densities: ints, fixed_sizes: floats, "
      "fixed_ratios: floats, " +
          attrs + ", flatten_to_2d: bool = false) -> Boxes!, Variances!",
      DensityPriorBoxShape);
}

}  // namespace

std::vector<double> ExpandAspectRatios(const std::vector<double>& given,
                                       bool flip) {
  constexpr double kSame = 1e-6;
  std::vector<double> ratios{1.0};
  for (double ratio : given) {
    bool known = false;
    for (double other : ratios) known |= std::abs(ratio - other) < kSame;
    if (known) continue;
    ratios.push_back(ratio);
    if (flip) ratios.push_back(1.0 / ratio);
  }
  return ratios;
}

void DefineDetectionOps(OpDefiner& ops) {
  DefineDeformableConvs(ops);
  DefinePriorBoxes(ops);
}

}  // namespace fleet::program
