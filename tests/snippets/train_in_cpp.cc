// SPDX-License-Identifier: Apache-2.0
// docs/howto/train-in-cpp.md, the first program: a network finds the sum of two
// numbers.
#include <cstdio>
#include <exception>
#include <optional>

namespace {

class Sums : public torch::data::Dataset<Sums> {
 public:
  torch::data::Example<> get(size_t i) override {
    const torch::Tensor x = numbers_[static_cast<int64_t>(i)];
    return {x, x.sum(0, true)};
  }
  std::optional<size_t> size() const override { return numbers_.size(0); }

 private:
  const torch::Tensor numbers_ = torch::linspace(-1, 1, 2048).view({1024, 2});
};

struct NetImpl : torch::nn::Module {
  NetImpl() : fc(2, 1) { register_module("fc", fc); }
  torch::Tensor forward(const torch::Tensor& x) { return fc(x); }
  torch::nn::Linear fc;
};
TORCH_MODULE(Net);

torch::Tensor Loss(const torch::Tensor& out, const torch::Tensor& y) {
  return (out - y).square().mean();
}

fleet::Status Train() {
  torch::manual_seed(1);
  auto dataset = Sums().map(torch::data::transforms::Stack<>());
  // SNIPPET 1
  std::printf("rank %d of %d has trained\n", job->rank(), job->size());
  return fleet::OkStatus();
}

}  // namespace

int main() {
  try {
    const fleet::Status status = Train();
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return status.ok() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
