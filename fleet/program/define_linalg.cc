// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

namespace fleet::program {
namespace {

using Types = Result<std::vector<TensorType>>;

bool Differ(int64_t a, int64_t b) { return a != b && a != -1 && b != -1; }

Status CheckMatrix(const Dims& dims, std::string_view slot) {
  if (dims.size() >= 2) return OkStatus();
  return InvalidArgument(slot, " must have at least two dimensions, not ",
                         ToString(dims));
}

Status CheckSquare(const Dims& dims, std::string_view slot) {
  RETURN_IF_ERROR(CheckMatrix(dims, slot));
  if (!Differ(dims.end()[-1], dims.end()[-2])) return OkStatus();
  return InvalidArgument(slot, " must be square, but its last dimensions are ",
                         dims.end()[-2], " and ", dims.end()[-1]);
}

// The dimensions before the matrix; [1] if there are none.
Dims BatchOrOne(const Dims& dims) {
  Dims batch(dims.begin(), dims.end() - 2);
  if (batch.empty()) batch.push_back(1);
  return batch;
}

// ---- products

Types DotShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const TensorType& y = t.in("Y");
  bool same = x.dims.size() == y.dims.size();
  for (size_t i = 0; same && i < x.dims.size(); ++i) {
    same = !Differ(x.dims[i], y.dims[i]);
  }
  if (!same || x.dims.empty() || x.dims.size() > 2) {
    return InvalidArgument(
        "X and Y must be two vectors or two lists of vectors of one shape, "
        "not ",
        ToString(x.dims), " and ", ToString(y.dims));
  }
  Dims dims = x.dims;
  dims.back() = 1;
  return std::vector<TensorType>{{Promote(x.dtype, y.dtype), dims}};
}

Types AddmmShape(const OpTypes& t) {
  const Dims& x = t.in("X").dims;
  const Dims& y = t.in("Y").dims;
  if (x.size() != 2 || y.size() != 2 || Differ(x[1], y[0])) {
    return InvalidArgument("X and Y must be matrices that fit, not ",
                           ToString(x), " and ", ToString(y));
  }
  Dims out{x[0], y[1]};
  ASSIGN_OR_RETURN(Dims dims, BroadcastDims(t.in("Input").dims, out));
  if (!CanBeOne(dims, out)) {
    return InvalidArgument("Input ", ToString(t.in("Input").dims),
                           " does not broadcast to ", ToString(out));
  }
  return std::vector<TensorType>{{t.in("X").dtype, out}};
}

Types CrossShape(const OpTypes& t) {
  TensorType x = t.in("X");
  const TensorType& y = t.in("Y");
  if (!CanBeOne(x.dims, y.dims)) {
    return InvalidArgument("X and Y must have one shape, not ",
                           ToString(x.dims), " and ", ToString(y.dims));
  }
  x.dims = KnownOfBoth(x.dims, y.dims);
  int64_t dim = t.attr<int64_t>("dim");
  if (dim == 9) {
    auto can_be_three = [](int64_t n) { return !Differ(n, 3); };
    if (std::none_of(x.dims.begin(), x.dims.end(), can_be_three)) {
      return InvalidArgument("no dimension of ", ToString(x.dims), " is 3");
    }
  } else {
    ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(dim, x.dims.size(), "axis"));
    if (x.dims.empty() || Differ(x.dims[axis], 3)) {
      return InvalidArgument("dimension ", dim, " of ", ToString(x.dims),
                             " must be 3");
    }
  }
  return std::vector<TensorType>{{Promote(x.dtype, y.dtype), x.dims}};
}

Types KronShape(const OpTypes& t) {
  Dims x = t.in("X").dims;
  Dims y = t.in("Y").dims;
  size_t rank = std::max(x.size(), y.size());
  x.insert(x.begin(), rank - x.size(), 1);
  y.insert(y.begin(), rank - y.size(), 1);
  Dims dims(rank);
  for (size_t i = 0; i < rank; ++i) {
    dims[i] = x[i] < 0 || y[i] < 0 ? -1 : x[i] * y[i];
  }
  return std::vector<TensorType>{
      {Promote(t.in("X").dtype, t.in("Y").dtype), dims}};
}

