// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

// Control flow. The executor itself runs these ops. Those without a shape rule
// leave their outputs the types that they have: the operations of a body give
// them.

namespace fleet::program {
namespace {

using Types = Result<std::vector<TensorType>>;

// One of X: a dimension in which they differ is not known.
Types SelectShape(const OpTypes& t) {
  std::span<const TensorType> x = t.list("X");
  if (x.empty()) return InvalidArgument("X is an empty list");
  TensorType out = x[0];
  for (const TensorType& other : x) {
    if (other.dtype != out.dtype) {
      return InvalidArgument("the branches give ", Name(out.dtype), " and ",
                             Name(other.dtype));
    }
    if (other.dims.size() != out.dims.size()) {
      return InvalidArgument("the branches give shapes ", ToString(out.dims),
                             " and ", ToString(other.dims));
    }
    for (size_t i = 0; i < out.dims.size(); ++i) {
      if (out.dims[i] != other.dims[i]) out.dims[i] = -1;
    }
  }
  return std::vector<TensorType>{out};
}

Types LengthShape(const OpTypes&) {
  return std::vector<TensorType>{{DType::kInt64, {1}}};
}

Types TakenShape(const OpTypes& t) {
  return std::vector<TensorType>{t.in("Like"), t.in("Array")};
}

}  // namespace

void DefineControlOps(OpDefiner& ops) {
  // Runs the body `sub_block` if Cond is true. Input: what the body reads of
  // the blocks around it; Out: what it writes there, untouched if it does not
  // run. `sub_block` is an attribute of its own kind and not listed here.
  ops.DefineExternal(
      "conditional_block(Cond*, Input*; is_scalar_condition: bool = true) -> "
      "Out*, Scope?",
      nullptr);
  // Runs the body while Condition, which the body writes, is true. X and Out
  // as above; what the loop carries from turn to turn is in both.
  ops.DefineExternal(
      "while(X*, Condition; is_test: bool = false) -> Out*, StepScopes?",
      nullptr);
  // Out is X[Mask]; the others need not have a value.
  ops.DefineExternal("select_input(X*, Mask) -> Out", SelectShape);
  // Out[Mask] is X; the others get no value.
  ops.DefineExternal("select_output(X, Mask) -> Out*", nullptr);

  // Out, an array of tensors, gets X at place I and grows as needed. An array
  // begins empty in every run.
  ops.DefineExternal("write_to_array(X, I) -> Out", SameAs("X"));
  ops.DefineExternal("read_from_array(X, I) -> Out", SameAs("X"));
  ops.DefineExternal("lod_array_length(X) -> Out!", LengthShape);
  // Gradients of these. Array at place I, which may have no value yet, plus X.
  ops.DefineExternal("add_to_array(X, I, Array) -> Out", SameAs("Array"));
  // What Array has at place I, and zeros like Like where that is nothing; the
  // place has no value afterwards.
  ops.DefineExternal("take_from_array(Array, I, Like) -> Out, ArrayOut",
                     TakenShape);
}

}  // namespace fleet::program
