// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>

#include "fleet/exec/direct.h"
#include "fleet/ops/gemm.h"

namespace fleet::exec {
namespace {

using ops::Activation;
using ops::GemmShape;
using ops::PreparedGemm;

// c = a b, with matrices that may be views of more dimensions.
struct Product {
  int a = kNone;
  int b = kNone;
  int bias = kNone;
  GemmShape shape;
};

int64_t Count(const Dims& dims, size_t begin, size_t end) {
  int64_t n = 1;
  for (size_t i = begin; i < end; ++i) n *= dims[i];
  return n;
}

// The product that a forward node, or the forward node of a backward one,
// computes; the first two slots of all of them are the factors.
std::optional<Product> ReadProduct(const Graph& g, int node) {
  const Node& n = g.nodes[node];
  const std::string& type = n.kernel->def().name;
  Product p{.a = g.In(n, 0), .b = g.In(n, 1)};
  if (!g.AreFloat({p.a, p.b}) || g.numel(p.a) == 0 || g.numel(p.b) == 0) {
    return std::nullopt;
  }
  const Dims& a = g.dims(p.a);
  const Dims& b = g.dims(p.b);
  size_t rows_a = a.size() - 1, rows_b = 1;
  if (type == "mul") {
    rows_a = g.attr<int64_t>(n, "x_num_col_dims");
    rows_b = g.attr<int64_t>(n, "y_num_col_dims");
    if (rows_a >= a.size() || rows_b >= b.size()) return std::nullopt;
  } else if (b.size() != 2 || a.size() < 2) {
    return std::nullopt;
  }
  GemmShape& s = p.shape;
  if (type == "matmul_v2") {
    s.trans_a = g.attr<bool>(n, "trans_x");
    s.trans_b = g.attr<bool>(n, "trans_y");
    if (s.trans_a && a.size() != 2) return std::nullopt;
  }
  const int64_t m = Count(a, 0, rows_a), k = Count(a, rows_a, a.size());
  const int64_t l = Count(b, 0, rows_b), o = Count(b, rows_b, b.size());
  s.m = s.trans_a ? k : m;
  s.k = s.trans_a ? m : k;
  s.n = s.trans_b ? l : o;
  if (s.k != (s.trans_b ? o : l)) return std::nullopt;
  return p;
}

Direct MakeGemm(const GemmShape& shape, int a, int b, int c, int bias = kNone,
                Activation activation = Activation::kNone) {
  auto gemm = std::make_shared<PreparedGemm>(shape, bias != kNone, activation);
  return [=](void* const* m) {
    gemm->Run(FloatIn(m, a), FloatIn(m, b),
              bias == kNone ? nullptr : FloatIn(m, bias), FloatOut(m, c));
  };
}

bool MakeProduct(Graph& g, int node) {
  if (!ops::GemmIsFast()) return false;
  Node& n = g.nodes[node];
  const auto p = ReadProduct(g, node);
  const int out = g.Out(n, 0);
  if (!p || !g.AreFloat({out}) || g.numel(out) != p->shape.m * p->shape.n) {
    return false;
  }
  int bias = kNone;
  if (n.kernel->def().name == "fc") bias = g.In(n, 2);
  if (bias != kNone && (!g.AreFloat({bias}) || g.numel(bias) != p->shape.n)) {
    return false;
  }
  g.Reads(node, {p->a, p->b, bias});
  n.direct = MakeGemm(p->shape, p->a, p->b, out, bias);
  return true;
}

// dA and dB of c = op(A) op(B), as products of their own.
Direct MakeLeftGrad(const Product& p, int dout, int da) {
  const GemmShape& s = p.shape;
  if (s.trans_a) {  // dA [k, m] = op(B) dC^T
    return MakeGemm({s.k, s.m, s.n, s.trans_b, true}, p.b, dout, da);
  }
  return MakeGemm({s.m, s.k, s.n, false, !s.trans_b}, dout, p.b, da);
}

Direct MakeRightGrad(const Product& p, int dout, int db) {
  const GemmShape& s = p.shape;
  if (s.trans_b) {  // dB [n, k] = dC^T op(A)
    return MakeGemm({s.n, s.k, s.m, true, s.trans_a}, dout, p.a, db);
  }
  return MakeGemm({s.k, s.n, s.m, !s.trans_a, false}, p.a, dout, db);
}

bool MakeProductGrad(Graph& g, int node) {
  if (!ops::GemmIsFast()) return false;
  Node& n = g.nodes[node];
  const auto p = ReadProduct(g, node);
  if (!p) return false;
  const bool fc = n.kernel->def().name == "fc";
  const int dout = n.inputs.back();
  const int da = g.Out(n, 0), db = g.Out(n, 1);
  const int dbias = fc ? g.Out(n, 2) : kNone;
  if (!g.AreFloat({dout}) || g.numel(dout) != p->shape.m * p->shape.n) {
    return false;
  }
  for (int grad : {da, db, dbias}) {
    if (grad != kNone && !g.AreFloat({grad})) return false;
  }
  g.Reads(node, {dout, da == kNone ? kNone : p->b, db == kNone ? kNone : p->a});
  Direct left = da == kNone ? nullptr : MakeLeftGrad(*p, dout, da);
  Direct right = db == kNone ? nullptr : MakeRightGrad(*p, dout, db);
  n.direct = [=, rows = p->shape.m, columns = p->shape.n](void* const* m) {
    if (left) left(m);
    if (right) right(m);
    if (dbias != kNone) {
      ops::ColumnSums(rows, columns, FloatIn(m, dout), FloatOut(m, dbias));
    }
  };
  return true;
}

// ---- fusion

std::optional<Activation> ActivationOf(const Graph& g, int node) {
  if (g.Is(node, "relu")) return Activation::kRelu;
  if (g.Is(node, "tanh")) return Activation::kTanh;
  if (g.Is(node, "sigmoid")) return Activation::kSigmoid;
  return std::nullopt;
}

// Whether `node` adds one number per column to `x`, a matrix of `columns`.
bool AddsBias(const Graph& g, int node, int x, int64_t columns) {
  if (!g.Is(node, "elementwise_add") || !g.nodes[node].direct) return false;
  const Node& n = g.nodes[node];
  const int y = g.In(n, 1);
  if (g.In(n, 0) != x || y == x || g.numel(y) != columns) return false;
  if (g.dims(y).size() != 1) return false;
  const int64_t axis = g.attr<int64_t>(n, "axis");
  const auto rank = static_cast<int64_t>(g.dims(x).size());
  return g.dims(x).back() == columns && (axis == -1 || axis == rank - 1);
}

void Fuse(Graph& g, int node) {
  auto p = ReadProduct(g, node);
  if (!p) return;
  if (g.Is(node, "fc")) p->bias = g.In(g.nodes[node], 2);
  int last = node;
  int out = g.Out(g.nodes[node], 0);
  auto take = [&](int next) {
    g.nodes[last].gone = true;
    last = next;
    out = g.Out(g.nodes[next], 0);
  };
  int next = OnlyReader(g, out);
  if (next != kNone && p->bias == kNone && !Separated(g, node, next) &&
      AddsBias(g, next, out, p->shape.n)) {
    p->bias = g.In(g.nodes[next], 1);
    take(next);
    next = OnlyReader(g, out);
  }
  Activation activation = Activation::kNone;
  if (next != kNone && ActivationOf(g, next) && g.nodes[next].direct &&
      !Separated(g, node, next)) {
    activation = *ActivationOf(g, next);
    take(next);
  }
  if (last == node) return;
  g.nodes[last].fused = true;
  g.nodes[last].direct =
      MakeGemm(p->shape, p->a, p->b, out, p->bias, activation);
  g.Reads(last, {p->a, p->b, p->bias});
}

}  // namespace

void AddMatmulForms(DirectForms& forms) {
  for (const char* op : {"fc", "mul", "matmul_v2"}) forms[op] = MakeProduct;
  for (const char* op : {"fc_grad", "mul_grad", "matmul_v2_grad"}) {
    forms[op] = MakeProductGrad;
  }
}

void FuseFc(Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int node = static_cast<int>(i);
    const bool product = graph.Is(node, "fc") || graph.Is(node, "mul") ||
                         graph.Is(node, "matmul_v2");
    if (product && graph.nodes[i].direct) Fuse(graph, node);
  }
}

}  // namespace fleet::exec
