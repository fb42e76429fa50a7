// SPDX-License-Identifier: Apache-2.0
// One step of SGD through libfleet_core, and a program that is built for
// training, without LibTorch.
#include <array>
#include <cstdio>

#include "fleet/optim/update.h"
#include "fleet/optim/update_rule.h"
#include "fleet/plan/minimize.h"
#include "fleet/program/builder.h"

int main() {
  std::array<float, 2> values = {1.0f, 2.0f};
  const std::array<float, 2> gradient = {10.0f, 20.0f};
  const fleet::optim::Slice<float> slice{.values = values.data(),
                                         .gradient = gradient.data(),
                                         .state = {},
                                         .size = 2};
  const fleet::optim::Update<float> update{.slices = {&slice, 1},
                                           .learning_rate = 0.1};
  fleet::optim::Apply<float>(fleet::optim::Sgd{}, {&update, 1});
  std::printf("%g %g\n", values[0], values[1]);

  fleet::program::Program program, startup;
  fleet::program::Builder b(program, startup);
  const auto loss = b.Mean(b.Fc(b.Data("x", {-1, 4}), 1));
  if (!fleet::plan::Minimize(b, loss, {}).ok()) return 1;
  return values[0] == 0.0f && values[1] == 0.0f ? 0 : 1;
}
