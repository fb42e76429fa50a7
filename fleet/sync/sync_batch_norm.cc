// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/sync_batch_norm.h"

#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "fleet/sync/reducer.h"
#include "fleet/sync/tensor_collectives.h"

namespace fleet::sync {
namespace {

using at::Tensor;
using base::Deadline;
using comm::Communicator;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// What is summed over a batch: all but the channels, which are axis 1.
std::vector<int64_t> BatchAxes(const Tensor& x) {
  std::vector<int64_t> axes = {0};
  for (int64_t i = 2; i < x.dim(); ++i) axes.push_back(i);
  return axes;
}

// [C] so that it meets the channels of `x`.
Tensor Broadcastable(const Tensor& channels, const Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = channels.numel();
  return channels.view(shape);
}

at::ScalarType SumType(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

struct Statistics {
  Tensor mean;      // [C], double
  Tensor variance;  // [C], double
  double count = 0;
};

// Of this rank's batch, as one row: means, sums of squared distances from
// them, count.
Tensor LocalStatistics(const Tensor& x) {
  const int64_t channels = x.size(1);
  const auto options = x.options().dtype(at::kDouble);
  if (x.numel() == 0) return at::zeros({2 * channels + 1}, options);
  const auto count = static_cast<double>(x.numel() / channels);
  auto [variance, mean] =
      at::var_mean(x.to(SumType(x)), BatchAxes(x), /*correction=*/0);
  return at::cat({mean.to(at::kDouble), variance.to(at::kDouble) * count,
                  at::full({1}, count, options)});
}

// Sums of squares of all ranks together would cancel; distances from each
// rank's own mean do not.
Statistics Combine(const std::vector<Tensor>& ranks) {
  const int64_t channels = (ranks[0].numel() - 1) / 2;
  Tensor all = at::stack(ranks);
  Tensor means = all.narrow(1, 0, channels);
  Tensor squares = all.narrow(1, channels, channels);
  Tensor counts = all.narrow(1, 2 * channels, 1);
  Statistics result;
  result.count = at::sum(counts).item<double>();
  TORCH_CHECK(result.count > 0, "sync_batch_norm: no rank has any data");
  result.mean = at::sum(means * counts, {0}) / result.count;
  Tensor between = means - result.mean;
  result.variance =
      at::sum(squares + between * between * counts, {0}) / result.count;
  return result;
}

void UpdateRunning(const Tensor& running, const Tensor& batch,
                   double momentum) {
  if (!running.defined()) return;
  running.detach().mul_(momentum).add_(batch.to(running.scalar_type()),
                                       1 - momentum);
}

Tensor Normalize(const Tensor& x, const Statistics& statistics,
                 const Tensor& weight, const Tensor& bias, double epsilon) {
  const at::ScalarType type = SumType(x);
  Tensor scale = at::rsqrt(statistics.variance + epsilon) * weight;
  // (x - mean) first: mean * scale would cancel against it.
  Tensor out = x.to(type) - Broadcastable(statistics.mean.to(type), x);
  out.mul_(Broadcastable(scale.to(type), x));
  out.add_(Broadcastable(bias.to(type), x));
  return out.to(x.scalar_type());
}

// What is no variable of the function.
struct Surroundings {
  Communicator& communicator;
  const Tensor& running_mean;
  const Tensor& running_var;
  const SyncBatchNormOptions& options;
};

// One call of SyncBatchNorm in the graph. Channels are axis 1.
class Node final : public torch::autograd::Function<Node> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const Tensor& weight, const Tensor& bias,
                        const Surroundings& surroundings) {
    const auto& [communicator, running_mean, running_var, options] =
        surroundings;
    auto rows = AllGather(communicator, LocalStatistics(x),
                          Deadline::After(options.timeout));
    if (!rows.ok()) throw ExchangeError(rows.status());
    const Statistics statistics = Combine(*rows);
    const double n = statistics.count;
    UpdateRunning(running_mean, statistics.mean, options.momentum);
    UpdateRunning(running_var,
                  options.unbiased && n > 1
                      ? statistics.variance * (n / (n - 1))
                      : statistics.variance,
                  options.momentum);
    context->save_for_backward(
        {x, weight, statistics.mean,
         at::rsqrt(statistics.variance + options.epsilon)});
    context->saved_data["communicator"] =
        reinterpret_cast<int64_t>(&communicator);
    context->saved_data["timeout"] =
        static_cast<int64_t>(options.timeout.count());
    context->saved_data["count"] = n;
    return Normalize(x, statistics, weight, bias, options.epsilon);
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "sync_batch_norm can be differentiated once only");
    const tensor_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    const at::ScalarType type = SumType(x);
    const Tensor mean = saved[2].to(type), inverse = saved[3].to(type);
    const Tensor dy = grads[0].to(type);
    const Tensor distance = x.to(type) - Broadcastable(mean, x);
    const int64_t channels = x.size(1);
    Tensor sums = at::zeros({2 * channels}, x.options().dtype(at::kDouble));
    if (x.numel() > 0) {
      sums = at::cat({at::sum(dy, BatchAxes(x)),
                      at::sum(dy * distance, BatchAxes(x))})
                 .to(at::kDouble);
    }
    Tensor dbias = sums.narrow(0, 0, channels).to(type);
    Tensor dweight = sums.narrow(0, channels, channels).to(type) * inverse;

