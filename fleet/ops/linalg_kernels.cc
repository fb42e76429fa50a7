// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/diagonal.h>
#include <ATen/ops/diagonal_backward.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_cholesky.h>
#include <ATen/ops/linalg_cross.h>
#include <ATen/ops/linalg_det.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/linalg_inv_ex.h>
#include <ATen/ops/linalg_matrix_power.h>
#include <ATen/ops/linalg_pinv.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_slogdet.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/ops/broadcast.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/reduction.h"

// Gradients are written for real matrices. A prime below is a transpose, dA the
// gradient of A.

namespace fleet::ops {
namespace {

using at::Tensor;
using TensorPair = std::tuple<Tensor, Tensor>;

Tensor T(const Tensor& x) { return x.transpose(-2, -1); }

Tensor Mul(const Tensor& a, const Tensor& b, const Tensor& c) {
  return at::matmul(at::matmul(a, b), c);
}

// One number for each matrix, so that it broadcasts over them.
Tensor PerMatrix(const Tensor& x, at::IntArrayRef matrix_sizes) {
  std::vector<int64_t> shape(matrix_sizes.begin(), matrix_sizes.end());
  shape.end()[-1] = shape.end()[-2] = 1;
  return x.reshape(shape);
}

// ---- products

void CheckSameShape(const Tensor& x, const Tensor& y) {
  TORCH_CHECK(x.sizes() == y.sizes(), "X and Y must have one shape");
}

Tensor Dot(const Tensor& x, const Tensor& y) {
  CheckSameShape(x, y);
  TORCH_CHECK(x.dim() == 1 || x.dim() == 2, "X and Y must be vectors");
  Tensor product = x * y;
  return at::sum(product, {-1}, true, product.scalar_type());
}
TensorPair DotGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                   GradNeeds needs) {
  return {needs[0] ? Unbroadcast(dout * y, x) : Tensor(),
          needs[1] ? Unbroadcast(dout * x, y) : Tensor()};
}

Tensor Addmm(const Tensor& input, const Tensor& x, const Tensor& y,
             double alpha, double beta) {
  return at::addmm(input, x, y, beta, alpha);
}
std::tuple<Tensor, Tensor, Tensor> AddmmGrad(const Tensor& input,
                                             const Tensor& x, const Tensor& y,
                                             const Tensor& dout, double alpha,
                                             double beta, GradNeeds needs) {
  return {needs[0] ? Unbroadcast(dout * beta, input) : Tensor(),
          needs[1] ? at::matmul(dout, y.t()) * alpha : Tensor(),
          needs[2] ? at::matmul(x.t(), dout) * alpha : Tensor()};
}

// 9, the definition's default, is the first dimension that is 3.
int64_t CrossAxis(const Tensor& x, int64_t dim) {
  if (dim != 9) return dim;
  auto it = std::find(x.sizes().begin(), x.sizes().end(), 3);
  TORCH_CHECK(it != x.sizes().end(), "no dimension is 3");
  return it - x.sizes().begin();
}
Tensor Cross(const Tensor& x, const Tensor& y, int64_t dim) {
  CheckSameShape(x, y);
  return at::linalg_cross(x, y, CrossAxis(x, dim));
}
TensorPair CrossGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                     int64_t dim, GradNeeds needs) {
  int64_t axis = CrossAxis(x, dim);
  return {needs[0] ? at::linalg_cross(y, dout, axis) : Tensor(),
          needs[1] ? at::linalg_cross(dout, x, axis) : Tensor()};
}

