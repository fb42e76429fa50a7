// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/gradient_merge.h"

#include "fleet/program/op_role.h"

namespace fleet::plan {

using program::AttrKind;
using program::Builder;
using program::DType;
using program::OpRole;
using program::Scope;
using program::Value;

namespace {

void Write(Builder& b, const Value& value, const Value& to) {
  b.Append({.type = "assign",
            .inputs = {{"X", {value.name()}}},
            .outputs = {{"Out", {to.name()}}}});
}

// The number of runs so far, this one included.
Value CountRuns(Builder& b) {
  const Value counter =
      b.NewPersistable(b.NewName("gradient_merge_step"), {1}, DType::kInt64, 0);
  b.Append({.type = "increment",
            .inputs = {{"X", {counter.name()}}},
            .outputs = {{"Out", {counter.name()}}},
            .attrs = {{"step", {AttrKind::kFloat, 1.0}}}});
  return counter;
}

// Whether `count` is a multiple of `steps`.
Value IsDue(Builder& b, const Value& count, int64_t steps) {
  const Value every = b.FillConstant({.shape = {1},
                                      .value = static_cast<double>(steps),
                                      .dtype = DType::kInt64});
  const Value rest = b.ElementwiseMod(count, every);
  return b.Equal(rest, b.FillAnyLike(rest, {.value = 0.0}));
}

}  // namespace

Status MergeGradients(Builder& b, const Gradients& gradients,
                      const GradientMerge& options,
                      const std::function<Status(const Gradients&)>& update) {
  if (options.steps < 1) {
    return InvalidArgument("gradient merge: steps must be 1 or more, not ",
                           options.steps);
  }
  if (options.steps == 1 || gradients.empty()) return update(gradients);
  RETURN_IF_ERROR(b.status());
  Scope scope(b);
  scope.Role(OpRole::kOptimize);
  const Value count = CountRuns(b);
  Gradients sums;
  for (const auto& [parameter, gradient] : gradients) {
    const Value sum =
        b.NewPersistable(parameter.name() + "@GRAD@GradientMerge",
                         parameter.dims(), parameter.dtype(), 0.0);
    Write(b, b.ElementwiseAdd(sum, gradient), sum);
    sums.push_back({parameter, sum});
  }
  Status updated = OkStatus();
  b.If(IsDue(b, count, options.steps), [&] {
    const double factor =
        options.average ? 1.0 / static_cast<double>(options.steps) : 1.0;
    Gradients merged;
    for (const auto& [parameter, sum] : sums) {
      merged.push_back({parameter, b.Scale(sum, {.scale = factor})});
    }
    updated = update(merged);
    for (const auto& [parameter, sum] : sums) {
      b.Append({.type = "scale",
                .inputs = {{"X", {sum.name()}}},
                .outputs = {{"Out", {sum.name()}}},
                .attrs = {{"scale", {AttrKind::kFloat, 0.0}}}});
    }
  });
  RETURN_IF_ERROR(updated);
  return b.status();
}

}  // namespace fleet::plan
