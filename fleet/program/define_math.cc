// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <initializer_list>
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

struct Named {
  const char* name;
  const char* help;
};

// Where function and op have one name.
std::string MathFace(const std::string& name, bool twin = false) {
  std::string face = "tensor.math." + name + "(x, name)";
  return twin ? face + "; " + name + "_" : face;
}

// The face of a function of nn.functional, and of the layer of it.
std::string ActivationFace(const std::string& function,
                           const std::string& layer) {
  return "nn.functional.activation." + function + "(x, name); " + layer;
}

void DefineUnary(OpDefiner& ops) {
  // The gradient needs the input ...
  const std::string x_grad = "X, Out' -> X'";
  const auto of_x = [&](const char* name) -> OpDefiner& {
    return ops.Define(std::string(name) + "(X) -> Out", SameAs("X"), x_grad);
  };
  of_x("abs").Python(MathFace("abs"),
                     "The absolute value, element by element.");
  of_x("square").Python(MathFace("square"), "x * x, element by element.");
  of_x("sign").Python(MathFace("sign"), "-1, 0 or 1, element by element.");
  of_x("silu").Python(ActivationFace("silu", "Silu"), "x sigmoid(x).");
  of_x("mish").Python(ActivationFace("mish", "Mish"), "x tanh(softplus(x)).");
  of_x("tanhshrink")
      .Python(ActivationFace("tanhshrink", "Tanhshrink"), "x - tanh(x).");
  of_x("logsigmoid")
      .Python(ActivationFace("log_sigmoid", "LogSigmoid"), "log(sigmoid(x)).");
  for (const auto& [name, help] :
       std::initializer_list<Named>{{"log", "The natural logarithm"},
                                    {"log1p", "log(1 + x), exact near zero"},
                                    {"log2", "The logarithm to base 2"},
                                    {"log10", "The logarithm to base 10"},
                                    {"sin", "The sine"},
                                    {"cos", "The cosine"},
                                    {"tan", "The tangent"},
                                    {"asin", "The inverse sine"},
                                    {"acos", "The inverse cosine"},
                                    {"atan", "The inverse tangent"},
                                    {"sinh", "The hyperbolic sine"},
                                    {"cosh", "The hyperbolic cosine"},
                                    {"erf", "The error function"},
                                    {"expm1", "exp(x) - 1, exact near zero"}}) {
    ops.Define(std::string(name) + "(X) -> Out", FloatingX, x_grad)
        .Python(MathFace(name), std::string(help) + ", element by element.");
  }
  ops.Define("softsign(X) -> Out", FloatingX, "X, Out' -> X'")
      .Python("nn.functional.activation.softsign(x, name); Softsign",
              "x / (1 + |x|).");
  ops.Define(
      "nan_to_num(X; nan: float = 0.0, posinf: float, neginf: float) -> Out",
      SameAs("X"), x_grad);
  // ... or the output ...
  ops.Define("relu(X) -> Out", SameAs("X"), "Out, Out' -> X'")
      .Python("nn.functional.activation.relu(x, name); relu_; ReLU",
              "max(x, 0).");
  for (const auto& [name, help] :
       std::initializer_list<Named>{{"exp", "e to the power of x"},
                                    {"sqrt", "The square root"},
                                    {"rsqrt", "1 / sqrt(x)"},
                                    {"reciprocal", "1 / x"}}) {
    ops.Define(std::string(name) + "(X) -> Out", FloatingX, "Out, Out' -> X'")
        .Python(MathFace(name, true),
                std::string(help) + ", element by element.");
  }
  ops.Define("tanh(X) -> Out", FloatingX, "Out, Out' -> X'")
      .Python(MathFace("tanh", true),
              "The hyperbolic tangent, element by element.")
      .Python(ActivationFace("tanh", "Tanh"), "The hyperbolic tangent.");
  ops.Define("sigmoid(X) -> Out", FloatingX, "Out, Out' -> X'")
      .Python(MathFace("sigmoid"), "1 / (1 + exp(-x)), element by element.")
      .Python(ActivationFace("sigmoid", "Sigmoid"), "1 / (1 + exp(-x)).");
  ops.Define("stanh(X; scale_a: float = 0.67, scale_b: float = 1.7159) -> Out",
             FloatingX, "Out, Out' -> X'")
      .Python("tensor.math.stanh(x, scale_a, scale_b, name)",
              "scale_b * tanh(scale_a * x).");
  // ... or nothing but the gradient, which is zero.
  for (const auto& [name, help] : std::initializer_list<Named>{
           {"floor", "The greatest integer that is not above"},
           {"ceil", "The least integer that is not below"},
           {"round", "The nearest integer"}}) {
    ops.Define(std::string(name) + "(X) -> Out", SameAs("X"), "Out' -> X'")
        .Python(MathFace(name, true),
                std::string(help) + ", element by element.");
  }
  ops.Define("trunc(X) -> Out", SameAs("X"), "Out' -> X'")
      .Python("tensor.math.trunc(input, name)",
              "The integer part, element by element.");
  for (const auto& [name, help] : std::initializer_list<Named>{
           {"isnan", "Whether an element is not a number."},
           {"isinf", "Whether an element is infinite."},
           {"isfinite", "Whether an element is neither infinite nor NaN."}}) {
    ops.Define(std::string(name) + "_v2(X) -> Out!",
               SameShapeAs("X", DType::kBool))
        .Python("tensor.logic." + std::string(name) + "(x, name)", help);
  }
}

