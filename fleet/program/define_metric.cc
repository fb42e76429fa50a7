// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

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

// Predict [N, 1] or [N, 2], the positive class last; a label for each row.
Result<std::vector<TensorType>> AucShape(const OpTypes& t) {
  const Dims& predict = t.in("Predict").dims;
  if (predict.size() != 2 || predict[1] > 2) {
    return InvalidArgument("Predict must have shape [N, 1] or [N, 2], not ",
                           ToString(predict));
  }
  if (t.attr<std::string>("curve") != "ROC") {
    return InvalidArgument("curve must be 'ROC', not '",
                           t.attr<std::string>("curve"), "'");
  }
  const int64_t buckets = t.attr<int64_t>("num_thresholds") + 1;
  const int64_t steps = t.attr<int64_t>("slide_steps");
  const int64_t wanted = steps == 0 ? buckets : (steps + 1) * buckets + 1;
  for (const char* slot : {"StatPos", "StatNeg"}) {
    const int64_t n = NumElements(t.in(slot).dims);
    if (n != -1 && n != wanted) {
      return InvalidArgument(slot, " must have ", wanted, " elements, not ", n);
    }
  }
  return std::vector<TensorType>{
      {DType::kFloat64, {1}}, t.in("StatPos"), t.in("StatNeg")};
}

}  // namespace

void DefineMetricOps(OpDefiner& ops) {
  // Out and Indices are what top_k_v2 gives.
  ops.Define("accuracy(Out, Indices, Label) -> Accuracy!, Correct!, Total!",
             AccuracyShape);
  // Works in place: StatPosOut names the variable of StatPos. The states count
  // predictions by threshold. With `slide_steps` they hold the counts of the
  // last so many batches, the sum of these, and the number of batches seen.
  ops.Define(
      "auc(Predict, Label, StatPos, StatNeg; curve: string = 'ROC', "
      "num_thresholds: int = 4095, slide_steps: int = 1) -> AUC!, "
      "StatPosOut!, StatNegOut!",
      AucShape);
}

}  // namespace fleet::program
