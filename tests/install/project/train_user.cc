// SPDX-License-Identifier: Apache-2.0
// A few steps of a torch::nn model as a rank of a job.
#include <cstdio>

#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "fleet/collectives.h"
#include "fleet/distributed_model.h"
#include "fleet/distributed_sampler.h"

int main() {
  auto job = fleet::Job::Init();
  if (!job.ok()) {
    std::fprintf(stderr, "%s\n", job.status().ToString().c_str());
    return 1;
  }
  fleet::DistributedModel model(**job, torch::nn::Linear(3, 1));
  fleet::DistributedOptimizer sgd(**job,
                                  torch::optim::SGD(model->parameters(), 0.1));
  const torch::Tensor x = torch::ones({4, 3});
  double first = 0, last = 0;
  for (int step = 0; step < 10; ++step) {
    torch::Tensor loss = (model(x) - 2.0).square().mean();
    sgd.zero_grad();
    loss.backward();
    sgd.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  torch::Tensor sum = torch::ones({1});
  const bool ok = fleet::AllReduce(**job, sum).ok() &&
                  sum.item<float>() == static_cast<float>((*job)->size());
  std::printf("rank %d of %d: loss %g -> %g\n", (*job)->rank(), (*job)->size(),
              first, last);
  const bool ended = (*job)->Finish().ok();
  return ok && ended && last < first ? 0 : 1;
}
