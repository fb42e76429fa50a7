// SPDX-License-Identifier: Apache-2.0

// What the forms of products share with the fusions around them.

#ifndef FLEET_OPS_MATMUL_BARE_H_
#define FLEET_OPS_MATMUL_BARE_H_

#include <optional>

#include "fleet/ops/bare.h"
#include "fleet/ops/gemm.h"

namespace fleet::ops {

// c = a b, with matrices that may be views of more dimensions.
struct Product {
  int a = kNone;
  int b = kNone;
  int bias = kNone;
  GemmShape shape;
};

// The product of a call of fc, mul or matmul_v2, or of that whose gradient it
// is; nothing where the forms do not take it.
std::optional<Product> ReadProduct(const BareCall& call);

// The work of it, with `out` for c.
Bare ProductWork(const Product& product, int out,
                 Activation activation = Activation::kNone);

}  // namespace fleet::ops

#endif  // FLEET_OPS_MATMUL_BARE_H_