// ---- norms

Types PNormShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  bool keep = t.attr<bool>("keepdim");
  Dims dims = x.dims;
  if (t.attr<bool>("asvector")) {
    dims.assign(keep ? x.dims.size() : 1, 1);
  } else {
    ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(t.attr<int64_t>("axis"),
                                                 x.dims.size(), "axis"));
    if (keep) {
      dims[axis] = 1;
    } else if (!dims.empty()) {
      dims.erase(dims.begin() + axis);
    }
  }
  if (dims.empty()) dims.push_back(1);
  return std::vector<TensorType>{{x.dtype, dims}};
}

Types DistShape(const OpTypes& t) {
  ASSIGN_OR_RETURN(std::vector<TensorType> types, BroadcastXY()(t));
  return std::vector<TensorType>{{types[0].dtype, {1}}};
}

// ---- one matrix, or a stack of them

Types TraceShape(const OpTypes& t) {
  const TensorType& x = t.in("Input");
  RETURN_IF_ERROR(CheckMatrix(x.dims, "Input"));
  size_t rank = x.dims.size();
  ASSIGN_OR_RETURN(int64_t a,
                   NormalizeAxis(t.attr<int64_t>("axis1"), rank, "axis1"));
  ASSIGN_OR_RETURN(int64_t b,
                   NormalizeAxis(t.attr<int64_t>("axis2"), rank, "axis2"));
  if (a == b) return InvalidArgument("axis1 and axis2 are both ", a);
  Dims dims = x.dims;
  dims.erase(dims.begin() + std::max(a, b));
  dims.erase(dims.begin() + std::min(a, b));
  if (dims.empty()) dims.push_back(1);
  return std::vector<TensorType>{{x.dtype, dims}};
}

ShapeRule Square(const std::string& slot) {
  return [slot](const OpTypes& t) -> Types {
    RETURN_IF_ERROR(CheckSquare(t.in(slot).dims, slot));
    return std::vector<TensorType>{t.in(slot)};
  };
}

Types DeterminantShape(const OpTypes& t) {
  const TensorType& x = t.in("Input");
  RETURN_IF_ERROR(CheckSquare(x.dims, "Input"));
  return std::vector<TensorType>{{x.dtype, BatchOrOne(x.dims)}};
}

Types SlogdetShape(const OpTypes& t) {
  const TensorType& x = t.in("Input");
  RETURN_IF_ERROR(CheckSquare(x.dims, "Input"));
  Dims dims(x.dims.begin(), x.dims.end() - 2);
  dims.insert(dims.begin(), 2);
  return std::vector<TensorType>{{x.dtype, dims}};
}

Types SvdShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  RETURN_IF_ERROR(CheckMatrix(x.dims, "X"));
  int64_t m = x.dims.end()[-2], n = x.dims.end()[-1];
  int64_t k = m < 0 || n < 0 ? -1 : std::min(m, n);
  bool full = t.attr<bool>("full_matrices");
  Dims u = x.dims, s = x.dims, vh = x.dims;
  u.end()[-1] = full ? m : k;
  s.pop_back();
  s.back() = k;
  vh.end()[-2] = full ? n : k;
  return std::vector<TensorType>{{x.dtype, u}, {x.dtype, s}, {x.dtype, vh}};
}

Types QrShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  RETURN_IF_ERROR(CheckMatrix(x.dims, "X"));
  int64_t m = x.dims.end()[-2], n = x.dims.end()[-1];
  bool complete = t.attr<std::string>("mode") == "complete";
  int64_t k = m < 0 || n < 0 ? -1 : std::min(m, n);
  if (complete) k = m;
  Dims q = x.dims, r = x.dims;
  q.end()[-1] = k;
  r.end()[-2] = k;
  return std::vector<TensorType>{{x.dtype, q}, {x.dtype, r}};
}

