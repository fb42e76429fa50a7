// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"
#include "fleet/program/window.h"

// Ops that look at images and other grids: convolutions, pools, padding,
// resizing.

namespace fleet::program {
namespace {

using Types = Result<std::vector<TensorType>>;
using Ints = std::vector<int64_t>;

// A grid [N, C, spatial...], taken from either layout.
struct Grid {
  int64_t batch;
  int64_t channels;
  Dims spatial;
};

Result<Grid> ReadGrid(const Dims& dims, size_t rank,
                      const std::string& data_format) {
  if (dims.size() != rank + 2) {
    return InvalidArgument("the input must have ", rank + 2, " dimensions (",
                           data_format, "), but has shape ", ToString(dims));
  }
  bool last = ChannelsLast(data_format);
  auto first = dims.begin() + (last ? 1 : 2);
  return Grid{dims[0], last ? dims.back() : dims[1], Dims(first, first + rank)};
}

Dims WriteGrid(const Grid& grid, const std::string& data_format) {
  Dims dims{grid.batch};
  bool last = ChannelsLast(data_format);
  if (!last) dims.push_back(grid.channels);
  dims.insert(dims.end(), grid.spatial.begin(), grid.spatial.end());
  if (last) dims.push_back(grid.channels);
  return dims;
}

// ---- convolutions

Status CheckBias(const OpTypes& t, int64_t channels) {
  if (!t.has("Bias")) return OkStatus();
  int64_t n = NumElements(t.in("Bias").dims);
  if (!KnownToDiffer(n, channels)) return OkStatus();
  return InvalidArgument("bias has ", n, " elements for ", channels,
                         " output channels");
}

// Windows over `spatial`, in which sizes become -1 where the filter's is not
// known yet.
Result<std::vector<Window>> ConvWindows(const OpTypes& t, const Dims& filter,
                                        Dims& spatial) {
  const auto& strides = t.attr<Ints>("strides");
  const auto& dilations = t.attr<Ints>("dilations");
  const auto& paddings = t.attr<Ints>("paddings");
  Dims kernel(filter.begin() + 2, filter.end());
  HideUnknownWindows(kernel, spatial);
  return MakeWindows({.kernel = kernel,
                      .strides = strides,
                      .dilations = dilations,
                      .paddings = paddings,
                      .algorithm = t.attr<std::string>("padding_algorithm")},
                     spatial);
}

Status CheckFilter(const Dims& filter, size_t rank, int64_t groups) {
  if (filter.size() != rank + 2) {
    return InvalidArgument("the weight must have ", rank + 2,
                           " dimensions, but has shape ", ToString(filter));
  }
  if (groups < 1 || (filter[0] >= 0 && filter[0] % groups != 0)) {
    return InvalidArgument("groups is ", groups, " but must divide the ",
                           filter[0], " filters of the weight");
  }
  return OkStatus();
}

// Filter [out, in / groups, kernel...].
ShapeRule ConvShape(size_t rank) {
  return [rank](const OpTypes& t) -> Types {
    const std::string& format = t.attr<std::string>("data_format");
    const Dims& filter = t.in("Filter").dims;
    int64_t groups = t.attr<int64_t>("groups");
    ASSIGN_OR_RETURN(Grid grid, ReadGrid(t.in("Input").dims, rank, format));
    RETURN_IF_ERROR(CheckFilter(filter, rank, groups));
    if (filter[1] >= 0 && KnownToDiffer(grid.channels, filter[1] * groups)) {
      return InvalidArgument("the input has ", grid.channels,
                             " channels but the weight ", ToString(filter),
                             " with groups ", groups, " takes ",
                             filter[1] * groups);
    }
    RETURN_IF_ERROR(CheckBias(t, filter[0]));
    ASSIGN_OR_RETURN(auto windows, ConvWindows(t, filter, grid.spatial));
    grid.channels = filter[0];
    for (size_t i = 0; i < rank; ++i) {
      ASSIGN_OR_RETURN(grid.spatial[i],
                       WindowCount(grid.spatial[i], windows[i]));
    }
    return std::vector<TensorType>{
        {t.in("Input").dtype, WriteGrid(grid, format)}};
  };
}

// Filter [in, out / groups, kernel...].
ShapeRule ConvTransposeShape(size_t rank) {
  return [rank](const OpTypes& t) -> Types {
    const std::string& format = t.attr<std::string>("data_format");
    const Dims& filter = t.in("Filter").dims;
    int64_t groups = t.attr<int64_t>("groups");
    ASSIGN_OR_RETURN(Grid grid, ReadGrid(t.in("Input").dims, rank, format));
    RETURN_IF_ERROR(CheckFilter(filter, rank, groups));
    if (KnownToDiffer(grid.channels, filter[0])) {
      return InvalidArgument("the input has ", grid.channels,
                             " channels but the weight ", ToString(filter),
                             " takes ", filter[0]);
    }
    const int64_t channels = filter[1] < 0 ? -1 : filter[1] * groups;
    RETURN_IF_ERROR(CheckBias(t, channels));
    ASSIGN_OR_RETURN(auto windows, ConvWindows(t, filter, grid.spatial));
    const auto& more = t.attr<Ints>("output_padding");
    grid.channels = channels;
    for (size_t i = 0; i < rank; ++i) {
      if (grid.spatial[i] < 0) continue;
      const Window& w = windows[i];
      grid.spatial[i] = (grid.spatial[i] - 1) * w.stride - w.begin - w.end +
                        w.dilation * (w.kernel - 1) + 1;
      if (!more.empty()) grid.spatial[i] += more[more.size() == 1 ? 0 : i];
    }
    return std::vector<TensorType>{
        {t.in("Input").dtype, WriteGrid(grid, format)}};
  };
}

void DefineConvolutions(OpDefiner& ops) {
  const std::string window =
      "; strides: ints = [1], paddings: ints = [0], dilations: ints = [1], "
      "groups: int = 1, padding_algorithm: string = 'EXPLICIT', "
      "data_format: string = ";
  const char* formats[] = {"'NCL'", "'NCHW'", "'NCDHW'"};
  const std::string grad =
      "Input, Filter, Bias, Output' -> Input', Filter', Bias'";
  for (size_t rank = 1; rank <= 3; ++rank) {
    std::string name = "conv" + std::to_string(rank) + "d";
    std::string inputs = "(Input, Filter, Bias?";
    std::string attrs = window + formats[rank - 1];
    ops.Define(name + inputs + attrs + ") -> Output", ConvShape(rank), grad);
    ops.Define(name + "_transpose" + inputs + attrs +
                   ", output_padding: ints = []) -> Output",
               ConvTransposeShape(rank), grad);
  }
  ops.Define(
      "depthwise_conv2d(Input, Filter, Bias?" + window + "'NCHW') -> Output",
      ConvShape(2), grad);
}

// ---- pools

Result<Dims> PooledDims(const OpTypes& t, size_t rank) {
  const std::string& format = t.attr<std::string>("data_format");
  ASSIGN_OR_RETURN(Grid grid, ReadGrid(t.in("X").dims, rank, format));
  const auto& kernel = t.attr<Ints>("ksize");
  const auto& strides = t.attr<Ints>("strides");
  const auto& paddings = t.attr<Ints>("paddings");
  ASSIGN_OR_RETURN(
      auto windows,
      MakeWindows({.kernel = kernel,
                   .strides = strides,
                   .dilations = {},
                   .paddings = paddings,
                   .algorithm = t.attr<std::string>("padding_algorithm")},
                  grid.spatial));
  for (size_t i = 0; i < rank; ++i) {
    ASSIGN_OR_RETURN(grid.spatial[i], WindowCount(grid.spatial[i], windows[i],
                                                  t.attr<bool>("ceil_mode")));
  }
  return WriteGrid(grid, format);
}

ShapeRule MaxPoolShape(size_t rank) {
  return [rank](const OpTypes& t) -> Types {
    ASSIGN_OR_RETURN(Dims dims, PooledDims(t, rank));
    return std::vector<TensorType>{{t.in("X").dtype, dims},
                                   {DType::kInt64, dims}};
  };
}

ShapeRule AvgPoolShape(size_t rank) {
  return [rank](const OpTypes& t) -> Types {
    ASSIGN_OR_RETURN(Dims dims, PooledDims(t, rank));
    return std::vector<TensorType>{{t.in("X").dtype, dims}};
  };
}

// An output size of -1 keeps the input's.
ShapeRule AdaptivePoolShape(size_t rank, bool with_mask) {
  return [rank, with_mask](const OpTypes& t) -> Types {
    const std::string& format = t.attr<std::string>("data_format");
    ASSIGN_OR_RETURN(Grid grid, ReadGrid(t.in("X").dims, rank, format));
    const auto& size = t.attr<Ints>("output_size");
    if (size.size() != rank && size.size() != 1) {
      return InvalidArgument("output_size has ", size.size(), " numbers for ",
                             rank, " dimensions");
    }
    for (size_t i = 0; i < rank; ++i) {
      int64_t wanted = size[size.size() == 1 ? 0 : i];
      if (wanted >= 0) grid.spatial[i] = wanted;
    }
    Dims dims = WriteGrid(grid, format);
    std::vector<TensorType> out{{t.in("X").dtype, dims}};
    if (with_mask) out.push_back({DType::kInt64, dims});
    return out;
  };
}

// Max and average, sliding, global and adaptive, in one op.
ShapeRule AnyPoolShape(size_t rank) {
  return [rank](const OpTypes& t) -> Types {
    const std::string& type = t.attr<std::string>("pooling_type");
    if (type != "max" && type != "avg") {
      return InvalidArgument("pooling_type must be 'max' or 'avg', not '", type,
                             "'");
    }
    const bool global = t.attr<bool>("global_pooling");
    if (!global && !t.attr<bool>("adaptive")) {
      return MaxPoolShape(rank)(t);
    }
    const std::string& format = t.attr<std::string>("data_format");
    ASSIGN_OR_RETURN(Grid grid, ReadGrid(t.in("X").dims, rank, format));
    const auto& size = t.attr<Ints>("ksize");
    if (!global && size.size() != rank && size.size() != 1) {
      return InvalidArgument("ksize has ", size.size(), " numbers for ", rank,
                             " dimensions");
    }
    for (size_t i = 0; i < rank; ++i) {
      grid.spatial[i] = global ? 1 : size[size.size() == 1 ? 0 : i];
    }
    const Dims dims = WriteGrid(grid, format);
    return std::vector<TensorType>{{t.in("X").dtype, dims},
                                   {DType::kInt64, dims}};
  };
}

void DefinePools(OpDefiner& ops) {
  const std::string window =
      "(X; ksize: ints, strides: ints = [], paddings: ints = [0], "
      "ceil_mode: bool = false, padding_algorithm: string = 'EXPLICIT', "
      "data_format: string = ";
  const char* formats[] = {"'NCL'", "'NCHW'", "'NCDHW'"};
  // Mask: as in max_pool2d_with_index; nothing for averages.
  for (size_t rank = 2; rank <= 3; ++rank) {
    ops.Define("pool" + std::to_string(rank) + "d" + window +
                   formats[rank - 1] +
                   ", pooling_type: string = 'max', "
                   "global_pooling: bool = false, exclusive: bool = true, "
                   "adaptive: bool = false) -> Out, Mask!",
               AnyPoolShape(rank), "X, Mask, Out' -> X'");
  }
  for (size_t rank = 1; rank <= 3; ++rank) {
    std::string suffix = std::to_string(rank) + "d";
    std::string format = formats[rank - 1];
    // Mask: where in its plane, counted row by row, each maximum was found.
    ops.Define("max_pool" + suffix + "_with_index" + window + format +
                   ") -> Out, Mask!",
               MaxPoolShape(rank), "X, Mask, Out' -> X'");
    ops.Define("avg_pool" + suffix + window + format +
                   ", exclusive: bool = true, divisor: int = 0) -> Out",
               AvgPoolShape(rank), "X, Out' -> X'");
    std::string size = "(X; output_size: ints, data_format: string = " + format;
    ops.Define("adaptive_max_pool" + suffix + size + ") -> Out, Mask!",
               AdaptivePoolShape(rank, true), "X, Mask, Out' -> X'");
    ops.Define("adaptive_avg_pool" + suffix + size + ") -> Out",
               AdaptivePoolShape(rank, false), "X, Out' -> X'");
  }
}

// ---- padding, resizing, patches

// `paddings` holds (before, behind) for every dimension, in order.
Types PadShape(const OpTypes& t) {
  TensorType out = t.in("X");
  const auto& paddings = t.attr<Ints>("paddings");
  const std::string& mode = t.attr<std::string>("mode");
  if (paddings.size() != 2 * out.dims.size()) {
    return InvalidArgument("pad has ", paddings.size(), " numbers for ",
                           out.dims.size(), " dimensions");
  }
  if (mode != "constant" && mode != "reflect" && mode != "replicate" &&
      mode != "circular") {
    return InvalidArgument(
        "mode must be 'constant', 'reflect', 'replicate' or 'circular', not '",
        mode, "'");
  }
  for (size_t i = 0; i < out.dims.size(); ++i) {
    int64_t before = paddings[2 * i], behind = paddings[2 * i + 1];
    int64_t& size = out.dims[i];
    if (size < 0) continue;
    int64_t most = mode == "reflect" ? size - 1 : size;
    bool borrowed = mode == "reflect" || mode == "circular";
    if (borrowed && (before > most || behind > most)) {
      return InvalidArgument("padding ", before, " and ", behind, " in mode '",
                             mode, "' needs a dimension longer than ", size);
    }
    size += before + behind;
    if (size < 0) {
      return InvalidArgument("padding ", before, " and ", behind,
                             " takes away more than dimension ", i, " has");
    }
  }
  return std::vector<TensorType>{out};
}

Types InterpolateShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const std::string& format = t.attr<std::string>("data_format");
  const auto& size = t.attr<Ints>("out_shape");
  if (x.dims.size() < 3) {
    return InvalidArgument("the input needs 3 to 5 dimensions, but has shape ",
                           ToString(x.dims));
  }
  ASSIGN_OR_RETURN(Grid grid, ReadGrid(x.dims, x.dims.size() - 2, format));
  if (size.size() != grid.spatial.size()) {
    return InvalidArgument("size has ", size.size(), " numbers for ",
                           grid.spatial.size(), " spatial dimensions");
  }
  for (int64_t n : size) {
    if (n < 1) return InvalidArgument("size must be positive, not ", n);
  }
  grid.spatial = size;
  return std::vector<TensorType>{{x.dtype, WriteGrid(grid, format)}};
}

Types UnfoldShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  ASSIGN_OR_RETURN(Grid grid, ReadGrid(x.dims, 2, "NCHW"));
  const auto& kernel = t.attr<Ints>("kernel_sizes");
  const auto& strides = t.attr<Ints>("strides");
  const auto& dilations = t.attr<Ints>("dilations");
  const auto& paddings = t.attr<Ints>("paddings");
  ASSIGN_OR_RETURN(auto windows, MakeWindows({.kernel = kernel,
                                              .strides = strides,
                                              .dilations = dilations,
                                              .paddings = paddings},
                                             grid.spatial));
  int64_t rows = grid.channels, columns = 1;
  for (size_t i = 0; i < 2; ++i) {
    ASSIGN_OR_RETURN(int64_t count, WindowCount(grid.spatial[i], windows[i]));
    rows *= windows[i].kernel;
    columns = count < 0 || columns < 0 ? -1 : columns * count;
  }
  if (grid.channels < 0) rows = -1;
  return std::vector<TensorType>{{x.dtype, {grid.batch, rows, columns}}};
}

