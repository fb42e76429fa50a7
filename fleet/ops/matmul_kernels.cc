// SPDX-License-Identifier: Apache-2.0
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sum.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/eager/backward.h"
#include "fleet/ops/gemm.h"
#include "fleet/ops/gpu_kernels.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/reduction.h"
#include "fleet/ops/sums.h"

namespace fleet::ops {
namespace {

using at::Tensor;

// A matrix as Gemm() reads it: rows one behind the other, perhaps of its
// transpose.
struct Operand {
  Operand(const Tensor& x, bool transposed) : rows(x), transposed(transposed) {
    if (x.is_contiguous()) return;
    if (x.t().is_contiguous()) {
      rows = x.t();
      this->transposed = !transposed;
    } else {
      rows = x.contiguous();
    }
  }

  Tensor rows;
  bool transposed;
};

// The product of two matrices, in `out` if that is given. `trans_*` read an
// operand as its transpose.
Tensor Multiply(const Tensor& a, bool trans_a, const Tensor& b, bool trans_b,
                const Tensor& bias = {}, Tensor out = {}) {
  const Operand left(a, trans_a), right(b, trans_b);
  GemmShape s{.m = a.size(trans_a ? 1 : 0),
              .n = b.size(trans_b ? 0 : 1),
              .k = a.size(trans_a ? 0 : 1),
              .trans_a = left.transposed,
              .trans_b = right.transposed};
  if (!out.defined()) out = at::empty({s.m, s.n}, a.options());
  Gemm(s, left.rows.const_data_ptr<float>(), right.rows.const_data_ptr<float>(),
       bias.defined() ? bias.const_data_ptr<float>() : nullptr,
       out.mutable_data_ptr<float>());
  return out;
}

bool GemmTakes(const Tensor& a, const Tensor& b) {
  return GemmIsFast() && FastOnCpu(a, b) && a.numel() > 0 && b.numel() > 0;
}

// The last dimension of `x` as rows; it may be empty.
Tensor Rows(const Tensor& x) {
  return x.reshape(
      {c10::multiply_integers(x.sizes().slice(0, x.dim() - 1)), x.size(-1)});
}

// ---- fc

Tensor Fc(const Tensor& input, const Tensor& w, const Tensor& bias) {
  TORCH_CHECK(w.dim() == 2 && input.dim() > 0 && input.size(-1) == w.size(0),
              "shapes do not fit");
  TORCH_CHECK(input.scalar_type() == w.scalar_type(), "input is ",
              input.scalar_type(), " but the weight is ", w.scalar_type());
  TORCH_CHECK(!bias.defined() || (bias.numel() == w.size(1) &&
                                  bias.scalar_type() == w.scalar_type()),
              "the bias is not like the weight");
  Tensor x = Rows(input);
  std::vector<int64_t> shape(input.sizes().begin(), input.sizes().end());
  shape.back() = w.size(1);
  if (GemmTakes(x, w) && (!bias.defined() || bias.is_contiguous())) {
    Tensor out = Multiply(x, false, w, false, bias);
    return input.dim() == 2 ? out : out.view(shape);
  }
  if (bias.defined() && x.device().is_cuda()) {  // one launch
    return at::addmm(bias.reshape({-1}), x, w).reshape(shape);
  }
  Tensor out = at::matmul(x, w);
  if (bias.defined()) out = out + bias;
  return out.reshape(shape);
}

std::tuple<Tensor, Tensor, Tensor> FcGrad(const Tensor& input, const Tensor& w,
                                          const Tensor& bias,
                                          const Tensor& dout, GradNeeds needs) {
  Tensor x = Rows(input);
  Tensor dy = Rows(dout);
  if (dy.device().is_cpu()) dy = dy.contiguous();  // as in MatmulGrad
  Tensor dx, dw, db;
  // Each is chosen by its own operands, as in MatmulGrad.
  if (needs[0]) {
    dx =
        GemmTakes(dy, w) ? Multiply(dy, false, w, true) : at::matmul(dy, w.t());
    if (input.dim() != 2) dx = dx.reshape(input.sizes());
  }
  if (needs[1]) {
    dw = GemmTakes(x, dy) ? Multiply(x, true, dy, false, {},
                                     EmptyGradient(1, w.sizes(), w.options()))
                          : at::matmul(x.t(), dy);
  }
  if (needs[2] && bias.defined()) {
    if (FastOnCpu(dy) && dy.numel() > 0) {
      db = EmptyGradient(2, {w.size(1)}, dy.options());
      ColumnSums(dy.size(0), dy.size(1), dy.const_data_ptr<float>(),
                 db.mutable_data_ptr<float>());
    } else {
      db = Recording() ? Tensor() : GpuSumTo(dy, {w.size(1)});
      if (!db.defined()) db = at::sum(dy, {0});
    }
    if (bias.dim() != 1) db = db.reshape(bias.sizes());
  }
  return {dx, dw, db};
}

// ---- matmul_v2

Tensor Transposed(const Tensor& x, bool transposed) {
  return transposed ? x.transpose(-2, -1) : x;
}

// Whether a stack of matrices times one matrix is one product of all rows, as
// it is in Fc: both then agree to the bit.
bool IsOneProduct(const Tensor& x, const Tensor& y, bool trans_x) {
  return x.dim() > 2 && y.dim() == 2 && !trans_x && x.numel() > 0 &&
         y.numel() > 0 && x.device().is_cpu() && x.is_floating_point() &&
         !(Recording() && (x.requires_grad() || y.requires_grad()));
}

// at::matmul() makes one product of a stack and one matrix, or many, by whether
// somebody asks for the gradient of the matrix. Here nobody does: an eager call
// and an operation of a program then agree to the bit.
Tensor Product(const Tensor& a, bool trans_a, const Tensor& b, bool trans_b) {
  if (Recording()) {
    return at::matmul(Transposed(a, trans_a), Transposed(b, trans_b));
  }
  const auto value = [](const Tensor& x, bool transposed) {
    return Transposed(Packed(x.requires_grad() ? x.detach() : x), transposed);
  };
  return at::matmul(value(a, trans_a), value(b, trans_b));
}

Tensor Matmul(const Tensor& x, const Tensor& y, bool trans_x, bool trans_y) {
  TORCH_CHECK(x.scalar_type() == y.scalar_type(), "X is ", x.scalar_type(),
              " but Y is ", y.scalar_type());
  if (IsOneProduct(x, y, trans_x)) {
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = y.size(trans_y ? 0 : 1);
    return Matmul(Rows(x), y, false, trans_y).view(shape);
  }
  if (x.dim() == 2 && y.dim() == 2) {
    TORCH_CHECK(x.size(trans_x ? 0 : 1) == y.size(trans_y ? 1 : 0),
                "inner dimensions differ");
    if (GemmTakes(x, y)) return Multiply(x, trans_x, y, trans_y);
  }
  if (!x.device().is_cpu() && at::isIntegralType(x.scalar_type(), true)) {
    // GPUs have no products of integers.
    return Matmul(x.cpu(), y.cpu(), trans_x, trans_y).to(x.device());
  }
  Tensor out = Product(x, trans_x && x.dim() > 1, y, trans_y && y.dim() > 1);
  return out.dim() == 0 ? out.reshape({1}) : out;
}

// dX of op(X) op(Y) = Out for two matrices, or stacks of them.
Tensor LeftGrad(const Tensor& y, const Tensor& dout, bool trans_x,
                bool trans_y) {
  if (dout.dim() == 2 && y.dim() == 2 && GemmTakes(dout, y)) {
    return trans_x ? Multiply(y, trans_y, dout, true)
                   : Multiply(dout, false, y, !trans_y);
  }
  Tensor left = Product(dout, false, y, !trans_y);
  return Transposed(left, trans_x);
}

Tensor RightGrad(const Tensor& x, const Tensor& dout, bool trans_x,
                 bool trans_y) {
  if (dout.dim() == 2 && x.dim() == 2 && GemmTakes(x, dout)) {
    return trans_y ? Multiply(dout, true, x, trans_x)
                   : Multiply(x, !trans_x, dout, false);
  }
  Tensor right = Product(x, !trans_x, dout, false);
  return Transposed(right, trans_y);
}

std::tuple<Tensor, Tensor> MatmulGrad(const Tensor& x, const Tensor& y,
                                      const Tensor& dout, bool trans_x,
                                      bool trans_y, GradNeeds needs) {
  if (IsOneProduct(x, y, trans_x) && !(Recording() && dout.requires_grad())) {
    auto [dx, dy] = MatmulGrad(Rows(x), y, Rows(dout), false, trans_y, needs);
    if (dx.defined()) dx = dx.reshape(x.sizes());
    return {dx, dy};
  }
  // A vector takes part as a row or a column; its gradient loses that again.
  Tensor a = x, b = y, d = dout;
  if (x.dim() == 1 && y.dim() == 1) d = dout.reshape({1, 1});
  if (x.dim() == 1 && y.dim() > 1) d = dout.unsqueeze(-2);
  if (y.dim() == 1 && x.dim() > 1) d = dout.unsqueeze(-1);
  if (x.dim() == 1) {
    a = x.unsqueeze(0);
    trans_x = false;
  }
  if (y.dim() == 1) {
    b = y.unsqueeze(1);
    trans_y = false;
  }
  if (d.device().is_cpu()) d = d.contiguous();
  Tensor dx, dy;
  if (needs[0]) {
    dx = at::sum_to(LeftGrad(b, d, trans_x, trans_y), a.sizes())
             .reshape(x.sizes());
  }
  if (needs[1]) {
    dy = at::sum_to(RightGrad(a, d, trans_x, trans_y), b.sizes())
             .reshape(y.sizes());
  }
  return {dx, dy};
}

// ---- matmul, the older one

Tensor ScaledMatmul(const Tensor& x, const Tensor& y, bool trans_x,
                    bool trans_y, double alpha) {
  Tensor out = Matmul(x, y, trans_x, trans_y);
  return alpha == 1 ? out : out * alpha;
}

std::tuple<Tensor, Tensor> ScaledMatmulGrad(const Tensor& x, const Tensor& y,
                                            const Tensor& dout, bool trans_x,
                                            bool trans_y, double alpha,
                                            GradNeeds needs) {
  return MatmulGrad(x, y, alpha == 1 ? dout : dout * alpha, trans_x, trans_y,
                    needs);
}

// ---- mul

// `x` as a matrix whose rows are the first `num_rows_dims` dimensions.
Tensor AsMatrix(const Tensor& x, int64_t num_row_dims) {
  TORCH_CHECK(num_row_dims >= 1 && num_row_dims < x.dim(),
              "the number of row dimensions does not fit");
  if (x.dim() == 2) return x;
  int64_t rows = 1, columns = 1;
  for (int64_t i = 0; i < x.dim(); ++i) {
    (i < num_row_dims ? rows : columns) *= x.size(i);
  }
  return x.reshape({rows, columns});
}

Tensor Mul(const Tensor& x, const Tensor& y, int64_t x_rows, int64_t y_rows) {
  Tensor out = Matmul(AsMatrix(x, x_rows), AsMatrix(y, y_rows), false, false);
  if (x.dim() == 2 && y.dim() == 2) return out;
  std::vector<int64_t> shape = x.sizes().slice(0, x_rows).vec();
  for (int64_t n : y.sizes().slice(y_rows)) shape.push_back(n);
  return out.reshape(shape);
}

std::tuple<Tensor, Tensor> MulGrad(const Tensor& x, const Tensor& y,
                                   const Tensor& dout, int64_t x_rows,
                                   int64_t y_rows, GradNeeds needs) {
  Tensor a = AsMatrix(x, x_rows), b = AsMatrix(y, y_rows);
  auto [da, db] = MatmulGrad(a, b, dout.reshape({a.size(0), b.size(1)}), false,
                             false, needs);
  if (da.defined()) da = da.reshape(x.sizes());
  if (db.defined()) db = db.reshape(y.sizes());
  return {da, db};
}

// ---- bilinear_tensor_product

// x times each matrix of w [k, ...]. matmul() would choose its products by
// whether somebody asks for gradients, and an eager call would then differ from
// a program in the last bit.
Tensor TimesEach(const Tensor& x, const Tensor& w) {
  return at::bmm(x.unsqueeze(0).expand({w.size(0), x.size(0), x.size(1)}), w);
}

Tensor Bilinear(const Tensor& x, const Tensor& y, const Tensor& w,
                const Tensor& bias) {
  Tensor left = TimesEach(x, w);  // [k, n, columns of w]
  Tensor out = at::sum(left * y, {2}).t();
  return bias.defined() ? out + bias.reshape({1, -1}) : out.contiguous();
}

std::tuple<Tensor, Tensor, Tensor, Tensor> BilinearGrad(
    const Tensor& x, const Tensor& y, const Tensor& w, const Tensor& bias,
    const Tensor& dout, GradNeeds needs) {
  Tensor d = dout.t().unsqueeze(2);  // [k, n, 1]
  Tensor dx, dy, dw, db;
  if (needs[0]) dx = at::sum(at::matmul(d * y, w.transpose(1, 2)), {0});
  if (needs[1]) dy = at::sum(d * TimesEach(x, w), {0});
  if (needs[2]) dw = TimesEach(x.t(), d * y);
  if (needs[3] && bias.defined()) {
    db = at::sum(dout, {0}).reshape(bias.sizes());
  }
  return {dx, dy, dw, db};
}

}  // namespace

void AddMatmulKernels(KernelTable& kernels) {
  kernels.Add<Fc, FcGrad>("fc");
  kernels.Add<Matmul, MatmulGrad>("matmul_v2");
  kernels.Add<ScaledMatmul, ScaledMatmulGrad>("matmul");
  kernels.Add<Mul, MulGrad>("mul");
  kernels.Add<Bilinear, BilinearGrad>("bilinear_tensor_product");
}

}  // namespace fleet::ops