// Views of x and y in which their product, element by element, is the Kronecker
// product: [a1, 1, a2, 1, ...] and [1, b1, 1, b2, ...].
TensorPair Interleaved(const Tensor& x, const Tensor& y) {
  int64_t rank = std::max(x.dim(), y.dim());
  std::vector<int64_t> a, b;
  for (int64_t i = 0; i < rank; ++i) {
    int64_t m = i - (rank - x.dim()), n = i - (rank - y.dim());
    a.push_back(m >= 0 ? x.size(m) : 1);
    a.push_back(1);
    b.push_back(1);
    b.push_back(n >= 0 ? y.size(n) : 1);
  }
  return {x.reshape(a), y.reshape(b)};
}
Tensor Kron(const Tensor& x, const Tensor& y) {
  auto [a, b] = Interleaved(x, y);
  Tensor product = a * b;
  std::vector<int64_t> shape;
  for (int64_t i = 0; i < product.dim(); i += 2) {
    shape.push_back(product.size(i) * product.size(i + 1));
  }
  return product.reshape(shape);
}
TensorPair KronGrad(const Tensor& x, const Tensor& y, const Tensor& dout,
                    GradNeeds needs) {
  auto [a, b] = Interleaved(x, y);
  std::vector<int64_t> shape;
  for (int64_t i = 0; i < a.dim(); ++i) {
    shape.push_back(a.size(i) * b.size(i));
  }
  Tensor d = dout.reshape(shape);
  Tensor dx, dy;
  if (needs[0]) dx = Unbroadcast(d * b, a).reshape(x.sizes());
  if (needs[1]) dy = Unbroadcast(d * a, b).reshape(y.sizes());
  return {dx, dy};
}

// ---- norms

// The gradient of out = (sum |x|^p)^(1/p), where out and dout broadcast over x.
// Zero where the norm has a corner at zero.
Tensor NormGrad(const Tensor& x, const Tensor& out, const Tensor& dout,
                double p) {
  if (p == 0) return at::zeros_like(x);
  if (p == 1) return dout * at::sign(x);
  if (std::isinf(p)) return dout * at::sign(x) * at::eq(at::abs(x), out);
  Tensor zero = at::eq(p < 1 ? x * out : out, 0);
  Tensor safe = at::where(at::eq(out, 0), 1, out);
  Tensor ratio =
      p == 2 ? x / safe : at::sign(x) * at::pow(at::abs(x) / safe, p - 1);
  return at::where(zero, 0, dout * ratio);
}

std::vector<int64_t> PNormAxes(const Tensor& x, int64_t axis, bool all) {
  return all ? ReducedAxes(x, {}, true) : ReducedAxes(x, {axis}, false);
}
Tensor PNorm(const Tensor& x, double p, int64_t axis, double, bool keep,
             bool as_vector) {
  TORCH_CHECK(x.is_floating_point(), "X must hold floating-point numbers");
  return AtLeast1D(at::linalg_vector_norm(Packed(x), p,
                                          PNormAxes(x, axis, as_vector), keep));
}
Tensor PNormGrad(const Tensor& x, const Tensor& out, const Tensor& dout,
                 double p, int64_t axis, double, bool, bool as_vector) {
  std::vector<int64_t> axes = PNormAxes(x, axis, as_vector);
  return NormGrad(x, KeepAxes(out, x, axes), KeepAxes(dout, x, axes), p);
}

Tensor FrobeniusNorm(const Tensor& x, at::IntArrayRef dim, bool keep,
                     bool all) {
  TORCH_CHECK(x.is_floating_point(), "X must hold floating-point numbers");
  return AtLeast1D(
      at::linalg_vector_norm(Packed(x), 2, ReducedAxes(x, dim, all), keep));
}
Tensor FrobeniusNormGrad(const Tensor& x, const Tensor& out, const Tensor& dout,
                         at::IntArrayRef dim, bool, bool all) {
  std::vector<int64_t> axes = ReducedAxes(x, dim, all);
  return NormGrad(x, KeepAxes(out, x, axes), KeepAxes(dout, x, axes), 2);
}

Tensor Dist(const Tensor& x, const Tensor& y, double p) {
  return at::linalg_vector_norm(x - y, p).reshape({1});
}
TensorPair DistGrad(const Tensor& x, const Tensor& y, const Tensor& out,
                    const Tensor& dout, double p, GradNeeds needs) {
  Tensor grad = NormGrad(x - y, out.reshape({}), dout.reshape({}), p);
  return {needs[0] ? Unbroadcast(grad, x) : Tensor(),
          needs[1] ? Unbroadcast(-grad, y) : Tensor()};
}

// ---- one matrix