Types PixelShuffleShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const std::string& format = t.attr<std::string>("data_format");
  int64_t factor = t.attr<int64_t>("upscale_factor");
  ASSIGN_OR_RETURN(Grid grid, ReadGrid(x.dims, 2, format));
  constexpr int64_t kMost = 1 << 20;  // its square must not overflow
  if (factor < 1 || factor > kMost ||
      (grid.channels >= 0 && grid.channels % (factor * factor) != 0)) {
    return InvalidArgument("the square of upscale_factor ", factor,
                           " must divide the ", grid.channels, " channels");
  }
  if (grid.channels > 0) grid.channels /= factor * factor;
  for (int64_t& n : grid.spatial) n = n < 0 ? n : n * factor;
  return std::vector<TensorType>{{x.dtype, WriteGrid(grid, format)}};
}

Types GridSampleShape(const OpTypes& t) {
  const Dims& x = t.in("X").dims;
  const Dims& grid = t.in("Grid").dims;
  bool fits = (x.size() == 4 || x.size() == 5) && grid.size() == x.size() &&
              !KnownToDiffer(grid[0], x[0]) &&
              !KnownToDiffer(grid.back(), static_cast<int64_t>(x.size()) - 2);
  if (!fits) {
    return InvalidArgument("grid must have shape [N, ..., ", x.size() - 2,
                           "] with the N of x, as many dimensions as x");
  }
  Dims dims{x[0] < 0 ? grid[0] : x[0], x[1]};
  dims.insert(dims.end(), grid.begin() + 1, grid.end() - 1);
  return std::vector<TensorType>{{t.in("X").dtype, dims}};
}

