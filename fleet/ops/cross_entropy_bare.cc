// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fleet/ops/kernels.h"
#include "fleet/ops/rows.h"

// The forms over bare memory of what cross_entropy_kernels.cc computes.

namespace fleet::ops {
namespace {

// `x` as rows of classes, one label for each; nothing where that is not so.
std::optional<Matrix> LabelledRows(const BareCall& c, int x, int label,
                                   int64_t axis = -1) {
  if (c.attr<bool>("soft_label")) return std::nullopt;
  const auto size = RowsAlong(c.dims(x), axis);
  if (!size || label == kNone || !c.IsDense(label) ||
      c.type(label).dtype != DType::kInt64 || c.numel(label) != size->rows) {
    return std::nullopt;
  }
  return size;
}

Labels LabelsIn(void* const* memory, int label, int64_t ignore) {
  return {static_cast<const int64_t*>(memory[label]), ignore};
}

// ---- softmax_with_cross_entropy

bool SoftmaxLossForm(BareCall& c) {
  const int x = c.In(0), label = c.In(1);
  const int softmax = c.Out(0), loss = c.Out(1);
  if (!c.AreFloat({x, softmax, loss})) return false;
  const auto size = LabelledRows(c, x, label, c.attr<int64_t>("axis"));
  if (!size) return false;
  const auto ignore = c.attr<int64_t>("ignore_index");
  return c.Run({x, label}, [=](void* const* m) {
    CrossEntropyRows(*size, FloatIn(m, x), LabelsIn(m, label, ignore),
                     FloatOut(m, softmax), FloatOut(m, loss));
  });
}

bool SoftmaxLossGradForm(BareCall& c) {
  const int label = c.In(1), softmax = c.In(2), dloss = c.In(3);
  const int dx = c.Out(0);
  if (!c.AreFloat({softmax, dloss, dx})) return false;
  const auto size = LabelledRows(c, softmax, label, c.attr<int64_t>("axis"));
  if (!size) return false;
  const auto ignore = c.attr<int64_t>("ignore_index");
  return c.Run({label, softmax, dloss}, [=](void* const* m) {
    CrossEntropyRowsGrad(*size, FloatIn(m, softmax), LabelsIn(m, label, ignore),
                         LossReduction::kNone, nullptr, FloatIn(m, dloss),
                         FloatOut(m, dx));
  });
}

// ---- cross_entropy_loss: with its reduction

std::optional<Matrix> UnweightedRows(const BareCall& c, int x) {
  if (!c.attr<bool>("use_softmax") || c.In(2) != kNone) return std::nullopt;
  return LabelledRows(c, x, c.In(1), c.attr<int64_t>("axis"));
}

bool ReducedLossForm(BareCall& c) {
  const int x = c.In(0), label = c.In(1);
  const int loss = c.Out(0), softmax = c.Out(1), total = c.Out(2);
  if (!c.AreFloat({x, loss, softmax, total})) return false;
  const auto size = UnweightedRows(c, x);
  if (!size) return false;
  const auto ignore = c.attr<int64_t>("ignore_index");
  const LossReduction reduction =
      ReadReduction(c.attr<std::string>("reduction"));
  const bool each = reduction == LossReduction::kNone;
  // One loss per row, before they are added up.
  auto rows = std::make_shared<std::vector<float>>(each ? 0 : size->rows);
  return c.Run({x, label}, [=](void* const* m) {
    ReducedCrossEntropyRows(*size, FloatIn(m, x), LabelsIn(m, label, ignore),
                            reduction, FloatOut(m, softmax),
                            each ? FloatOut(m, loss) : rows->data(),
                            FloatOut(m, loss), FloatOut(m, total));
  });
}

bool ReducedLossGradForm(BareCall& c) {
  const int label = c.In(1), softmax = c.In(3), total = c.In(4);
  const int dloss = c.In(5), dx = c.Out(0);
  if (!c.AreFloat({softmax, total, dloss, dx})) return false;
  const auto size = UnweightedRows(c, softmax);
  if (!size) return false;
  const auto ignore = c.attr<int64_t>("ignore_index");
  const LossReduction reduction =
      ReadReduction(c.attr<std::string>("reduction"));
  return c.Run({label, softmax, total, dloss}, [=](void* const* m) {
    CrossEntropyRowsGrad(*size, FloatIn(m, softmax), LabelsIn(m, label, ignore),
                         reduction, FloatIn(m, total), FloatIn(m, dloss),
                         FloatOut(m, dx));
  });
}

// ---- cross_entropy: of probabilities

bool LogLossForm(BareCall& c) {
  const int x = c.In(0), label = c.In(1), loss = c.Out(0);
  if (!c.AreFloat({x, loss})) return false;
  const auto size = LabelledRows(c, x, label);
  if (!size) return false;
  const auto ignore = c.attr<int64_t>("ignore_index");
  return c.Run({x, label}, [=](void* const* m) {
    LogLossRows(*size, FloatIn(m, x), LabelsIn(m, label, ignore),
                FloatOut(m, loss));
  });
}

bool LogLossGradForm(BareCall& c) {
  const int x = c.In(0), label = c.In(1), dloss = c.In(2);
  const int dx = c.Out(0);
  if (!c.AreFloat({x, dloss, dx})) return false;
  const auto size = LabelledRows(c, x, label);
  if (!size) return false;
  const auto ignore = c.attr<int64_t>("ignore_index");
  return c.Run({x, label, dloss}, [=](void* const* m) {
    LogLossRowsGrad(*size, FloatIn(m, x), LabelsIn(m, label, ignore),
                    FloatIn(m, dloss), FloatOut(m, dx));
  });
}

}  // namespace

void AddCrossEntropyForms(KernelTable& k) {
  k.OnMemory("softmax_with_cross_entropy", SoftmaxLossForm,
             SoftmaxLossGradForm);
  k.OnMemory("cross_entropy_loss", ReducedLossForm, ReducedLossGradForm);
  k.OnMemory("cross_entropy", LogLossForm, LogLossGradForm);
}

}  // namespace fleet::ops