Tensor Trace(const Tensor& x, int64_t offset, int64_t axis1, int64_t axis2) {
  return AtLeast1D(at::sum(at::diagonal(Packed(x), offset, axis1, axis2), {-1},
                           false, x.scalar_type()));
}
Tensor TraceGrad(const Tensor& x, const Tensor& dout, int64_t offset,
                 int64_t axis1, int64_t axis2) {
  Tensor d = x.dim() == 2 ? dout.reshape({1}) : dout.unsqueeze(-1);
  std::vector<int64_t> shape(d.sizes().begin(), d.sizes().end());
  int64_t rows = x.size(axis1), columns = x.size(axis2);
  shape.back() = offset >= 0 ? std::min(rows, columns - offset)
                             : std::min(rows + offset, columns);
  shape.back() = std::max<int64_t>(shape.back(), 0);
  return at::diagonal_backward(d.expand(shape), x.sizes(), offset, axis1,
                               axis2);
}

Tensor Cholesky(const Tensor& x, bool upper) {
  return at::linalg_cholesky(x, upper);
}
// dA = (S + S') / 2, S = L^-T P(L' dL) L^-1; P keeps the lower half and half of
// the diagonal.
Tensor CholeskyGrad(const Tensor& out, const Tensor& dout, bool upper) {
  Tensor l = upper ? T(out) : out;
  Tensor dl = upper ? T(dout) : dout;
  Tensor inner = at::tril(at::matmul(T(l), dl));
  inner = inner - at::diag_embed(at::diagonal(inner, 0, -2, -1)) / 2;
  Tensor left =
      at::linalg_solve_triangular(T(l), inner, /*upper=*/true);  // L^-T P
  Tensor s = T(at::linalg_solve_triangular(T(l), T(left), true));
  return (s + T(s)) / 2;
}

Tensor InverseGrad(const Tensor& out, const Tensor& dout) {
  return -Mul(T(out), dout, T(out));
}

Tensor Determinant(const Tensor& x) { return AtLeast1D(at::linalg_det(x)); }
Tensor DeterminantGrad(const Tensor& x, const Tensor& out, const Tensor& dout) {
  Tensor inverse = std::get<0>(at::linalg_inv_ex(x));
  return PerMatrix(dout * out, x.sizes()) * T(inverse);
}

Tensor Slogdet(const Tensor& x) {
  auto [sign, log] = at::linalg_slogdet(x);
  return at::stack({sign, log});
}
Tensor SlogdetGrad(const Tensor& x, const Tensor& dout) {
  Tensor inverse = std::get<0>(at::linalg_inv_ex(x));
  return PerMatrix(dout.select(0, 1), x.sizes()) * T(inverse);
}

// 1 / (v[j] - v[i]), and 0 on the diagonal.
Tensor InverseGaps(const Tensor& v) {
  Tensor gaps = v.unsqueeze(-2) - v.unsqueeze(-1);
  Tensor same = at::eye(v.size(-1), v.options().dtype(at::kBool));
  return at::where(same, 0, 1 / at::where(same, 1, gaps));
}

std::tuple<Tensor, Tensor, Tensor> Svd(const Tensor& x, bool full) {
  return at::linalg_svd(x, full);
}
// A = U S V': dA = U [ skew(U' dU) / E S + S skew(V' dV) / E + dS ] V', with
// E[i, j] = s[j]^2 - s[i]^2, and for a matrix that is not square what dU and dV
// have outside of the span of U and V.
Tensor SvdGrad(const Tensor& u, const Tensor& s, const Tensor& vh,
               const Tensor& du, const Tensor& ds, const Tensor& dvh,
               bool full) {
  TORCH_CHECK(!full || u.size(-1) == vh.size(-1),
              "svd has a gradient only with full_matrices=False");
  Tensor gaps = InverseGaps(s * s);
  Tensor a = at::matmul(T(u), du), b = at::matmul(vh, T(dvh));
  Tensor inner = (a - T(a)) * gaps * s.unsqueeze(-2) +
                 s.unsqueeze(-1) * ((b - T(b)) * gaps) + at::diag_embed(ds);
  Tensor dx = Mul(u, inner, vh);
  Tensor inverse = 1 / s;
  if (u.size(-2) > s.size(-1)) {
    Tensor rest = du - at::matmul(u, a);
    dx = dx + at::matmul(rest * inverse.unsqueeze(-2), vh);
  }
  if (vh.size(-1) > s.size(-1)) {
    Tensor rest = dvh - at::matmul(T(b), vh);
    dx = dx + at::matmul(u, inverse.unsqueeze(-1) * rest);
  }
  return dx;
}