Types AffineGridShape(const OpTypes& t) {
  const Dims& theta = t.in("Theta").dims;
  const auto& size = t.attr<Ints>("output_shape");
  auto rank = static_cast<int64_t>(size.size()) - 2;
  if ((rank != 2 && rank != 3) || theta.size() != 3 ||
      KnownToDiffer(theta[0], size[0]) || KnownToDiffer(theta[1], rank) ||
      KnownToDiffer(theta[2], rank + 1)) {
    return InvalidArgument("theta ", ToString(theta),
                           " does not fit out_shape ", ToString(size));
  }
  Dims dims{size[0]};
  dims.insert(dims.end(), size.begin() + 2, size.end());
  dims.push_back(rank);
  return std::vector<TensorType>{{t.in("Theta").dtype, dims}};
}

// Pairs (before, behind) for the dimensions from `first` on.
Types Padded(TensorType out, const Ints& paddings, size_t first, size_t count) {
  if (paddings.size() != 2 * count || out.dims.size() < first + count) {
    return InvalidArgument("paddings has ", paddings.size(), " numbers for X ",
                           ToString(out.dims));
  }
  for (size_t i = 0; i < count; ++i) {
    if (paddings[2 * i] < 0 || paddings[2 * i + 1] < 0) {
      return InvalidArgument("paddings must not be negative");
    }
    int64_t& dim = out.dims[first + i];
    if (dim >= 0) dim += paddings[2 * i] + paddings[2 * i + 1];
  }
  return std::vector<TensorType>{out};
}

