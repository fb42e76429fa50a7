// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/define_ops.h"

namespace fleet::program {
namespace {

// A label for each row of the best classes: [N, 1] or [N] for [N, k].
Result<std::vector<TensorType>> AccuracyShape(const OpTypes& t) {
  const Dims& indices = t.in("Indices").dims;
  const Dims& label = t.in("Label").dims;
  if (indices.size() != 2) {
    return InvalidArgument("input must have two dimensions, not ",
                           ToString(indices));
  }
  bool column = label.size() == 2 && (label[1] == 1 || label[1] == -1);
  bool known = !label.empty() && label[0] != -1 && indices[0] != -1;
  if ((label.size() != 1 && !column) || (known && label[0] != indices[0])) {
    return InvalidArgument("label ", ToString(label),
                           " must have one class for each row of input ",
                           ToString(indices));
  }
  return std::vector<TensorType>{
      {DType::kFloat32, {1}}, {DType::kInt32, {1}}, {DType::kInt32, {1}}};
}

}  // namespace

void DefineMetricOps(OpRegistry& ops) {
  // Out and Indices are what top_k_v2 gives.
  ops.Define("accuracy(Out, Indices, Label) -> Accuracy!, Correct!, Total!",
             AccuracyShape);
}

}  // namespace fleet::program
