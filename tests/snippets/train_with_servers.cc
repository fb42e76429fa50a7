// SPDX-License-Identifier: Apache-2.0
// docs/howto/train-in-cpp.md, the program with servers: numbers of ids.
#include <cstdio>
#include <exception>
#include <vector>

#include <torch/torch.h>

namespace {

struct Batch {
  torch::Tensor ids, y;
};

struct NetImpl : torch::nn::Module {
  NetImpl() : fc(16, 1) { register_module("fc", fc); }
  torch::Tensor forward(const torch::Tensor& rows) { return fc(rows); }
  torch::nn::Linear fc;
};
TORCH_MODULE(Net);

torch::Tensor Loss(const torch::Tensor& out, const torch::Tensor& y) {
  return (out - y).square().mean();
}

fleet::Status Train() {
  torch::manual_seed(1);
  Net net;
  std::vector<Batch> batches;
  for (int64_t step = 0; step < 20; ++step) {
    const torch::Tensor ids = (torch::arange(8) + step).remainder(10);
    batches.push_back({ids, ids.to(torch::kFloat).view({8, 1})});
  }
  // SNIPPET 1
}

fleet::Status Serve() {
  // SNIPPET 2
}

fleet::Status Run() {
  ASSIGN_OR_RETURN(auto role, fleet::cluster::RoleFromEnvironment(
                                  fleet::cluster::ReadEnvironment(), false));
  return role.is_server() ? Serve() : Train();
}

}  // namespace

int main() {
  try {
    const fleet::Status status = Run();
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return status.ok() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
