// SPDX-License-Identifier: Apache-2.0

// Runs a saved model on inputs of ones:
//
//   build/release/bin/run_model python/tests/data/saved_models/paddle_1_8/mlp
//
// The argument is a folder with __model__, or the prefix of a .pdmodel and a
// .pdiparams file, saved here or by Paddle.

#include <iostream>
#include <vector>

#include <ATen/ops/ones.h>

#include "fleet/exec/saved_model.h"

namespace {

using fleet::Status;

// Two rows where the model leaves the number open.
at::Tensor Ones(const fleet::program::TensorType& type) {
  std::vector<int64_t> sizes = type.dims;
  for (int64_t& size : sizes) size = size < 0 ? 2 : size;
  return at::ones(sizes, fleet::ops::ToScalarType(type.dtype));
}

Status Run(const char* path) {
  ASSIGN_OR_RETURN(auto model, fleet::exec::LoadedModel::Open(path));
  std::vector<at::Tensor> inputs;
  for (const std::string& name : model->inputs()) {
    inputs.push_back(Ones(model->type(name)));
  }
  ASSIGN_OR_RETURN(std::vector<at::Tensor> outputs, model->Run(inputs));
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::cout << model->outputs()[i] << "\n" << outputs[i] << "\n";
  }
  return fleet::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: run_model PATH\n";
    return 2;
  }
  const Status status = Run(argv[1]);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
