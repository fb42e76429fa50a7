// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>

#include "fleet/exec/direct.h"
#include "fleet/ops/rows.h"

namespace fleet::exec {
namespace {

using ops::Labels;
using ops::Matrix;

// `x` with its last dimension as classes; nothing where `axis` is another.
std::optional<Matrix> RowsOf(const Graph& g, int x, int64_t axis = -1) {
  const Dims& dims = g.dims(x);
  const auto last = static_cast<int64_t>(dims.size()) - 1;
  if (last < 0 || (axis != -1 && axis != last) || g.numel(x) == 0) {
    return std::nullopt;
  }
  return Matrix{g.numel(x) / dims.back(), dims.back()};
}

bool AreLabels(const Graph& g, int label, Matrix size) {
  return label != kNone && g.values[label].dense &&
         g.values[label].type.dtype == DType::kInt64 &&
         g.numel(label) == size.rows;
}

Labels LabelsIn(void* const* memory, int label, int64_t ignore) {
  return {static_cast<const int64_t*>(memory[label]), ignore};
}

// ---- softmax

bool MakeSoftmax(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int x = g.In(n, 0), y = g.Out(n, 0);
  if (!g.AreFloat({x, y})) return false;
  const auto size = RowsOf(g, x, g.attr<int64_t>(n, "axis"));
  if (!size) return false;
  g.Reads(node, {x});
  n.direct = [=](void* const* m) {
    ops::SoftmaxRows(*size, FloatIn(m, x), FloatOut(m, y));
  };
  return true;
}

bool MakeSoftmaxGrad(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int y = g.In(n, 0), dy = g.In(n, 1), dx = g.Out(n, 0);
  if (!g.AreFloat({y, dy, dx})) return false;
  const auto size = RowsOf(g, y, g.attr<int64_t>(n, "axis"));
  if (!size) return false;
  g.Reads(node, {y, dy});
  n.direct = [=](void* const* m) {
    ops::SoftmaxRowsGrad(*size, FloatIn(m, y), FloatIn(m, dy), FloatOut(m, dx));
  };
  return true;
}

// ---- softmax_with_cross_entropy

bool MakeSoftmaxLoss(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int x = g.In(n, 0), label = g.In(n, 1);
  const int softmax = g.Out(n, 0), loss = g.Out(n, 1);
  if (!g.AreFloat({x, softmax, loss}) || g.attr<bool>(n, "soft_label")) {
    return false;
  }
  const auto size = RowsOf(g, x, g.attr<int64_t>(n, "axis"));
  if (!size || !AreLabels(g, label, *size)) return false;
  g.Reads(node, {x, label});
  n.direct = [=, ignore = g.attr<int64_t>(n, "ignore_index")](void* const* m) {
    ops::CrossEntropyRows(*size, FloatIn(m, x), LabelsIn(m, label, ignore),
                          FloatOut(m, softmax), FloatOut(m, loss));
  };
  return true;
}

bool MakeSoftmaxLossGrad(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int label = g.In(n, 1), softmax = g.In(n, 2), dloss = g.In(n, 3);
  const int dx = g.Out(n, 0);
  if (!g.AreFloat({softmax, dloss, dx}) || g.attr<bool>(n, "soft_label")) {
    return false;
  }
  const auto size = RowsOf(g, softmax, g.attr<int64_t>(n, "axis"));
  if (!size || !AreLabels(g, label, *size)) return false;
  g.Reads(node, {label, softmax, dloss});
  n.direct = [=, ignore = g.attr<int64_t>(n, "ignore_index")](void* const* m) {
    ops::CrossEntropyRowsGrad(*size, FloatIn(m, softmax),
                              LabelsIn(m, label, ignore), FloatIn(m, dloss),
                              false, 1, FloatOut(m, dx));
  };
  return true;
}

// ---- cross_entropy_loss: with its reduction

struct ReducedLoss {
  Matrix size;
  int64_t ignore;
  bool none;
  bool mean;
};

std::optional<ReducedLoss> ReadReduced(const Graph& g, const Node& n, int x) {
  if (!g.AreFloat({x}) || g.attr<bool>(n, "soft_label") ||
      !g.attr<bool>(n, "use_softmax") || g.In(n, 2) != kNone) {
    return std::nullopt;
  }
  const auto size = RowsOf(g, x, g.attr<int64_t>(n, "axis"));
  if (!size || !AreLabels(g, g.In(n, 1), *size)) return std::nullopt;
  const auto& reduction = g.attr<std::string>(n, "reduction");
  return ReducedLoss{*size, g.attr<int64_t>(n, "ignore_index"),
                     reduction == "none", reduction == "mean"};
}

bool MakeReducedLoss(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int x = g.In(n, 0), label = g.In(n, 1);
  const int loss = g.Out(n, 0), softmax = g.Out(n, 1), total = g.Out(n, 2);
  const auto p = ReadReduced(g, n, x);
  if (!p || !g.AreFloat({loss, softmax, total})) return false;
  g.Reads(node, {x, label});
  // One loss per row, before they are added up.
  auto rows = std::make_shared<std::vector<float>>(p->none ? 0 : p->size.rows);
  n.direct = [=, p = *p](void* const* m) {
    float* each = p.none ? FloatOut(m, loss) : rows->data();
    const int64_t count = ops::CrossEntropyRows(p.size, FloatIn(m, x),
                                                LabelsIn(m, label, p.ignore),
                                                FloatOut(m, softmax), each);
    *FloatOut(m, total) = static_cast<float>(count);
    if (p.none) return;
    double sum = ops::Total(p.size.rows, each);
    if (p.mean && count != 0) sum /= static_cast<double>(count);
    *FloatOut(m, loss) = static_cast<float>(sum);
  };
  return true;
}

bool MakeReducedLossGrad(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int label = g.In(n, 1), softmax = g.In(n, 3), total = g.In(n, 4);
  const int dloss = g.In(n, 5), dx = g.Out(n, 0);
  const auto p = ReadReduced(g, n, softmax);
  if (!p || !g.AreFloat({total, dloss, dx})) return false;
  g.Reads(node, {label, softmax, total, dloss});
  n.direct = [=, p = *p](void* const* m) {
    const float count = *FloatIn(m, total);
    const float scale = p.mean && count != 0 ? 1 / count : 1;
    ops::CrossEntropyRowsGrad(p.size, FloatIn(m, softmax),
                              LabelsIn(m, label, p.ignore), FloatIn(m, dloss),
                              !p.none, scale, FloatOut(m, dx));
  };
  return true;
}

// ---- cross_entropy: of probabilities

bool MakeLogLoss(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int x = g.In(n, 0), label = g.In(n, 1), loss = g.Out(n, 0);
  if (!g.AreFloat({x, loss}) || g.attr<bool>(n, "soft_label")) return false;
  const auto size = RowsOf(g, x);
  if (!size || !AreLabels(g, label, *size)) return false;
  g.Reads(node, {x, label});
  n.direct = [=, ignore = g.attr<int64_t>(n, "ignore_index")](void* const* m) {
    ops::LogLossRows(*size, FloatIn(m, x), LabelsIn(m, label, ignore),
                     FloatOut(m, loss));
  };
  return true;
}

bool MakeLogLossGrad(Graph& g, int node) {
  Node& n = g.nodes[node];
  const int x = g.In(n, 0), label = g.In(n, 1), dloss = g.In(n, 2);
  const int dx = g.Out(n, 0);
  if (!g.AreFloat({x, dloss, dx}) || g.attr<bool>(n, "soft_label")) {
    return false;
  }
  const auto size = RowsOf(g, x);
  if (!size || !AreLabels(g, label, *size)) return false;
  g.Reads(node, {x, label, dloss});
  n.direct = [=, ignore = g.attr<int64_t>(n, "ignore_index")](void* const* m) {
    ops::LogLossRowsGrad(*size, FloatIn(m, x), LabelsIn(m, label, ignore),
                         FloatIn(m, dloss), FloatOut(m, dx));
  };
  return true;
}

}  // namespace

void AddLossForms(DirectForms& forms) {
  forms["softmax"] = MakeSoftmax;
  forms["softmax_grad"] = MakeSoftmaxGrad;
  forms["softmax_with_cross_entropy"] = MakeSoftmaxLoss;
  forms["softmax_with_cross_entropy_grad"] = MakeSoftmaxLossGrad;
  forms["cross_entropy_loss"] = MakeReducedLoss;
  forms["cross_entropy_loss_grad"] = MakeReducedLossGrad;
  forms["cross_entropy"] = MakeLogLoss;
  forms["cross_entropy_grad"] = MakeLogLossGrad;
}

}  // namespace fleet::exec