    auto* communicator = reinterpret_cast<Communicator*>(
        context->saved_data["communicator"].toInt());
    const std::chrono::milliseconds timeout(
        context->saved_data["timeout"].toInt());
    Tensor all = sums.clone();  // dbias may be a view of it
    Status status = AllReduce(*communicator, all, comm::ReduceOp::kSum,
                              Deadline::After(timeout));
    if (!status.ok()) throw ExchangeError(std::move(status));
    all.div_(context->saved_data["count"].toDouble());
    Tensor mean_dy = all.narrow(0, 0, channels).to(type);
    Tensor slope =
        all.narrow(0, channels, channels).to(type) * inverse * inverse;
    Tensor scale = inverse * weight.to(type);
    Tensor dx =
        (dy - Broadcastable(mean_dy, x) - distance * Broadcastable(slope, x)) *
        Broadcastable(scale, x);
    return {dx.to(x.scalar_type()), dweight.to(weight.scalar_type()),
            dbias.to(weight.scalar_type()), Tensor()};
  }
};

}  // namespace

Tensor SyncBatchNorm(Communicator& communicator, const Tensor& input,
                     const Tensor& weight, const Tensor& bias,
                     const Tensor& running_mean, const Tensor& running_var,
                     const SyncBatchNormOptions& options) {
  TORCH_CHECK(input.dim() >= 2 && input.is_floating_point(),
              "sync_batch_norm takes floating point with at least 2 axes, not ",
              input.scalar_type(), " ", input.sizes());
  const int64_t axis = options.channel_axis;
  TORCH_CHECK(axis >= 0 && axis < input.dim(), "sync_batch_norm: no axis ",
              axis);
  for (const Tensor& t : {weight, bias, running_mean, running_var}) {
    TORCH_CHECK(!t.defined() || t.numel() == input.size(axis),
                "sync_batch_norm: ", t.numel(), " values for ",
                input.size(axis), " channels");
  }
  const Tensor x = axis == 1 ? input : input.movedim(axis, 1);
  const auto options_of_x = input.options().dtype(SumType(input));
  const Tensor scale =
      weight.defined() ? weight : at::ones({input.size(axis)}, options_of_x);
  const Tensor shift =
      bias.defined() ? bias : at::zeros({input.size(axis)}, options_of_x);
  Tensor out = Node::apply(
      x, scale, shift,
      Surroundings{communicator, running_mean, running_var, options});
  return axis == 1 ? out : out.movedim(1, axis);
}

}  // namespace fleet::sync
