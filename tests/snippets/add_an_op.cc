// SPDX-License-Identifier: Apache-2.0
// docs/howto/add-an-op.md: the definition and the kernels of an op, in tables
// of their own.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>

#include "fleet/ops/eager/eager.h"
#include "fleet/ops/kernel.h"
#include "fleet/program/op_definer.h"
#include "fleet/program/shape_rules.h"

namespace fleet::program {
namespace {

Result<std::vector<TensorType>> FloatingX(const OpTypes& t) {
  return SameAs("X")(t);
}

void DefineIt(OpDefiner& ops) {
  // SNIPPET 1
}

}  // namespace
}  // namespace fleet::program

namespace fleet::ops {
namespace {

using at::Tensor;

// SNIPPET 2

void AddIt(KernelTable& k) {
  // SNIPPET 3
}

// The gradient of softsign at 1 is a quarter.
int Run() {
  program::OpRegistry definitions;
  program::OpDefiner ops(definitions);
  program::DefineIt(ops);
  KernelTable kernels(definitions);
  AddIt(kernels);
  const Op* softsign = kernels.Find("softsign");
  at::Tensor x = at::full({3}, 1.0).set_requires_grad(true);
  const uint32_t end = 1;
  auto out = RunEager(*softsign, {&x, 1}, {&end, 1},
                      softsign->def->DefaultAttrs(), {});
  if (!out.ok()) return 1;
  at::sum((*out)[0]).backward();
  const double gradient = x.grad()[0].item<double>();
  std::printf("%g %g\n", (*out)[0][0].item<double>(), gradient);
  return gradient == 0.25 ? 0 : 1;
}

}  // namespace
}  // namespace fleet::ops

int main() { return fleet::ops::Run(); }
