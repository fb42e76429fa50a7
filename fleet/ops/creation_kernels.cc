// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/diagonal.h>
#include <ATen/ops/diagonal_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/ops/kernels.h"
#include "fleet/ops/shape_argument.h"

namespace fleet::ops {
namespace {

using at::IntArrayRef;
using at::Tensor;
using at::TensorList;

at::TensorOptions Options(DType dtype, const Context& context) {
  return at::TensorOptions(ToScalarType(dtype == DType::kNone
                                            ? context.default_dtype
                                            : dtype))
      .device(context.device);
}

at::TensorOptions OptionsLike(const Tensor& x, DType dtype) {
  return dtype == DType::kNone ? x.options()
                               : x.options().dtype(ToScalarType(dtype));
}

// A number as the element type can hold it; integers that a double would round
// come as text.
at::Scalar Number(double value, const std::string& text, at::ScalarType type) {
  if (at::isIntegralType(type, /*includeBool=*/false)) {
    if (!text.empty()) return at::Scalar(int64_t{std::stoll(text)});
    TORCH_CHECK(std::isfinite(value), "value ", value, " is no integer");
    return at::Scalar(static_cast<int64_t>(value));
  }
  return at::Scalar(text.empty() ? value : std::stod(text));
}

std::vector<int64_t> NewShape(const Tensor& shape_tensor, IntArrayRef shape) {
  std::vector<int64_t> dims = IntsOf(shape_tensor, shape);
  for (int64_t d : dims) TORCH_CHECK(d >= 0, "shape ", dims, " has ", d);
  return dims;
}

Tensor FillConstant(const Tensor& shape_tensor, const Tensor& value_tensor,
                    IntArrayRef shape, double value, const std::string& text,
                    DType dtype, const Context& context) {
  at::TensorOptions options = Options(dtype, context);
  std::vector<int64_t> dims = NewShape(shape_tensor, shape);
  if (value_tensor.defined()) {
    TORCH_CHECK(value_tensor.numel() == 1, "the value has ",
                value_tensor.numel(), " elements instead of one");
    Tensor one = value_tensor.to(options).reshape({});
    return one.expand(dims).clone(at::MemoryFormat::Contiguous);
  }
  return at::full(
      dims, Number(value, text, c10::typeMetaToScalarType(options.dtype())),
      options);
}

Tensor FillAnyLike(const Tensor& x, double value, DType dtype) {
  at::TensorOptions options = OptionsLike(x, dtype);
  return at::full(x.sizes(),
                  Number(value, "", c10::typeMetaToScalarType(options.dtype())),
                  options);
}

// ---- shapes with the batch size of another tensor

Tensor FillLikeBatch(const Tensor& input, IntArrayRef shape, int64_t from,
                     int64_t to, DType dtype, double value,
                     const std::string& text) {
  at::TensorOptions options = input.options().dtype(
      ToScalarType(dtype == DType::kNone ? DType::kFloat32 : dtype));
  return at::full(
      ShapeLikeBatch(input, shape, from, to),
      Number(value, text, c10::typeMetaToScalarType(options.dtype())), options);
}

// ---- numbers that the program holds

template <class T>
Tensor FromNumbers(at::ArrayRef<T> numbers, at::ScalarType type) {
  Tensor out = at::empty({static_cast<int64_t>(numbers.size())}, type);
  std::copy(numbers.begin(), numbers.end(), out.mutable_data_ptr<T>());
  return out;
}

Tensor AssignValue(IntArrayRef shape, DType dtype, IntArrayRef bools,
                   at::ArrayRef<double> floats, at::ArrayRef<double> doubles,
                   IntArrayRef ints, IntArrayRef longs,
                   at::ArrayRef<double> values, const Context& context) {
  Tensor numbers;
  for (IntArrayRef list : {bools, ints, longs}) {
    if (!list.empty()) numbers = FromNumbers(list, at::kLong);
  }
  for (at::ArrayRef<double> list : {floats, doubles, values}) {
    if (!list.empty()) numbers = FromNumbers(list, at::kDouble);
  }
  at::TensorOptions options = Options(dtype, context);
  if (!numbers.defined()) return at::empty(shape, options);
  return numbers.reshape(shape).to(options);
}

double ValueOf(const Tensor& given, double otherwise) {
  return given.defined() ? given.item().toDouble() : otherwise;
}

Tensor Range(const Tensor& start_tensor, const Tensor& end_tensor,
             const Tensor& step_tensor, double start, double end, double step,
             DType dtype, const Context& context) {
  start = ValueOf(start_tensor, start);
  end = ValueOf(end_tensor, end);
  step = ValueOf(step_tensor, step);
  TORCH_CHECK(step != 0, "step is 0");
  at::TensorOptions options =
      Options(dtype == DType::kNone ? DType::kInt64 : dtype, context);
  // ATen refuses a range that runs the wrong way; to numpy and Paddle it is
  // empty.
  if (step > 0 ? start >= end : start <= end) return at::empty({0}, options);
  at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  if (!at::isIntegralType(type, false)) {
    return at::arange(start, end, step, options);
  }
  if (start != std::floor(start) || step != std::floor(step)) {
    // Counted in fractions, then cut: ATen would cut the step to zero.
    return at::arange(start, end, step, options.dtype(at::kDouble)).to(type);
  }
  double whole_end = step > 0 ? std::ceil(end) : std::floor(end);
  return at::arange(static_cast<int64_t>(start),
                    static_cast<int64_t>(whole_end), static_cast<int64_t>(step),
                    options);
}

Tensor Linspace(const Tensor& start_tensor, const Tensor& stop_tensor,
                const Tensor& num_tensor, double start, double stop,
                int64_t num, DType dtype, const Context& context) {
  start = ValueOf(start_tensor, start);
  stop = ValueOf(stop_tensor, stop);
  if (num_tensor.defined()) num = num_tensor.item().toLong();
  TORCH_CHECK(num >= 1, "num is ", num, ", but must be positive");
  return at::linspace(start, stop, num, Options(dtype, context));
}

Tensor Eye(int64_t rows, int64_t columns, DType dtype, const Context& context) {
  return at::eye(rows, columns < 0 ? rows : columns, Options(dtype, context));
}

// ---- forms: a plan fills what is the same in all runs once

bool FillLikeForm(BareCall& c) {
  const int out = c.Out(0);
  return c.IsFloat(out) &&
         c.Fill(out, static_cast<float>(c.attr<double>("value")));
}

bool FillForm(BareCall& c) {
  return c.inputs().empty() && c.attr<std::string>("str_value").empty() &&
         FillLikeForm(c);
}

void AddConstants(KernelTable& k) {
  k.Add<FillConstant>("fill_constant");
  k.OnMemory("fill_constant", FillForm, nullptr);
  k.Add<FillAnyLike>("fill_any_like");
  k.OnMemory("fill_any_like", FillLikeForm, nullptr);
  k.Add<[](const Tensor& x) { return at::zeros_like(x); }>("fill_zeros_like");
  k.Add<FillLikeBatch>("fill_constant_batch_size_like");
  k.Add<AssignValue>("assign_value");
  k.Add<[](const Tensor& shape_tensor, IntArrayRef shape, DType dtype,
           const Context& context) {
    return at::empty(NewShape(shape_tensor, shape), Options(dtype, context));
  }>("empty");
  k.Add<[](const Tensor& x, DType dtype) {
    return at::empty(x.sizes(), OptionsLike(x, dtype));
  }>("empty_like");
  k.Add<Range>("range");
  k.Add<Linspace>("linspace");
  k.Add<Eye>("eye");
}

// ---- patterns

Tensor TrilTriu(const Tensor& x, int64_t diagonal, bool lower) {
  TORCH_CHECK(x.dim() >= 2, "x must have at least two dimensions");
  return lower ? at::tril(x, diagonal) : at::triu(x, diagonal);
}

// A vector becomes a square matrix with it on the diagonal and `padding`
// around; of a matrix, the diagonal is taken.
Tensor Diag(const Tensor& x, int64_t offset, double padding) {
  TORCH_CHECK(x.dim() == 1 || x.dim() == 2,
              "x must have one or two dimensions");
  if (x.dim() == 2) return at::diagonal(x, offset).clone();
  Tensor out = at::diag_embed(x, offset);
  if (padding == 0) return out;
  Tensor on = at::diag_embed(at::ones_like(x, at::kBool), offset);
  Tensor around =
      at::full({}, Number(padding, "", x.scalar_type()), x.options());
  return at::where(on, out, around);
}
Tensor DiagGrad(const Tensor& x, const Tensor& dout, int64_t offset, double) {
  if (x.dim() == 1) return at::diagonal(dout, offset);
  return at::diagonal_backward(dout, x.sizes(), offset, 0, 1);
}

std::vector<Tensor> Meshgrid(TensorList x) {
  TORCH_CHECK(!x.empty(), "no tensors given");
  std::vector<int64_t> shape;
  for (const Tensor& axis : x) {
    TORCH_CHECK(axis.dim() <= 1, "each of the tensors must have one dimension");
    TORCH_CHECK(axis.scalar_type() == x[0].scalar_type(), "they are ",
                x[0].scalar_type(), " and ", axis.scalar_type());
    shape.push_back(axis.numel());
  }
  std::vector<Tensor> out;
  for (size_t i = 0; i < x.size(); ++i) {
    std::vector<int64_t> along(x.size(), 1);
    along[i] = shape[i];
    out.push_back(x[i].reshape(along).expand(shape));
  }
  return out;
}
std::vector<Tensor> MeshgridGrad(TensorList x, TensorList dout) {
  std::vector<Tensor> grads;
  for (size_t i = 0; i < x.size(); ++i) {
    std::vector<int64_t> along(x.size(), 1);
    along[i] = x[i].numel();
    grads.push_back(at::sum_to(dout[i], along).reshape(x[i].sizes()));
  }
  return grads;
}

void AddPatterns(KernelTable& k) {
  k.Add<TrilTriu, TrilTriu>("tril_triu");
  k.Add<Diag, DiagGrad>("diag_v2");
  k.Add<Meshgrid, MeshgridGrad>("meshgrid");
}

}  // namespace

void AddCreationKernels(KernelTable& kernels) {
  AddConstants(kernels);
  AddPatterns(kernels);
}

}  // namespace fleet::ops
