// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

namespace fleet::program {
namespace {

// [batch..., M, K] x [batch..., K, N]; a vector on either side is a row or a
// column that disappears again.
Result<std::vector<TensorType>> MatmulShape(const OpTypes& t) {
  Dims x = t.in("X").dims;
  Dims y = t.in("Y").dims;
  if (x.empty() || y.empty()) {
    return InvalidArgument("operands need at least one dimension");
  }
  bool row = x.size() == 1, column = y.size() == 1;
  if (row) x.insert(x.begin(), 1);
  if (column) y.push_back(1);
  if (!row && t.attr<bool>("trans_x")) std::swap(x.end()[-1], x.end()[-2]);
  if (!column && t.attr<bool>("trans_y")) std::swap(y.end()[-1], y.end()[-2]);
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
  if (t.has("Bias") && NumElements(t.in("Bias").dims) != w[1]) {
    return InvalidArgument("bias ", ToString(t.in("Bias").dims),
                           " must have out_features ", w[1], " elements");
  }
  Dims dims = x;
  dims.back() = w[1];
  return std::vector<TensorType>{{t.in("Input").dtype, dims}};
}

}  // namespace

void DefineMatmulOps(OpRegistry& ops) {
  ops.Define(
      "matmul_v2(X, Y; trans_x: bool = false, trans_y: bool = false) -> Out",
      MatmulShape, "X, Y, Out' -> X', Y'");
  ops.Define("fc(Input, W, Bias?) -> Out", FcShape,
             "Input, W, Bias, Out' -> Input', W', Bias'");
}

}  // namespace fleet::program