Types EighShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  RETURN_IF_ERROR(CheckSquare(x.dims, "X"));
  Dims values = x.dims;
  values.pop_back();
  return std::vector<TensorType>{{x.dtype, values}, {x.dtype, x.dims}};
}

Types PinvShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  RETURN_IF_ERROR(CheckMatrix(x.dims, "X"));
  Dims dims = x.dims;
  std::swap(dims.end()[-1], dims.end()[-2]);
  return std::vector<TensorType>{{x.dtype, dims}};
}

// X is a square matrix, Y a vector or a matrix of columns; stacks broadcast.
Types SolveShape(const OpTypes& t) {
  const Dims& x = t.in("X").dims;
  Dims y = t.in("Y").dims;
  RETURN_IF_ERROR(CheckSquare(x, "X"));
  bool vector = y.size() == 1;
  if (vector) y.push_back(1);
  if (y.size() < 2 || Differ(x.end()[-1], y.end()[-2])) {
    return InvalidArgument("the columns of Y ", ToString(t.in("Y").dims),
                           " must have ", x.end()[-1], " elements, as X has");
  }
  ASSIGN_OR_RETURN(Dims dims, BroadcastDims(Dims(x.begin(), x.end() - 2),
                                            Dims(y.begin(), y.end() - 2)));
  dims.push_back(x.end()[-1]);
  if (!vector) dims.push_back(y.back());
  return std::vector<TensorType>{
      {Promote(t.in("X").dtype, t.in("Y").dtype), dims}};
}

// ---- angles

// Rows of X with those of Y, or with its only one.
Types CosSimShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const Dims& y = t.in("Y").dims;
  if (x.dims.size() < 2 || y.size() != x.dims.size()) {
    return InvalidArgument("X ", ToString(x.dims), " and Y ", ToString(y),
                           " must have the same two or more dimensions");
  }
  for (size_t i = 0; i < y.size(); ++i) {
    const bool one = i == 0 && y[0] == 1;
    if (!one && y[i] != x.dims[i] && y[i] != -1 && x.dims[i] != -1) {
      return InvalidArgument("X ", ToString(x.dims), " and Y ", ToString(y),
                             " differ");
    }
  }
  return std::vector<TensorType>{{x.dtype, {x.dims[0], 1}},
                                 {x.dtype, {x.dims[0], 1}},
                                 {x.dtype, {y[0], 1}}};
}

}  // namespace