std::tuple<Tensor, Tensor> Qr(const Tensor& x, const std::string& mode) {
  TORCH_CHECK(mode == "reduced" || mode == "complete", "unknown mode '", mode,
              "': use 'reduced' or 'complete'");
  return at::linalg_qr(x, mode);
}
// dA = (dQ + Q C(M)) R^-T, M = R dR' - dQ' Q; C mirrors the lower half.
Tensor QrGrad(const Tensor& q, const Tensor& r, const Tensor& dq,
              const Tensor& dr, const std::string&) {
  TORCH_CHECK(r.size(-2) == r.size(-1),
              "qr has a gradient only with mode='reduced' and at least as many "
              "rows as columns");
  Tensor m = at::matmul(r, T(dr)) - at::matmul(T(dq), q);
  Tensor mirrored = at::tril(m) + T(at::tril(m, -1));
  Tensor left = dq + at::matmul(q, mirrored);
  return T(at::linalg_solve_triangular(r, T(left), /*upper=*/true));
}

std::tuple<Tensor, Tensor> Eigh(const Tensor& x, const std::string& uplo) {
  return at::linalg_eigh(x, uplo);
}
Tensor EighGrad(const Tensor& values, const Tensor& vectors,
                const Tensor& dvalues, const Tensor& dvectors,
                const std::string&) {
  Tensor inner = at::matmul(T(vectors), dvectors) * InverseGaps(values) +
                 at::diag_embed(dvalues);
  Tensor grad = Mul(vectors, inner, T(vectors));
  return (grad + T(grad)) / 2;
}

Tensor Pinv(const Tensor& x, double rcond, bool hermitian) {
  return at::linalg_pinv(x, rcond, hermitian);
}
// d(A+) = -A+ dA A+ + A+ A+' dA' (I - A A+) + (I - A+ A) dA' A+' A+.
Tensor PinvGrad(const Tensor& x, const Tensor& out, const Tensor& dout, double,
                bool) {
  Tensor g = T(dout), p = T(out);
  Tensor gpp = Mul(g, out, p), ppg = Mul(p, out, g);
  return -Mul(p, dout, p) + gpp - Mul(x, out, gpp) + ppg - Mul(ppg, out, x);
}

Tensor MatrixPower(const Tensor& x, int64_t n) {
  return at::linalg_matrix_power(x, n);
}
// Each of the n equal factors of the product contributes once.
Tensor MatrixPowerGrad(const Tensor& x, const Tensor& dout, int64_t n) {
  if (n == 0) return at::zeros_like(x);
  Tensor base = T(n > 0 ? x : at::linalg_inv(x));
  int64_t count = std::abs(n);
  Tensor grad = dout;  // of the last factor; then one more on each side
  Tensor before = dout;
  for (int64_t i = 1; i < count; ++i) {
    before = at::matmul(before, base);
    grad = at::matmul(base, grad) + before;
  }
  return n > 0 ? grad : -Mul(base, grad, base);
}

// ---- equations

Tensor Columns(const Tensor& y) { return y.dim() == 1 ? y.unsqueeze(1) : y; }

Tensor Solve(const Tensor& x, const Tensor& y) {
  Tensor out = at::linalg_solve(x, Columns(y));
  return y.dim() == 1 ? out.squeeze(-1) : out;
}

// Both gradients from that of the right-hand side: dY = X^-T dOut, dX = -dY O'.
TensorPair EquationGrads(const Tensor& x, const Tensor& y, const Tensor& out,
                         const Tensor& dright, GradNeeds needs) {
  Tensor o = y.dim() == 1 ? out.unsqueeze(-1) : out;
  Tensor dx, dy;
  if (needs[0]) dx = Unbroadcast(-at::matmul(dright, T(o)), x);
  if (needs[1]) dy = Unbroadcast(dright, Columns(y)).reshape(y.sizes());
  return {dx, dy};
}

