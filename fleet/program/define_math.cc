// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

namespace fleet::program {
namespace {

void DefineUnary(OpRegistry& ops) {
  // The gradient needs the input ...
  for (const char* name :
       {"abs",   "square",     "log",        "log1p",    "sin",  "cos",
        "erf",   "sign",       "silu",       "softsign", "log2", "log10",
        "tan",   "asin",       "acos",       "atan",     "sinh", "cosh",
        "expm1", "tanhshrink", "logsigmoid", "mish"}) {
    ops.Define(std::string(name) + "(X) -> Out", SameAs("X"), "X, Out' -> X'");
  }
  // ... or the output ...
  for (const char* name :
       {"tanh", "relu", "sigmoid", "exp", "sqrt", "rsqrt", "reciprocal"}) {
    ops.Define(std::string(name) + "(X) -> Out", SameAs("X"),
               "Out, Out' -> X'");
  }
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
  for (const char* name :
       {"elementwise_add", "elementwise_sub", "elementwise_mul",
        "elementwise_div", "elementwise_max", "elementwise_min",
        "elementwise_pow"}) {
    ops.Define(std::string(name) + "(X, Y) -> Out", BroadcastXY(),
               "X, Y, Out' -> X', Y'");
  }
  for (const char* name : {"elementwise_mod", "elementwise_floordiv"}) {
    ops.Define(std::string(name) + "(X, Y) -> Out!", BroadcastXY());
  }
  for (const char* name :
       {"equal", "not_equal", "less_than", "less_equal", "greater_than",
        "greater_equal", "logical_and", "logical_or", "logical_xor"}) {
    ops.Define(std::string(name) + "(X, Y) -> Out!", BroadcastXY(DType::kBool));
  }
  ops.Define("logical_not(X) -> Out!", SameShapeAs("X", DType::kBool));
  ops.Define(
      "scale(X; scale: float = 1.0, bias: float = 0.0, "
      "bias_after_scale: bool = true) -> Out",
      SameAs("X"), "Out' -> X'");
  ops.Define("pow(X; factor: float = 1.0) -> Out", SameAs("X"),
             "X, Out' -> X'");
  ops.Define("clip(X; min: float, max: float) -> Out", SameAs("X"),
             "X, Out' -> X'");
}

void DefineReductions(OpRegistry& ops) {
  const std::string attrs =
      "; dim: ints = [], keep_dim: bool = false, reduce_all: bool = false";
  for (const char* name : {"reduce_sum", "reduce_mean"}) {
    ops.Define(std::string(name) + "(X" + attrs + ") -> Out", Reduce(),
               "X, Out' -> X'");
  }
  for (const char* name : {"reduce_max", "reduce_min", "reduce_prod"}) {
    ops.Define(std::string(name) + "(X" + attrs + ") -> Out", Reduce(),
               "X, Out, Out' -> X'");
  }
  ops.Define("logsumexp(X" + attrs + ") -> Out", Reduce(),
             "X, Out, Out' -> X'");
  for (const char* name : {"reduce_all", "reduce_any"}) {
    ops.Define(std::string(name) + "(X" + attrs + ") -> Out!",
               Reduce(DType::kBool));
  }
}

}  // namespace

void DefineMathOps(OpRegistry& ops) {
  DefineUnary(ops);
  DefineBinary(ops);
  DefineReductions(ops);
}

}  // namespace fleet::program
