// SPDX-License-Identifier: Apache-2.0

// Data parallel on GPU 0, over NCCL with the one rank that one GPU allows.
// Written without a test library: machines with a GPU may have none.
//
// usage: sync_gpu_check        closing line: 'N passed, N failed'

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "fleet/comm/in_process.h"
#include "fleet/comm/nccl.h"
#include "fleet/ops/eager/backward.h"
#include "fleet/sync/reducer.h"
#include "fleet/sync/sync_batch_norm.h"
#include "fleet/sync/tensor_collectives.h"

namespace fleet::sync {
namespace {

using at::Tensor;
using comm::Communicator;

const auto kGpu = at::TensorOptions(at::Device(at::kCUDA, 0));

base::Deadline Soon() {
  return base::Deadline::After(std::chrono::seconds(60));
}

void Require(bool holds, const char* what) { TORCH_CHECK(holds, what); }

void Require(const Status& status) {
  TORCH_CHECK(status.ok(), status.ToString());
}

double Distance(const Tensor& a, const Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

struct Net {
  Net() {
    for (auto shape : {std::vector<int64_t>{64, 256}, {256}, {256, 4}, {4}}) {
      parameters.push_back(at::randn(shape, kGpu).set_requires_grad(true));
    }
  }
  Tensor Loss(const Tensor& x) const {
    Tensor hidden = at::tanh(at::matmul(x, parameters[0]) + parameters[1]);
    return at::mean(at::matmul(hidden, parameters[2]) + parameters[3]);
  }
  std::vector<NamedTensor> named() const {
    std::vector<NamedTensor> all;
    for (const Tensor& p : parameters) {
      all.push_back({std::to_string(all.size()), p});
    }
    return all;
  }

  std::vector<Tensor> parameters;
};

void CollectivesOnTensors(Communicator& c) {
  Tensor data = at::full({1000}, 3.0, kGpu);
  Require(AllReduce(c, data, comm::ReduceOp::kMean, Soon()));
  Require(at::equal(data, at::full({1000}, 3.0, kGpu)), "mean of one");
  auto all = AllGather(c, data.view({10, 100}).t(), Soon());
  Require(all.status());
  Require(at::equal((*all)[0], data.view({10, 100}).t()), "gathered");
  Tensor on_cpu = at::ones({5});
  Require(AllReduce(c, on_cpu, comm::ReduceOp::kSum, Soon()));
  Require(at::equal(on_cpu, at::ones({5})), "memory of the host");
}

void GradientsAreThoseWithoutAReducer(Communicator& c) {
  Net net;
  const Tensor x = at::randn({32, 64}, kGpu);
  ops::Backward({net.Loss(x)}, {at::ones({}, kGpu)}, false);
  std::vector<Tensor> want;
  for (Tensor& p : net.parameters) {
    want.push_back(p.grad().clone());
    p.mutable_grad().reset();
  }
  auto reducer = Reducer::Make(
      c, net.named(), {},
      {.bucket_bytes = 4096, .last_bucket_bytes = 1024, .even_alone = true});
  Require(reducer.status());
  for (int step = 0; step < 3; ++step) {
    ops::Backward({net.Loss(x)}, {at::ones({}, kGpu)}, false);
    for (size_t i = 0; i < want.size(); ++i) {
      Tensor& grad = net.parameters[i].mutable_grad();
      Require(Distance(grad, want[i]) < 1e-5, "gradients differ");
      grad.reset();
    }
  }
  Require((*reducer)->stats().rounds == 3, "not every backward was a round");
  Require((*reducer)->stats().num_buckets > 1, "one bucket only");
}

void UnusedParametersKeepNoGradient(Communicator& c) {
  Tensor used = at::ones({3}, kGpu).set_requires_grad(true);
  Tensor unused = at::ones({3}, kGpu).set_requires_grad(true);
  auto reducer = Reducer::Make(c, {{"used", used}, {"unused", unused}}, {},
                               {.even_alone = true});
  Require(reducer.status());
  ops::Backward({at::sum(used * 2)}, {at::ones({}, kGpu)}, false);
  Require(at::equal(used.grad(), at::full({3}, 2.0, kGpu)), "used");
  Require(!unused.grad().defined(), "unused");
  Require((*reducer)->Join());
}

void BatchNormIsLibTorchs(Communicator& c) {
  Tensor x = at::randn({16, 3, 8, 8}, kGpu).set_requires_grad(true);
  Tensor again = x.detach().clone().set_requires_grad(true);
  const Tensor mean = at::zeros({3}, kGpu), var = at::ones({3}, kGpu);
  Tensor out = SyncBatchNorm(c, x, {}, {}, mean, var, {.unbiased = true});
  const Tensor want_mean = at::zeros({3}, kGpu), want_var = at::ones({3}, kGpu);
  Tensor want = at::batch_norm(again, {}, {}, want_mean, want_var, true, 0.1,
                               1e-5, false);
  const Tensor weights = at::randn({16, 3, 8, 8}, kGpu);
  at::sum(out * weights).backward();
  at::sum(want * weights).backward();
  Require(Distance(out, want) < 1e-5, "outputs differ");
  Require(Distance(x.grad(), again.grad()) < 1e-4, "gradients differ");
  Require(Distance(var, want_var) < 1e-5, "running variances differ");
}

void ShowSpeed(Communicator& c) {
  auto milliseconds = [](const std::function<void()>& f) {
    double best = 1e9;
    for (int i = 0; i < 20; ++i) {
      const auto start = std::chrono::steady_clock::now();
      f();
      const std::chrono::duration<double, std::milli> spent =
          std::chrono::steady_clock::now() - start;
      best = std::min(best, spent.count());
    }
    return best;
  };
  Net net;
  const Tensor x = at::randn({32, 64}, kGpu);
  auto step = [&] {
    ops::Backward({net.Loss(x)}, {at::ones({}, kGpu)}, false);
    const float seen = net.parameters[0].grad()[0][0].item<float>();
    (void)seen;  // waits for the GPU
    for (Tensor& p : net.parameters) p.mutable_grad().reset();
  };
  const double alone = milliseconds(step);
  auto reducer = Reducer::Make(c, net.named(), {}, {.even_alone = true});
  Require(reducer.status());
  std::printf("      step without reducer %.3f ms, with %.3f ms\n", alone,
              milliseconds(step));
}

int Main() {
  auto companion = std::move(comm::MakeInProcess(1)[0]);
  auto made = comm::ConnectNccl(std::move(companion), 0, {}, Soon());
  if (!made.ok()) {
    std::fprintf(stderr, "sync_gpu_check: %s\n",
                 made.status().ToString().c_str());
    return 1;
  }
  const std::pair<const char*, void (*)(Communicator&)> checks[] = {
      {"collectives on tensors", CollectivesOnTensors},
      {"gradients through buckets", GradientsAreThoseWithoutAReducer},
      {"unused parameters and join", UnusedParametersKeepNoGradient},
      {"batch norm over all ranks", BatchNormIsLibTorchs},
      {"speed", ShowSpeed},
  };
  int passed = 0, failed = 0;
  for (const auto& [name, check] : checks) {
    try {
      check(**made);
      ++passed;
      std::printf("ok    %s\n", name);
    } catch (const c10::Error& error) {
      ++failed;
      std::printf("FAIL  %s: %s\n", name, error.what_without_backtrace());
    } catch (const std::exception& error) {
      ++failed;
      std::printf("FAIL  %s: %s\n", name, error.what());
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace fleet::sync

int main() { return fleet::sync::Main(); }
