// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

namespace fleet::program {
namespace {

// [batch..., M, K] x [batch..., K, N]; a vector on either side is a row or a
// column that disappears again.
Result<std::vector<TensorType>> MatmulDims(const OpTypes& t, bool trans_x,
                                           bool trans_y) {
  Dims x = t.in("X").dims;
  Dims y = t.in("Y").dims;
  if (x.empty() || y.empty()) {
    return InvalidArgument("operands need at least one dimension");
  }
  bool row = x.size() == 1, column = y.size() == 1;
  if (row) x.insert(x.begin(), 1);
  if (column) y.push_back(1);
  if (!row && trans_x) std::swap(x.end()[-1], x.end()[-2]);
  if (!column && trans_y) std::swap(y.end()[-1], y.end()[-2]);
  int64_t k = x.end()[-1], l = y.end()[-2];
  if (k != l && k != -1 && l != -1) {
    return InvalidArgument("inner dimensions differ: ", k, " of X against ", l,
                           " of Y");
  }
  ASSIGN_OR_RETURN(Dims dims, BroadcastDims(Dims(x.begin(), x.end() - 2),
                                            Dims(y.begin(), y.end() - 2)));
  if (!row) dims.push_back(x.end()[-2]);
  if (!column) dims.push_back(y.end()[-1]);
  if (dims.empty()) dims.push_back(1);
  return std::vector<TensorType>{
      {Promote(t.in("X").dtype, t.in("Y").dtype), dims}};
}

Result<std::vector<TensorType>> MatmulShape(const OpTypes& t) {
  return MatmulDims(t, t.attr<bool>("trans_x"), t.attr<bool>("trans_y"));
}

Result<std::vector<TensorType>> OldMatmulShape(const OpTypes& t) {
  return MatmulDims(t, t.attr<bool>("transpose_X"),
                    t.attr<bool>("transpose_Y"));
}

// X and Y as matrices: the first dimensions of each together are its rows.
Result<std::vector<TensorType>> MulShape(const OpTypes& t) {
  const Dims& x = t.in("X").dims;
  const Dims& y = t.in("Y").dims;
  const int64_t x_rows = t.attr<int64_t>("x_num_col_dims");
  const int64_t y_rows = t.attr<int64_t>("y_num_col_dims");
  auto fits = [](int64_t n, const Dims& dims) {
    return n >= 1 && n < static_cast<int64_t>(dims.size());
  };
  if (!fits(x_rows, x) || !fits(y_rows, y)) {
    return InvalidArgument("x_num_col_dims ", x_rows, " and y_num_col_dims ",
                           y_rows, " must leave dimensions on both sides");
  }
  const int64_t k = NumElements(Dims(x.begin() + x_rows, x.end()));
  const int64_t l = NumElements(Dims(y.begin(), y.begin() + y_rows));
  if (k != l && k != -1 && l != -1) {
    return InvalidArgument("X has rows of ", k, " elements but Y columns of ",
                           l);
  }
  Dims dims(x.begin(), x.begin() + x_rows);
  dims.insert(dims.end(), y.begin() + y_rows, y.end());
  return std::vector<TensorType>{
      {Promote(t.in("X").dtype, t.in("Y").dtype), dims}};
}

// [..., in] x [in, out] + [out]; the leading dimensions stay.
Result<std::vector<TensorType>> FcShape(const OpTypes& t) {
  const Dims& x = t.in("Input").dims;
  const Dims& w = t.in("W").dims;
  if (w.size() != 2) {
    return InvalidArgument("weight must have two dimensions, not ",
                           ToString(w));
  }
  if (x.empty() || (x.back() != w[0] && x.back() != -1 && w[0] != -1)) {
    return InvalidArgument("the last dimension of the input ", ToString(x),
                           " must equal in_features ", w[0]);
  }
  if (t.has("Bias") && KnownToDiffer(NumElements(t.in("Bias").dims), w[1])) {
    return InvalidArgument("bias ", ToString(t.in("Bias").dims),
                           " must have out_features ", w[1], " elements");
  }
  Dims dims = x;
  dims.back() = w[1];
  return std::vector<TensorType>{{t.in("Input").dtype, dims}};
}

// Out[n, k] = X[n] Weight[k] Y[n].
Result<std::vector<TensorType>> BilinearShape(const OpTypes& t) {
  const Dims& x = t.in("X").dims;
  const Dims& y = t.in("Y").dims;
  const Dims& w = t.in("Weight").dims;
  auto differ = [](int64_t a, int64_t b) {
    return a != b && a != -1 && b != -1;
  };
  if (x.size() != 2 || y.size() != 2 || w.size() != 3 || differ(x[1], w[1]) ||
      differ(y[1], w[2]) || differ(x[0], y[0])) {
    return InvalidArgument("X ", ToString(x), " and Y ", ToString(y),
                           " do not fit to Weight ", ToString(w));
  }
  if (t.has("Bias") && KnownToDiffer(NumElements(t.in("Bias").dims), w[0])) {
    return InvalidArgument("Bias must have ", w[0], " elements");
  }
  return std::vector<TensorType>{{t.in("X").dtype, {x[0], w[0]}}};
}

}  // namespace

void DefineMatmulOps(OpDefiner& ops) {
  ops.Define(
         "matmul_v2(X, Y; trans_x: bool = false, trans_y: bool = false) -> Out",
         MatmulShape, "X, Y, Out' -> X', Y'")
      .Python("tensor.linalg.matmul(x, y, transpose_x, transpose_y, name)",
              "The matrix product; vectors and stacks of matrices as in numpy.")
      .Python("tensor.linalg.mm(input, mat2, name)", "The matrix product.");
  ops.Define(
      "matmul(X, Y; transpose_X: bool = false, transpose_Y: bool = false, "
      "alpha: float = 1.0) -> Out",
      OldMatmulShape, "X, Y, Out' -> X', Y'");
  ops.Define(
         "mul(X, Y; x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> Out",
         MulShape, "X, Y, Out' -> X', Y'")
      .Python("fluid.layers.nn.mul(x, y, x_num_col_dims, y_num_col_dims, name)",
              "The product of x and y as matrices, split into rows and columns "
              "after so many dimensions.");
  ops.Define("bilinear_tensor_product(X, Y, Weight, Bias?) -> Out",
             BilinearShape,
             "X, Y, Weight, Bias, Out' -> X', Y', Weight', Bias'");
  ops.Define("fc(Input, W, Bias?) -> Out", FcShape,
             "Input, W, Bias, Out' -> Input', W', Bias'");
}

void AddMatmulPrecisions(Precisions& listed) {
  listed.Add(Precision::kWhite, {"fc", "matmul", "matmul_v2", "mul"});
}

}  // namespace fleet::program