// A function of x and y, one of which may be a number.
std::string PairFace(const std::string& name, bool twin = false) {
  std::string face = "tensor.math." + name + "(x|number, y|number, name)";
  return twin ? face + "; " + name + "_" : face;
}

std::string PairHelp(const char* help) {
  return std::string(help) + ", element by element, with broadcasting.";
}

void DefineBinary(OpDefiner& ops) {
  const std::string grad = "X, Y, Out' -> X', Y'";
  const auto elementwise = [&](const char* name) -> OpDefiner& {
    return ops.Define(
        "elementwise_" + std::string(name) + "(X, Y; axis: int = -1) -> Out",
        BroadcastXY(), grad);
  };
  elementwise("add").Python(PairFace("add", true), PairHelp("x + y"));
  elementwise("sub").Python(PairFace("subtract", true), PairHelp("x - y"));
  elementwise("mul").Python(PairFace("multiply", true), PairHelp("x * y"));
  elementwise("max").Python(PairFace("maximum"),
                            PairHelp("The larger of x and y"));
  elementwise("min").Python(PairFace("minimum"),
                            PairHelp("The smaller of x and y"));
  elementwise("fmax").Python(PairFace("fmax"),
                             PairHelp("The larger; NaN only if both are"));
  elementwise("fmin").Python(PairFace("fmin"),
                             PairHelp("The smaller; NaN only if both are"));
  elementwise("pow");
  elementwise("mod")
      .Python(PairFace("mod"), PairHelp("x modulo y, with the sign of y"))
      .Python(PairFace("remainder", true),
              PairHelp("x modulo y, with the sign of y"));
  ops.Define("elementwise_div(X, Y; axis: int = -1) -> Out", FloatingXY, grad)
      .Python(PairFace("divide", true),
              PairHelp("x / y; integers give float32"));
  ops.Define("elementwise_floordiv(X, Y; axis: int = -1) -> Out!",
             BroadcastXY())
      .Python(PairFace("floor_divide"), PairHelp("floor(x / y)"));
  ops.Define("minus(X, Y) -> Out", BroadcastXY(), grad);
  ops.Define("atan2(X, Y) -> Out", FloatingXY, grad)
      .Python(PairFace("atan2"), PairHelp("The angle of the point (y, x)"));
  ops.Define("lerp(X, Y, Weight) -> Out", LerpShape,
             "X, Y, Weight, Out' -> X', Y', Weight'");
  ops.Define("sum(X*) -> Out", SumShape, "X, Out' -> X'");
  ops.Define(
         "scale(X; scale: float = 1.0, bias: float = 0.0, "
         "bias_after_scale: bool = true) -> Out",
         SameAs("X"), "Out' -> X'")
      .Python("tensor.math.neg(x, scale:=-1.0, name); neg_", "-x.");
  ops.Define("pow(X; factor: float = 1.0) -> Out", PowShape, "X, Out' -> X'");
  ops.Define("clip(X; min: float, max: float) -> Out", SameAs("X"),
             "X, Out' -> X'");
}

void DefineLogic(OpDefiner& ops) {
  for (const auto& [name, help] :
       std::initializer_list<Named>{{"equal", "x == y"},
                                    {"not_equal", "x != y"},
                                    {"less_than", "x < y"},
                                    {"less_equal", "x <= y"},
                                    {"greater_than", "x > y"},
                                    {"greater_equal", "x >= y"}}) {
    ops.Define(std::string(name) + "(X, Y) -> Out!", BroadcastXY(DType::kBool))
        .Python(
            "tensor.logic." + std::string(name) + "(x|number, y|number, name)",
            PairHelp(help));
  }
  const auto logic = [](const char* name) {
    return "tensor.logic." + std::string(name) +
           "(x|number, y|number, out, name)";
  };
  for (const auto& [name, help] : std::initializer_list<Named>{
           {"logical_and", "Whether both are true"},
           {"logical_or", "Whether one is true"},
           {"logical_xor", "Whether exactly one is true"}}) {
    ops.Define(std::string(name) + "(X, Y) -> Out!", BroadcastXY(DType::kBool))
        .Python(logic(name), PairHelp(help));
  }
  for (const auto& [name, help] : std::initializer_list<Named>{
           {"bitwise_and", "The bits that both have"},
           {"bitwise_or", "The bits that one has"},
           {"bitwise_xor", "The bits that exactly one has"}}) {
    ops.Define(std::string(name) + "(X, Y) -> Out!", BroadcastXY())
        .Python(logic(name), PairHelp(help));
  }
  ops.Define("bitwise_not(X) -> Out!", SameAs("X"))
      .Python("tensor.logic.bitwise_not(x, out, name)",
              "The bits that x has not, element by element.");
  ops.Define("logical_not(X) -> Out!", SameShapeAs("X", DType::kBool))
      .Python("tensor.logic.logical_not(x, out, name)",
              "Whether x is false, element by element.");
  const std::string tolerances =
      "(X, Y; rtol: float = 1e-05, atol: float = 1e-08, "
      "equal_nan: bool = false) -> Out!";
  ops.Define("isclose" + tolerances, BroadcastXY(DType::kBool))
      .Python("tensor.logic.isclose(x, y, rtol, atol, equal_nan, name)",
              "|x - y| <= atol + rtol * |y|, element by element.");
  ops.Define("allclose" + tolerances, OneBool)
      .Python("tensor.logic.allclose(x, y, rtol, atol, equal_nan, name)",
              "Whether isclose() holds for all elements.");
  ops.Define("equal_all(X, Y) -> Out!", OneBool)
      .Python("tensor.logic.equal_all(x, y, name)",
              "Whether x and y have the same shape and elements.");
}