Types PadAllShape(const OpTypes& t) {
  return Padded(t.in("X"), t.attr<Ints>("paddings"), 0, t.in("X").dims.size());
}

Types Pad2dShape(const OpTypes& t) {
  const std::string& mode = t.attr<std::string>("mode");
  if (mode != "constant" && mode != "reflect" && mode != "edge") {
    return InvalidArgument(
        "mode must be 'constant', 'reflect' or 'edge', not '", mode, "'");
  }
  if (t.in("X").dims.size() != 4) {
    return InvalidArgument("X must have four dimensions, not ",
                           ToString(t.in("X").dims));
  }
  const bool last = ChannelsLast(t.attr<std::string>("data_format"));
  return Padded(t.in("X"), t.attr<Ints>("paddings"), last ? 1 : 2, 2);
}

void DefineGrids(OpDefiner& ops) {
  ops.Define(
      "pad3d(X; paddings: ints, mode: string = 'constant', "
      "value: float = 0.0) -> Out",
      PadShape, "X, Out' -> X'");
  // `scale`, one per spatial dimension, is what the user asked for; empty: the
  // quotient of the sizes.
  ops.Define(
      "interpolate(X; out_shape: ints, mode: string = 'nearest', "
      "align_corners: bool = false, align_mode: int = 0, scale: floats = [], "
      "data_format: string = 'NCHW') -> Out",
      InterpolateShape, "X, Out' -> X'");
  ops.Define(
      "unfold(X; kernel_sizes: ints, strides: ints = [1], "
      "paddings: ints = [0], dilations: ints = [1]) -> Y",
      UnfoldShape, "X, Y' -> X'");
  ops.Define(
         "pixel_shuffle(X; upscale_factor: int, data_format: string = 'NCHW') "
         "-> Out",
         PixelShuffleShape, "Out' -> X'")
      .Python(
          "nn.functional.vision.pixel_shuffle(x, upscale_factor, data_format, "
          "name)",
          "[N, C r r, H, W] as [N, C, H r, W r].");
  ops.Define(
         "grid_sampler(X, Grid; mode: string = 'bilinear', "
         "padding_mode: string = 'zeros', align_corners: bool = true) -> "
         "Output",
         GridSampleShape, "X, Grid, Output' -> X', Grid'")
      .Python(
          "nn.functional.vision.grid_sample(x, grid, mode, padding_mode, "
          "align_corners, name)",
          "x at the places that grid [N, H, W, 2] names, in coordinates from "
          "-1 to 1.");
  ops.Define(
      "affine_grid(Theta; output_shape: ints, align_corners: bool = true) -> "
      "Output",
      AffineGridShape, "Output' -> Theta'");
  ops.Define("pad(X; paddings: ints, pad_value: float = 0.0) -> Out",
             PadAllShape, "X, Out' -> X'");
  // paddings: top, bottom, left, right.
  ops.Define(
      "pad2d(X; paddings: ints, pad_value: float = 0.0, "
      "mode: string = 'constant', data_format: string = 'NCHW') -> Out",
      Pad2dShape, "X, Out' -> X'");
}

}  // namespace

void DefineConvOps(OpDefiner& ops) {
  DefineConvolutions(ops);
  DefinePools(ops);
  DefineGrids(ops);
}

void AddConvPrecisions(Precisions& listed) {
  listed.Add(
      Precision::kGray,
      {"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
       "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
       "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d_with_index",
       "max_pool2d_with_index", "max_pool3d_with_index", "pad", "pad2d",
       "pad3d", "pool2d", "pool3d"});
  listed.Add(Precision::kWhite, {"conv1d", "conv2d", "conv2d_transpose",
                                 "conv3d", "depthwise_conv2d"});
  listed.Add(Precision::kBlackAlways, {"interpolate"});
}

}  // namespace fleet::program