TensorPair SolveGrad(const Tensor& x, const Tensor& y, const Tensor& out,
                     const Tensor& dout, GradNeeds needs) {
  Tensor d = y.dim() == 1 ? dout.unsqueeze(-1) : dout;
  return EquationGrads(x, y, out, at::linalg_solve(T(x), d), needs);
}

Tensor TriangularSolve(const Tensor& x, const Tensor& y, bool upper,
                       bool transpose, bool unit) {
  Tensor out = at::linalg_solve_triangular(transpose ? T(x) : x, Columns(y),
                                           upper != transpose, true, unit);
  return y.dim() == 1 ? out.squeeze(-1) : out;
}
TensorPair TriangularSolveGrad(const Tensor& x, const Tensor& y,
                               const Tensor& out, const Tensor& dout,
                               bool upper, bool transpose, bool unit,
                               GradNeeds needs) {
  Tensor d = y.dim() == 1 ? dout.unsqueeze(-1) : dout;
  Tensor dright = at::linalg_solve_triangular(transpose ? x : T(x), d,
                                              upper == transpose, true, unit);
  auto [dx, dy] = EquationGrads(transpose ? T(x) : x, y, out, dright, needs);
  if (dx.defined()) {
    if (transpose) dx = T(dx);
    int64_t diagonal = unit ? 1 : 0;
    dx = upper ? at::triu(dx, diagonal) : at::tril(dx, -diagonal);
  }
  return {dx, dy};
}

// ---- angles

Tensor RowNorms(const Tensor& x) {
  Tensor rows = x.flatten(1);
  return at::sqrt(at::sum(rows * rows, {1}, true));
}

std::tuple<Tensor, Tensor, Tensor> CosSim(const Tensor& x, const Tensor& y) {
  Tensor x_norm = RowNorms(x), y_norm = RowNorms(y);
  Tensor dot = at::sum(x.flatten(1) * y.flatten(1), {1}, true);
  return {dot / (x_norm * y_norm), x_norm, y_norm};
}

TensorPair CosSimGrad(const Tensor& x, const Tensor& y, const Tensor& out,
                      const Tensor& x_norm, const Tensor& y_norm,
                      const Tensor& dout, GradNeeds needs) {
  Tensor a = x.flatten(1), b = y.flatten(1);
  Tensor both = x_norm * y_norm;
  Tensor dx, dy;
  if (needs[0]) {
    dx = (dout * (b / both - a * out / (x_norm * x_norm))).reshape(x.sizes());
  }
  if (needs[1]) {
    dy = Unbroadcast(dout * (a / both - b * out / (y_norm * y_norm)), b)
             .reshape(y.sizes());
  }
  return {dx, dy};
}

}  // namespace

void AddLinalgKernels(KernelTable& k) {
  k.Add<Dot, DotGrad>("dot");
  k.Add<Addmm, AddmmGrad>("addmm");
  k.Add<Cross, CrossGrad>("cross");
  k.Add<Kron, KronGrad>("kron");
  k.Add<PNorm, PNormGrad>("p_norm");
  k.Add<FrobeniusNorm, FrobeniusNormGrad>("frobenius_norm");
  k.Add<Dist, DistGrad>("dist");
  k.Add<Trace, TraceGrad>("trace");
  k.Add<Cholesky, CholeskyGrad>("cholesky");
  k.Add<[](const Tensor& x) { return at::linalg_inv(x); }, InverseGrad>(
      "inverse");
  k.Add<Determinant, DeterminantGrad>("determinant");
  k.Add<Slogdet, SlogdetGrad>("slogdeterminant");
  k.Add<Svd, SvdGrad>("svd");
  k.Add<Qr, QrGrad>("qr");
  k.Add<Eigh, EighGrad>("eigh");
  k.Add<Pinv, PinvGrad>("pinv");
  k.Add<MatrixPower, MatrixPowerGrad>("matrix_power");
  k.Add<Solve, SolveGrad>("solve");
  k.Add<TriangularSolve, TriangularSolveGrad>("triangular_solve");
  k.Add<CosSim, CosSimGrad>("cos_sim");
}

}  // namespace fleet::ops