void DefineReductions(OpDefiner& ops) {
  const std::string attrs =
      "; dim: ints = [], keep_dim: bool = false, reduce_all: bool = false";
  const auto face = [](const char* name) {
    return "tensor.math." + std::string(name) + "(x, axis=None, keepdim, name)";
  };
  ops.Define("reduce_sum(X" + attrs + ") -> Out", Reduce(), "X, Out' -> X'");
  ops.Define("reduce_mean(X" + attrs + ") -> Out", MeanShape, "X, Out' -> X'")
      .Python(face("mean"),
              "The mean over `axis`, or of all elements (shape [1]).");
  ops.Define("var(X" + attrs + ", unbiased: bool = true) -> Out", MeanShape,
             "X, Out' -> X'")
      .Python("tensor.stat.var(x, axis=None, unbiased, keepdim, name)",
              "The variance over `axis`, or of all elements; divided by n - 1 "
              "if `unbiased`.");
  const auto extreme = [&](const char* name) -> OpDefiner& {
    return ops.Define("reduce_" + std::string(name) + "(X" + attrs + ") -> Out",
                      Reduce(), "X, Out, Out' -> X'");
  };
  extreme("max").Python(
      face("max"), "The largest element along `axis`, or of all (shape [1]).");
  extreme("min").Python(
      face("min"), "The smallest element along `axis`, or of all (shape [1]).");
  extreme("amax").Python(
      face("amax"), "As max(); equal largest elements share the gradient.");
  extreme("amin").Python(
      face("amin"), "As min(); equal smallest elements share the gradient.");
  extreme("prod");
  ops.Define("logsumexp(X" + attrs + ") -> Out", FloatingReduce,
             "X, Out, Out' -> X'")
      .Python(face("logsumexp"),
              "log(sum(exp(x))) over `axis`, without overflow.");
  ops.Define("mean(X) -> Out", AllToOne, "X, Out' -> X'")
      .Python("fluid.layers.nn.mean(x, name)",
              "The mean of all elements (shape [1]).");
  ops.Define("squared_l2_norm(X) -> Out", AllToOne, "X, Out' -> X'");
  // X, scaled down if its norm exceeds max_norm.
  ops.Define("clip_by_norm(X; max_norm: float) -> Out", SameAs("X"),
             "X, Out' -> X'");
  for (const auto& [name, help] : std::initializer_list<Named>{
           {"all", "Whether all elements along `axis` are true."},
           {"any", "Whether any element along `axis` is true."}}) {
    ops.Define("reduce_" + std::string(name) + "(X" + attrs + ") -> Out!",
               Reduce(DType::kBool))
        .Python(face(name), help);
  }
}

}  // namespace

void DefineMathOps(OpDefiner& ops) {
  DefineUnary(ops);
  DefineBinary(ops);
  DefineLogic(ops);
  DefineReductions(ops);
}

void AddMathPrecisions(Precisions& listed) {
  listed.Add(Precision::kGray, {"abs",
                                "clip",
                                "elementwise_add",
                                "elementwise_div",
                                "elementwise_floordiv",
                                "elementwise_max",
                                "elementwise_min",
                                "elementwise_mod",
                                "elementwise_mul",
                                "elementwise_pow",
                                "elementwise_sub",
                                "logsigmoid",
                                "mish",
                                "relu",
                                "scale",
                                "sigmoid",
                                "sign",
                                "silu",
                                "softsign",
                                "stanh",
                                "tanh"});
  listed.Add(Precision::kBlack, {"acos",       "asin",        "cosh",
                                 "exp",        "expm1",       "log",
                                 "log10",      "log1p",       "log2",
                                 "logsumexp",  "mean",        "pow",
                                 "reciprocal", "reduce_mean", "reduce_prod",
                                 "reduce_sum", "rsqrt",       "sinh",
                                 "sqrt",       "square",      "squared_l2_norm",
                                 "sum",        "tan",         "tanhshrink",
                                 "var"});
}

}  // namespace fleet::program
