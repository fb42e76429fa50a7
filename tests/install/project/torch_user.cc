// SPDX-License-Identifier: Apache-2.0
// One op and its gradient through libfleet.
#include <cstdio>

#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>

#include "fleet/ops/eager/eager.h"
#include "fleet/ops/kernels.h"

int main() {
  fleet::ops::OpLibrary library;
  const fleet::ops::Op* square = library.Find("square");
  at::Tensor x = at::ones({3}).set_requires_grad(true);
  const uint32_t end = 1;
  auto out = fleet::ops::RunEager(*square, {&x, 1}, {&end, 1},
                                  square->def->DefaultAttrs(), {});
  if (!out.ok()) return 1;
  at::sum((*out)[0]).backward();
  double gradient = x.grad()[0].item<double>();
  std::printf("gradient of square at 1: %g\n", gradient);
  return gradient == 2.0 ? 0 : 1;
}
