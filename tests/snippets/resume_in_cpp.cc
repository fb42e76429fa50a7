// SPDX-License-Identifier: Apache-2.0
// docs/howto/train-in-cpp.md, saving and going on: an argument says how many
// epochs are to be done in all.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include <torch/torch.h>

#include "fleet/distributed_model.h"

namespace {

torch::Tensor Loss(const torch::Tensor& out, const torch::Tensor& y) {
  return (out - y).square().mean();
}

fleet::Status Train(int64_t num_epochs) {
  torch::manual_seed(1);
  ASSIGN_OR_RETURN(auto job, fleet::Job::Init());
  fleet::DistributedModel model(*job, torch::nn::Linear(2, 1));
  fleet::DistributedOptimizer adam(
      *job, torch::optim::Adam(model->parameters(), 1e-2));
  const torch::Tensor x = torch::linspace(-1, 1, 64).view({32, 2});
  const auto loader = std::make_shared<std::vector<torch::data::Example<>>>();
  loader->emplace_back(x, x.sum(1, true));
  // SNIPPET 1
  std::printf("%.9g %.9g\n", model->weight[0][0].item<double>(),
              model->bias[0].item<double>());
  return job->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const fleet::Status status = Train(argc > 1 ? std::atoi(argv[1]) : 1);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return status.ok() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
