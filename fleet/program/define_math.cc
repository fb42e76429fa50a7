// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

namespace fleet::program {
namespace {

DType Floating(DType dtype) {
  bool floats = IsFloating(dtype) || dtype == DType::kComplex64 ||
                dtype == DType::kComplex128;
  return floats ? dtype : DType::kFloat32;
}

// The shape of X; integers become float32.
Result<std::vector<TensorType>> FloatingX(const OpTypes& t) {
  return std::vector<TensorType>{{Floating(t.in("X").dtype), t.in("X").dims}};
}

// X and Y broadcast; integers become float32.
Result<std::vector<TensorType>> FloatingXY(const OpTypes& t) {
  ASSIGN_OR_RETURN(std::vector<TensorType> types, BroadcastXY()(t));
  types[0].dtype = Floating(types[0].dtype);
  return types;
}

// A whole power of integers is an integer.
Result<std::vector<TensorType>> PowShape(const OpTypes& t) {
  double factor = t.attr<double>("factor");
  bool whole = factor == std::floor(factor) && factor >= 0;
  return whole ? SameAs("X")(t) : FloatingX(t);
}

// X, Y and Weight broadcast.
Result<std::vector<TensorType>> LerpShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const TensorType& y = t.in("Y");
  const TensorType& weight = t.in("Weight");
  ASSIGN_OR_RETURN(Dims dims, BroadcastDims(x.dims, y.dims));
  ASSIGN_OR_RETURN(dims, BroadcastDims(dims, weight.dims));
  return std::vector<TensorType>{
      {Promote(Promote(x.dtype, y.dtype), weight.dtype), dims}};
}

// All of X have one shape, which is the result's.
Result<std::vector<TensorType>> SumShape(const OpTypes& t) {
  std::span<const TensorType> x = t.list("X");
  if (x.empty()) return InvalidArgument("X is an empty list");
  TensorType out = x[0];
  for (size_t i = 1; i < x.size(); ++i) {
    if (!CanBeOne(x[i].dims, out.dims)) {
      return InvalidArgument("X[", i, "] has shape ", ToString(x[i].dims),
                             " but X[0] has ", ToString(out.dims));
    }
    out.dims = KnownOfBoth(out.dims, x[i].dims);
    out.dtype = Promote(out.dtype, x[i].dtype);
  }
  return std::vector<TensorType>{out};
}

Result<std::vector<TensorType>> OneBool(const OpTypes&) {
  return std::vector<TensorType>{{DType::kBool, {1}}};
}

Result<std::vector<TensorType>> MeanShape(const OpTypes& t) {
  if (Floating(t.in("X").dtype) != t.in("X").dtype) {
    return InvalidArgument("X must hold floating-point numbers, not ",
                           Name(t.in("X").dtype),
                           ": cast it first, as in x.astype('float32')");
  }
  return Reduce()(t);
}

Result<std::vector<TensorType>> FloatingReduce(const OpTypes& t) {
  ASSIGN_OR_RETURN(std::vector<TensorType> types, Reduce()(t));
  types[0].dtype = Floating(types[0].dtype);
  return types;
}

Result<std::vector<TensorType>> AllToOne(const OpTypes& t) {
  if (!IsFloating(t.in("X").dtype)) {
    return InvalidArgument("X must hold floating-point numbers, not ",
                           Name(t.in("X").dtype));
  }
  return std::vector<TensorType>{{t.in("X").dtype, {1}}};
}

void DefineUnary(OpRegistry& ops) {
  // The gradient needs the input ...
  for (const char* name :
       {"abs", "square", "sign", "silu", "mish", "tanhshrink", "logsigmoid"}) {
    ops.Define(std::string(name) + "(X) -> Out", SameAs("X"), "X, Out' -> X'");
  }
  for (const char* name :
       {"log", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos",
        "atan", "sinh", "cosh", "erf", "expm1", "softsign"}) {
    ops.Define(std::string(name) + "(X) -> Out", FloatingX, "X, Out' -> X'");
  }
  ops.Define(
      "nan_to_num(X; nan: float = 0.0, posinf: float, neginf: float) -> Out",
      SameAs("X"), "X, Out' -> X'");
  // ... or the output ...
  ops.Define("relu(X) -> Out", SameAs("X"), "Out, Out' -> X'");
  for (const char* name :
       {"tanh", "sigmoid", "exp", "sqrt", "rsqrt", "reciprocal"}) {
    ops.Define(std::string(name) + "(X) -> Out", FloatingX, "Out, Out' -> X'");
  }
  ops.Define("stanh(X; scale_a: float = 0.67, scale_b: float = 1.7159) -> Out",
             FloatingX, "Out, Out' -> X'");
  // ... or nothing but the gradient, which is zero.
  for (const char* name : {"floor", "ceil", "round", "trunc"}) {
    ops.Define(std::string(name) + "(X) -> Out", SameAs("X"), "Out' -> X'");
  }
  for (const char* name : {"isnan_v2", "isinf_v2", "isfinite_v2"}) {
    ops.Define(std::string(name) + "(X) -> Out!",
               SameShapeAs("X", DType::kBool));
  }
}

void DefineBinary(OpRegistry& ops) {
  const std::string grad = "X, Y, Out' -> X', Y'";
  for (const char* name :
       {"elementwise_add", "elementwise_sub", "elementwise_mul",
        "elementwise_max", "elementwise_min", "elementwise_fmax",
        "elementwise_fmin", "elementwise_pow", "elementwise_mod"}) {
    ops.Define(std::string(name) + "(X, Y; axis: int = -1) -> Out",
               BroadcastXY(), grad);
  }
  ops.Define("elementwise_div(X, Y; axis: int = -1) -> Out", FloatingXY, grad);
  ops.Define("elementwise_floordiv(X, Y; axis: int = -1) -> Out!",
             BroadcastXY());
  ops.Define("minus(X, Y) -> Out", BroadcastXY(), grad);
  ops.Define("atan2(X, Y) -> Out", FloatingXY, grad);
  ops.Define("lerp(X, Y, Weight) -> Out", LerpShape,
             "X, Y, Weight, Out' -> X', Y', Weight'");
  ops.Define("sum(X*) -> Out", SumShape, "X, Out' -> X'");
  ops.Define(
      "scale(X; scale: float = 1.0, bias: float = 0.0, "
      "bias_after_scale: bool = true) -> Out",
      SameAs("X"), "Out' -> X'");
  ops.Define("pow(X; factor: float = 1.0) -> Out", PowShape, "X, Out' -> X'");
  ops.Define("clip(X; min: float, max: float) -> Out", SameAs("X"),
             "X, Out' -> X'");
}

void DefineLogic(OpRegistry& ops) {
  for (const char* name :
       {"equal", "not_equal", "less_than", "less_equal", "greater_than",
        "greater_equal", "logical_and", "logical_or", "logical_xor"}) {
    ops.Define(std::string(name) + "(X, Y) -> Out!", BroadcastXY(DType::kBool));
  }
  for (const char* name : {"bitwise_and", "bitwise_or", "bitwise_xor"}) {
    ops.Define(std::string(name) + "(X, Y) -> Out!", BroadcastXY());
  }
  ops.Define("bitwise_not(X) -> Out!", SameAs("X"));
  ops.Define("logical_not(X) -> Out!", SameShapeAs("X", DType::kBool));
  const std::string tolerances =
      "(X, Y; rtol: float = 1e-05, atol: float = 1e-08, "
      "equal_nan: bool = false) -> Out!";
  ops.Define("isclose" + tolerances, BroadcastXY(DType::kBool));
  ops.Define("allclose" + tolerances, OneBool);
  ops.Define("equal_all(X, Y) -> Out!", OneBool);
}

void DefineReductions(OpRegistry& ops) {
  const std::string attrs =
      "; dim: ints = [], keep_dim: bool = false, reduce_all: bool = false";
  ops.Define("reduce_sum(X" + attrs + ") -> Out", Reduce(), "X, Out' -> X'");
  ops.Define("reduce_mean(X" + attrs + ") -> Out", MeanShape, "X, Out' -> X'");
  ops.Define("var(X" + attrs + ", unbiased: bool = true) -> Out", MeanShape,
             "X, Out' -> X'");
  for (const char* name : {"reduce_max", "reduce_min", "reduce_amax",
                           "reduce_amin", "reduce_prod"}) {
    ops.Define(std::string(name) + "(X" + attrs + ") -> Out", Reduce(),
               "X, Out, Out' -> X'");
  }
  ops.Define("logsumexp(X" + attrs + ") -> Out", FloatingReduce,
             "X, Out, Out' -> X'");
  ops.Define("mean(X) -> Out", AllToOne, "X, Out' -> X'");
  ops.Define("squared_l2_norm(X) -> Out", AllToOne, "X, Out' -> X'");
  // X, scaled down if its norm exceeds max_norm.
  ops.Define("clip_by_norm(X; max_norm: float) -> Out", SameAs("X"),
             "X, Out' -> X'");
  for (const char* name : {"reduce_all", "reduce_any"}) {
    ops.Define(std::string(name) + "(X" + attrs + ") -> Out!",
               Reduce(DType::kBool));
  }
}

}  // namespace

void DefineMathOps(OpRegistry& ops) {
  DefineUnary(ops);
  DefineBinary(ops);
  DefineLogic(ops);
  DefineReductions(ops);
}

}  // namespace fleet::program
