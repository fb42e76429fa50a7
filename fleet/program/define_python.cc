// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

// Ops that the language around carries out. They have no kernels: whoever runs
// a program with them gives the executor an extension.

namespace fleet::program {
namespace {

// `out_types` lists the outputs: element type, number of dimensions, these.
Result<std::vector<TensorType>> PyFuncShape(const OpTypes& t) {
  const auto& flat = t.attr<std::vector<int64_t>>("out_types");
  std::vector<TensorType> types;
  for (size_t i = 0; i < flat.size();) {
    if (i + 2 > flat.size() || flat[i + 1] < 0 ||
        i + 2 + flat[i + 1] > flat.size()) {
      return InvalidArgument("out_types is cut off");
    }
    const auto begin = flat.begin() + static_cast<int64_t>(i) + 2;
    types.push_back(
        {static_cast<DType>(flat[i]), Dims(begin, begin + flat[i + 1])});
    i += 2 + static_cast<size_t>(flat[i + 1]);
  }
  return types;
}

}  // namespace

void DefinePythonOps(OpDefiner& ops) {
  // Functions by their numbers; -1: there is none.
  ops.DefineExternal(
      "py_func(X*; forward_callable_id: int, backward_callable_id: int = -1, "
      "out_types: ints) -> Out*",
      PyFuncShape, "X, Out, Out' -> X'");
  // Prints In, and its gradient, and hands them on.
  ops.DefineExternal(
      "print(In; first_n: int = -1, message: string = '', "
      "summarize: int = 20, print_tensor_name: bool = true, "
      "print_tensor_type: bool = true, print_tensor_shape: bool = true, "
      "print_tensor_layout: bool = true, print_tensor_lod: bool = true, "
      "print_phase: string = 'BOTH') -> Out",
      SameAs("In"), "Out' -> In'");
}

}  // namespace fleet::program
