// SPDX-License-Identifier: Apache-2.0

// Builds a program, differentiates it and trains with it:
//
//   build/release/bin/train_static [STEPS]
//
// The network is that of the static scripts: two layers of tanh and a softmax
// over two classes. It learns whether the sum of its input is positive.

#include <cstdlib>
#include <iostream>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>

#include "fleet/exec/executor.h"
#include "fleet/plan/minimize.h"
#include "fleet/program/builder.h"

namespace {

using fleet::Status;
using fleet::program::DType;
using fleet::program::Value;

Status Train(int steps) {
  fleet::program::Program main, startup;
  fleet::program::Builder b(main, startup, {.seed = 1});
  const Value x = b.Data("x", {-1, 32});
  const Value y = b.Data("y", {-1, 1}, DType::kInt64);
  Value hidden = b.Fc(x, 128, {.activation = "tanh"});
  hidden = b.Fc(hidden, 128, {.activation = "tanh"});
  const Value logits = b.Fc(hidden, 2);
  const Value loss = b.Mean(b.SoftmaxWithCrossEntropy(logits, y).loss);
  RETURN_IF_ERROR(fleet::plan::Minimize(b, loss, {.learning_rate = 0.5}));

  at::manual_seed(1);
  const fleet::ops::OpLibrary library;
  fleet::exec::Scope scope;
  fleet::exec::Executor executor(library, {});
  RETURN_IF_ERROR(executor.Run(startup, scope, {}, {}).status());
  for (int step = 0; step <= steps; ++step) {
    const at::Tensor batch = at::randn({128, 32});
    const at::Tensor label = (batch.sum(1, true) > 0).to(at::kLong);
    ASSIGN_OR_RETURN(
        auto fetched,
        executor.Run(main, scope, {{"x", batch}, {"y", label}}, {loss.name()}));
    if (step % 100 == 0) {
      std::cout << "step " << step << " loss " << fetched[0].item<float>()
                << "\n";
    }
  }
  return fleet::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = Train(argc > 1 ? std::atoi(argv[1]) : 500);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
