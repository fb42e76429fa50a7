// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/matmul_bare.h"

#include <memory>
#include <string>

#include "fleet/ops/kernels.h"
#include "fleet/ops/sums.h"

// The forms over bare memory of what matmul_kernels.cc computes. Both call the
// products of gemm.h, with the same shapes.

namespace fleet::ops {
namespace {

int64_t Count(const Dims& dims, size_t begin, size_t end) {
  int64_t n = 1;
  for (size_t i = begin; i < end; ++i) n *= dims[i];
  return n;
}

}  // namespace

// The first two slots of all of them are the factors.
std::optional<Product> ReadProduct(const BareCall& call) {
  const std::string& type = call.def().name;
  Product p{.a = call.In(0), .b = call.In(1)};
  if (!GemmIsFast() || !call.AreFloat({p.a, p.b}) || call.numel(p.a) == 0 ||
      call.numel(p.b) == 0) {
    return std::nullopt;
  }
  const Dims& a = call.dims(p.a);
  const Dims& b = call.dims(p.b);
  size_t rows_a = a.size() - 1, rows_b = 1;
  if (type == "mul") {
    rows_a = call.attr<int64_t>("x_num_col_dims");
    rows_b = call.attr<int64_t>("y_num_col_dims");
    if (rows_a >= a.size() || rows_b >= b.size()) return std::nullopt;
  } else if (b.size() != 2 || a.size() < 2) {
    return std::nullopt;
  }
  GemmShape& s = p.shape;
  if (type == "matmul_v2") {
    s.trans_a = call.attr<bool>("trans_x");
    s.trans_b = call.attr<bool>("trans_y");
    if (s.trans_a && a.size() != 2) return std::nullopt;
  }
  const int64_t m = Count(a, 0, rows_a), k = Count(a, rows_a, a.size());
  const int64_t l = Count(b, 0, rows_b), o = Count(b, rows_b, b.size());
  s.m = s.trans_a ? k : m;
  s.k = s.trans_a ? m : k;
  s.n = s.trans_b ? l : o;
  if (s.k != (s.trans_b ? o : l)) return std::nullopt;
  if (type == "fc") {
    p.bias = call.In(2);
    if (!call.AreFloatOrNone({p.bias}) ||
        (p.bias != kNone && call.numel(p.bias) != s.n)) {
      return std::nullopt;
    }
  }
  return p;
}

Bare ProductWork(const Product& p, int out, Activation activation) {
  auto gemm =
      std::make_shared<PreparedGemm>(p.shape, p.bias != kNone, activation);
  return [=](void* const* m) {
    gemm->Run(FloatIn(m, p.a), FloatIn(m, p.b),
              p.bias == kNone ? nullptr : FloatIn(m, p.bias), FloatOut(m, out));
  };
}

namespace {

bool ProductForm(BareCall& c) {
  const auto p = ReadProduct(c);
  const int out = c.Out(0);
  if (!p || !c.IsFloat(out) || c.numel(out) != p->shape.m * p->shape.n) {
    return false;
  }
  return c.Run({p->a, p->b, p->bias}, ProductWork(*p, out));
}

// dA and dB of c = op(A) op(B), as products of their own.
Bare LeftGradWork(const Product& p, int dout, int da) {
  const GemmShape& s = p.shape;
  if (s.trans_a) {  // dA [k, m] = op(B) dC^T
    return ProductWork(
        {.a = p.b, .b = dout, .shape = {s.k, s.m, s.n, s.trans_b, true}}, da);
  }
  return ProductWork(
      {.a = dout, .b = p.b, .shape = {s.m, s.k, s.n, false, !s.trans_b}}, da);
}

Bare RightGradWork(const Product& p, int dout, int db) {
  const GemmShape& s = p.shape;
  if (s.trans_b) {  // dB [n, k] = dC^T op(A)
    return ProductWork(
        {.a = dout, .b = p.a, .shape = {s.n, s.k, s.m, true, s.trans_a}}, db);
  }
  return ProductWork(
      {.a = p.a, .b = dout, .shape = {s.k, s.n, s.m, !s.trans_a, false}}, db);
}

bool ProductGradForm(BareCall& c) {
  const auto p = ReadProduct(c);
  if (!p) return false;
  const int dout = c.inputs().back();
  const int da = c.Out(0), db = c.Out(1), dbias = c.Out(2);
  if (!c.IsFloat(dout) || c.numel(dout) != p->shape.m * p->shape.n ||
      !c.AreFloatOrNone({da, db, dbias})) {
    return false;
  }
  const Bare left = da == kNone ? nullptr : LeftGradWork(*p, dout, da);
  const Bare right = db == kNone ? nullptr : RightGradWork(*p, dout, db);
  return c.Run({dout, da == kNone ? kNone : p->b, db == kNone ? kNone : p->a},
               [=, rows = p->shape.m, columns = p->shape.n](void* const* m) {
                 if (left) left(m);
                 if (right) right(m);
                 if (dbias != kNone) {
                   ColumnSums(rows, columns, FloatIn(m, dout),
                              FloatOut(m, dbias));
                 }
               });
}

}  // namespace

void AddMatmulForms(KernelTable& k) {
  for (const char* op : {"fc", "mul", "matmul_v2"}) {
    k.OnMemory(op, ProductForm, ProductGradForm);
  }
}

}  // namespace fleet::ops