void DefineLinalgOps(OpDefiner& ops) {
  ops.Define("dot(X, Y) -> Out", DotShape, "X, Y, Out' -> X', Y'")
      .Python("tensor.linalg.dot(x, y, name)",
              "The inner product of two vectors (shape [1]), or of each pair "
              "of rows.");
  ops.Define("addmm(Input, X, Y; Alpha: float = 1.0, Beta: float = 1.0) -> Out",
             AddmmShape, "Input, X, Y, Out' -> Input', X', Y'")
      .Python("tensor.linalg.addmm(input, x, y, beta, alpha, name)",
              "beta * input + alpha * (x @ y).");
  // 9 stands for the first dimension that is 3.
  ops.Define("cross(X, Y; dim: int = 9) -> Out", CrossShape,
             "X, Y, Out' -> X', Y'")
      .Python(
          "tensor.linalg.cross(x, y, axis=None, name)",
          "The cross product along `axis`, or the first dimension that is 3.");
  ops.Define("kron(X, Y) -> Out", KronShape, "X, Y, Out' -> X', Y'")
      .Python("tensor.linalg.kron(x, y, name)", "The Kronecker product.");
  ops.Define(
      "p_norm(X; porder: float = 2.0, axis: int = -1, epsilon: float = 1e-12, "
      "keepdim: bool = false, asvector: bool = false) -> Out",
      PNormShape, "X, Out, Out' -> X'");
  ops.Define(
      "frobenius_norm(X; dim: ints = [], keep_dim: bool = false, "
      "reduce_all: bool = false) -> Out",
      Reduce(), "X, Out, Out' -> X'");
  ops.Define("dist(X, Y; p: float = 2.0) -> Out", DistShape,
             "X, Y, Out, Out' -> X', Y'")
      .Python("tensor.linalg.dist(x, y, p=2, name)",
              "The p-norm of x - y, as shape [1].");
  ops.Define(
         "trace(Input; offset: int = 0, axis1: int = 0, axis2: int = 1) -> Out",
         TraceShape, "Input, Out' -> Input'")
      .Python("tensor.linalg.trace(x, offset, axis1, axis2, name)",
              "The sum along the diagonal of two axes.");
  ops.Define("cholesky(X; upper: bool = false) -> Out", Square("X"),
             "Out, Out' -> X'")
      .Python("tensor.linalg.cholesky(x, upper, name)",
              "L with L @ L.T = x, or with `upper` U with U.T @ U = x.");
  ops.Define("inverse(Input) -> Output", Square("Input"),
             "Output, Output' -> Input'")
      .Python("tensor.linalg.inverse(x, name)",
              "The inverse of a square matrix.");
  ops.Define("determinant(Input) -> Out", DeterminantShape,
             "Input, Out, Out' -> Input'")
      .Python("tensor.linalg.det(x, name)", "The determinant.");
  ops.Define("slogdeterminant(Input) -> Out", SlogdetShape,
             "Input, Out' -> Input'")
      .Python("tensor.linalg.slogdet(x, name)",
              "The sign of the determinant and the logarithm of its absolute "
              "value.");
  ops.Define("svd(X; full_matrices: bool = false) -> U, S, VH", SvdShape,
             "U, S, VH, U', S', VH' -> X'")
      .Python("tensor.linalg.svd(x, full_matrices, name)",
              "(U, S, VH) with U @ diag(S) @ VH = x.");
  ops.Define("qr(X; mode: string = 'reduced') -> Q, R", QrShape,
             "Q, R, Q', R' -> X'");
  ops.Define("eigh(X; UPLO: string = 'L') -> Eigenvalues, Eigenvectors",
             EighShape,
             "Eigenvalues, Eigenvectors, Eigenvalues', Eigenvectors' -> X'");
  ops.Define("pinv(X; rcond: float = 1e-15, hermitian: bool = false) -> Out",
             PinvShape, "X, Out, Out' -> X'")
      .Python("tensor.linalg.pinv(x, rcond, hermitian, name)",
              "The pseudo-inverse; singular values below rcond times the "
              "largest count as 0.");
  ops.Define("matrix_power(X; n: int) -> Out", Square("X"), "X, Out' -> X'")
      .Python("tensor.linalg.matrix_power(x, n, name)",
              "x multiplied with itself; a negative `n` takes the inverse.");
  ops.Define("solve(X, Y) -> Out", SolveShape, "X, Y, Out, Out' -> X', Y'")
      .Python("tensor.linalg.solve(x, y, name)", "z with x @ z = y.");
  ops.Define(
         "triangular_solve(X, Y; upper: bool = true, transpose: bool = false, "
         "unitriangular: bool = false) -> Out",
         SolveShape, "X, Y, Out, Out' -> X', Y'")
      .Python(
          "tensor.linalg.triangular_solve(x, y, upper, transpose, "
          "unitriangular, name)",
          "z with x @ z = y for a triangular x, or x.T with `transpose`.");
  ops.Define("cos_sim(X, Y) -> Out, XNorm!, YNorm!", CosSimShape,
             "X, Y, Out, XNorm, YNorm, Out' -> X', Y'");
}

void AddLinalgPrecisions(Precisions& listed) {
  listed.Add(Precision::kWhite, {"addmm"});
  listed.Add(Precision::kBlack,
             {"cos_sim", "dist", "frobenius_norm", "p_norm"});
}

}  // namespace fleet::program
