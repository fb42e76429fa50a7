// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

// Ops that make tensors: constants, sequences, patterns and random numbers. A
// dtype of "none" is the default dtype, or that of the input where there is
// one.

namespace fleet::program {
namespace {

using Ints = std::vector<int64_t>;
using Types = Result<std::vector<TensorType>>;

std::vector<TensorType> One(DType dtype, Dims dims) {
  return {{dtype, std::move(dims)}};
}

DType DTypeOr(const OpTypes& t, DType otherwise) {
  DType dtype = t.dtype_attr("dtype");
  return dtype == DType::kNone ? otherwise : dtype;
}

// The attribute `shape`, or what the tensor ShapeTensor asks for.
Types NewShape(const OpTypes& t) {
  DType dtype = DTypeOr(t, DType::kFloat32);
  if (t.has("ShapeTensor")) {
    return One(dtype, DimsFromTensor(t, "ShapeTensor", "shape"));
  }
  const Ints& shape = t.attr<Ints>("shape");
  for (int64_t d : shape) {
    if (d < 0) {
      return InvalidArgument("shape ", ToString(shape), " has ", d,
                             ", but dimensions are not negative");
    }
  }
  return One(dtype, shape);
}

Types LikeX(const OpTypes& t) {
  return One(DTypeOr(t, t.in("X").dtype), t.in("X").dims);
}

// The attribute `shape`, with a dimension of Input in one place.
Types BatchSizeLike(const OpTypes& t) {
  Dims dims = t.attr<Ints>("shape");
  const Dims& input = t.in("Input").dims;
  ASSIGN_OR_RETURN(int64_t from, NormalizeAxis(t.attr<int64_t>("input_dim_idx"),
                                               input.size(), "input_dim_idx"));
  ASSIGN_OR_RETURN(int64_t to, NormalizeAxis(t.attr<int64_t>("output_dim_idx"),
                                             dims.size(), "output_dim_idx"));
  dims[to] = input[from];
  return One(DTypeOr(t, DType::kFloat32), dims);
}

Types AssignValueShape(const OpTypes& t) {
  const Ints& shape = t.attr<Ints>("shape");
  const DType dtype = DTypeOr(t, DType::kFloat32);
  int64_t given = 0;
  for (const char* name : {"bool_values", "int32_values", "int64_values"}) {
    given += static_cast<int64_t>(t.attr<Ints>(name).size());
  }
  for (const char* name : {"fp32_values", "fp64_values", "values"}) {
    given += static_cast<int64_t>(t.attr<std::vector<double>>(name).size());
  }
  if (NumElements(shape) != given) {
    return InvalidArgument("shape ", ToString(shape), " has ",
                           NumElements(shape), " elements but ", given,
                           " are given");
  }
  return One(dtype, shape);
}

Types RangeShape(const OpTypes& t) {
  DType dtype = DTypeOr(t, DType::kInt64);
  if (t.has("StartTensor") || t.has("EndTensor") || t.has("StepTensor"))
    return One(dtype, {-1});
  double start = t.attr<double>("start"), end = t.attr<double>("end");
  double step = t.attr<double>("step");
  if (step == 0) return InvalidArgument("step is 0");
  double count = std::ceil((end - start) / step);
  return One(dtype, {count > 0 ? static_cast<int64_t>(count) : 0});
}

Types LinspaceShape(const OpTypes& t) {
  DType dtype = DTypeOr(t, DType::kFloat32);
  if (t.has("NumTensor")) return One(dtype, {-1});
  int64_t num = t.attr<int64_t>("num");
  if (num < 1) return InvalidArgument("num is ", num, ", but must be positive");
  return One(dtype, {num});
}

Types EyeShape(const OpTypes& t) {
  int64_t rows = t.attr<int64_t>("num_rows");
  int64_t columns = t.attr<int64_t>("num_columns");
  if (rows < 0 || columns < -1) {
    return InvalidArgument("num_rows ", rows, " and num_columns ", columns,
                           " must not be negative");
  }
  return One(DTypeOr(t, DType::kFloat32), {rows, columns < 0 ? rows : columns});
}

Types TrilTriuShape(const OpTypes& t) {
  if (t.in("X").dims.size() < 2) {
    return InvalidArgument("x must have at least two dimensions");
  }
  return std::vector<TensorType>{t.in("X")};
}

Types DiagShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  int64_t offset = t.attr<int64_t>("offset");
  if (x.dims.size() == 1) {
    int64_t n = x.dims[0] == -1 ? -1 : x.dims[0] + std::abs(offset);
    return One(x.dtype, {n, n});
  }
  if (x.dims.size() != 2) {
    return InvalidArgument("x must have one or two dimensions");
  }
  if (x.dims[0] == -1 || x.dims[1] == -1) return One(x.dtype, {-1});
  int64_t rows = x.dims[0] + std::min<int64_t>(offset, 0);
  int64_t columns = x.dims[1] - std::max<int64_t>(offset, 0);
  return One(x.dtype, {std::max<int64_t>(0, std::min(rows, columns))});
}

Types MeshgridShape(const OpTypes& t) {
  Dims dims;
  std::vector<TensorType> out;
  for (const TensorType& x : t.list("X")) {
    if (x.dims.size() > 1) {
      return InvalidArgument(
          "each of the tensors must have one dimension, not ",
          ToString(x.dims));
    }
    DType first = t.list("X")[0].dtype;
    if (x.dtype != first) {
      return InvalidArgument("the tensors must have one element type, not ",
                             Name(first), " and ", Name(x.dtype));
    }
    dims.push_back(x.dims.empty() ? 1 : x.dims[0]);
  }
  if (dims.empty()) return InvalidArgument("no tensors given");
  for (const TensorType& x : t.list("X")) out.push_back({x.dtype, dims});
  return out;
}

void DefineConstants(OpDefiner& ops) {
  ops.Define(
      "fill_constant(ShapeTensor?, ValueTensor?; shape: ints = [], "
      "value: float = 0.0, str_value: string = '', dtype: dtype = none) "
      "-> Out!",
      NewShape);
  ops.Define(
         "fill_any_like(X; value: float = 0.0, dtype: dtype = none) -> "
         "Out!",
         LikeX)
      .Python("tensor.creation.zeros_like(x, value:=0.0, dtype, name)",
              "A tensor of zeros with the shape and type of x.")
      .Python("tensor.creation.ones_like(x, value:=1.0, dtype, name)",
              "A tensor of ones with the shape and type of x.");
  ops.Define("fill_zeros_like(X) -> Out!", SameAs("X"));
  const std::string like =
      "_batch_size_like(Input; shape: ints, input_dim_idx: int = 0, "
      "output_dim_idx: int = 0, dtype: dtype = none, ";
  ops.Define("fill_constant" + like +
                 "value: float = 0.0, str_value: string = '') -> Out!",
             BatchSizeLike);
  ops.Define("uniform_random" + like +
                 "min: float = -1.0, max: float = 1.0, seed: int = 0) -> Out!",
             BatchSizeLike);
  ops.Define("gaussian_random" + like +
                 "mean: float = 0.0, std: float = 1.0, seed: int = 0) -> Out!",
             BatchSizeLike);
  // The numbers stand in the list of their type, or, as newer programs do it,
  // in `values`.
  ops.Define(
      "assign_value(; shape: ints, dtype: dtype, bool_values: ints = [], "
      "fp32_values: floats = [], fp64_values: floats = [], "
      "int32_values: ints = [], int64_values: ints = [], values: floats = []) "
      "-> Out!",
      AssignValueShape);
  ops.Define(
      "empty(ShapeTensor?; shape: ints = [], dtype: dtype = none) -> Out!",
      NewShape);
  ops.Define("empty_like(X; dtype: dtype = none) -> Out!", LikeX)
      .Python("tensor.creation.empty_like(x, dtype, name)",
              "A tensor of the shape and type of x with whatever its memory "
              "held before.");
  ops.Define(
      "range(StartTensor?, EndTensor?, StepTensor?; start: float = 0.0, end: "
      "float = 0.0, "
      "step: float = 1.0, dtype: dtype = none) -> Out!",
      RangeShape);
  ops.Define(
      "linspace(StartTensor?, StopTensor?, NumTensor?; start: float = 0.0, "
      "stop: float = 1.0, "
      "num: int = 100, dtype: dtype = none) -> Out!",
      LinspaceShape);
  ops.Define(
      "eye(; num_rows: int, num_columns: int = -1, dtype: dtype = none) "
      "-> Out!",
      EyeShape);
}

void DefinePatterns(OpDefiner& ops) {
  ops.Define("tril_triu(X; diagonal: int = 0, lower: bool = true) -> Out",
             TrilTriuShape, "Out' -> X'")
      .Python("tensor.creation.tril(x, diagonal, lower:=True, name)",
              "The lower triangle of matrices, zeros elsewhere.")
      .Python("tensor.creation.triu(x, diagonal, lower:=False, name)",
              "The upper triangle of matrices, zeros elsewhere.");
  ops.Define("diag_v2(X; offset: int = 0, padding_value: float = 0.0) -> Out",
             DiagShape, "X, Out' -> X'")
      .Python("tensor.creation.diag(x, offset, padding_value=0, name)",
              "The diagonal of a matrix, or a matrix with the vector x on its "
              "diagonal and `padding_value` elsewhere.");
  ops.Define("meshgrid(X*) -> Out*", MeshgridShape, "X, Out' -> X'");
}

// ---- random numbers

Types RandintShape(const OpTypes& t) {
  int64_t low = t.attr<int64_t>("low"), high = t.attr<int64_t>("high");
  if (low >= high) {
    return InvalidArgument("low ", low, " must be below high ", high);
  }
  return NewShape(t);
}

Types RandpermShape(const OpTypes& t) {
  int64_t n = t.attr<int64_t>("n");
  if (n < 0) return InvalidArgument("n is ", n);
  return One(DTypeOr(t, DType::kInt64), {n});
}

Types MultinomialShape(const OpTypes& t) {
  const Dims& x = t.in("X").dims;
  int64_t samples = t.attr<int64_t>("num_samples");
  if (samples < 1) return InvalidArgument("num_samples is ", samples);
  if (x.empty() || x.size() > 2) {
    return InvalidArgument("x must have one or two dimensions");
  }
  if (!t.attr<bool>("replacement") && x.back() != -1 && samples > x.back()) {
    return InvalidArgument("num_samples ", samples,
                           " without replacement from ", x.back(),
                           " categories");
  }
  Dims dims = x;
  dims.back() = samples;
  return One(DType::kInt64, dims);
}

void DefineRandom(OpDefiner& ops) {
  // A seed of 0 draws from the generator of the process.
  ops.Define(
      "gaussian_random(ShapeTensor?; shape: ints = [], mean: float = 0.0, "
      "std: float = 1.0, seed: int = 0, dtype: dtype = none) -> Out!",
      NewShape);
  ops.Define(
      "truncated_gaussian_random(ShapeTensor?; shape: ints = [], "
      "mean: float = 0.0, std: float = 1.0, seed: int = 0, "
      "dtype: dtype = none) -> Out!",
      NewShape);
  ops.Define(
      "uniform_random(ShapeTensor?; shape: ints = [], min: float = -1.0, "
      "max: float = 1.0, seed: int = 0, dtype: dtype = none) -> Out!",
      NewShape);
  ops.Define(
      "randint(ShapeTensor?; shape: ints = [], low: int = 0, high: int, "
      "seed: int = 0, dtype: dtype = int64) -> Out!",
      RandintShape);
  ops.Define("randperm(; n: int, seed: int = 0, dtype: dtype = int64) -> Out!",
             RandpermShape);
  ops.Define("bernoulli(X) -> Out!", SameAs("X"))
      .Python("tensor.random.bernoulli(x, name)",
              "Ones with the probabilities in x, and zeros.");
  ops.Define("poisson(X) -> Out!", SameAs("X"))
      .Python("tensor.random.poisson(x, name)",
              "Counts from the Poisson distributions with the rates in x.");
  ops.Define(
         "multinomial(X; num_samples: int = 1, replacement: bool = false) -> "
         "Out!",
         MultinomialShape)
      .Python("tensor.random.multinomial(x, num_samples, replacement, name)",
              "Indices drawn with probabilities in proportion to x, along its "
              "last dimension.");
}

}  // namespace

void DefineCreationOps(OpDefiner& ops) {
  DefineConstants(ops);
  DefinePatterns(ops);
  DefineRandom(ops);
}

void AddCreationPrecisions(Precisions& listed) {
  listed.Add(Precision::kGray, {"fill_constant"});
}

}  // namespace fleet::program
