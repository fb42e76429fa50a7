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

// Statistics of this rank's batch, as one row: means, sums of squared distances
// from them, count.
Tensor LocalStatistics(const Tensor& x) {
  const int64_t channels = x.size(1);
  const auto options = x.options().dtype(at::kDouble);
  if (x.numel() == 0) return at::zeros({2 * channels + 1}, options);
  const auto count = static_cast<double>(x.numel() / channels);
  const Tensor values = x.to(SumType(x));
  const Tensor mean = at::sum(values, BatchAxes(x)) / count;
  // In two passes: at::var_mean over these axes takes ten times as long.
  Tensor squares = values - Broadcastable(mean, x);
  squares.mul_(squares);
  return at::cat({mean.to(at::kDouble),
                  at::sum(squares, BatchAxes(x)).to(at::kDouble),
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

// Channels are axis 1 in what follows.
Result<SyncBatchNormForwardResult> Forward(
    Communicator& communicator, const Tensor& x, const Tensor& weight,
    const Tensor& bias, const Tensor& running_mean, const Tensor& running_var,
    const SyncBatchNormOptions& options) {
  ASSIGN_OR_RETURN(std::vector<Tensor> rows,
                   AllGather(communicator, LocalStatistics(x),
                             Deadline::After(options.timeout)));
  const Statistics statistics = Combine(rows);
  const double n = statistics.count;
  UpdateRunning(running_mean, statistics.mean, options.momentum);
  UpdateRunning(running_var,
                options.unbiased && n > 1 ? statistics.variance * (n / (n - 1))
                                          : statistics.variance,
                options.momentum);
  return SyncBatchNormForwardResult{
      Normalize(x, statistics, weight, bias, options.epsilon), statistics.mean,
      at::rsqrt(statistics.variance + options.epsilon)};
}

Result<SyncBatchNormGradients> Backward(Communicator& communicator,
                                        const Tensor& x, const Tensor& weight,
                                        const Tensor& saved_mean,
                                        const Tensor& saved_inverse,
                                        const Tensor& out_gradient,
                                        std::chrono::milliseconds timeout) {
  const at::ScalarType type = SumType(x);
  const Tensor mean = saved_mean.to(type), inverse = saved_inverse.to(type);
  const Tensor dy = out_gradient.to(type);
  const Tensor distance = x.to(type) - Broadcastable(mean, x);
  const int64_t channels = x.size(1);
  const auto options = x.options().dtype(at::kDouble);
  // Sums over this rank's batch, and its size.
  Tensor all = at::zeros({2 * channels + 1}, options);
  if (x.numel() > 0) {
    const auto count = static_cast<double>(x.numel() / channels);
    all = at::cat({at::sum(dy, BatchAxes(x)).to(at::kDouble),
                   at::sum(dy * distance, BatchAxes(x)).to(at::kDouble),
                   at::full({1}, count, options)});
  }
  Tensor dbias = all.narrow(0, 0, channels).to(type, false, /*copy=*/true);
  Tensor dweight = all.narrow(0, channels, channels).to(type) * inverse;
  RETURN_IF_ERROR(AllReduce(communicator, all, comm::ReduceOp::kSum,
                            Deadline::After(timeout)));
  all.div_(all[2 * channels].item<double>());
  Tensor mean_dy = all.narrow(0, 0, channels).to(type);
  Tensor slope = all.narrow(0, channels, channels).to(type) * inverse * inverse;
  Tensor scale = inverse * weight.to(type);
  Tensor dx =
      (dy - Broadcastable(mean_dy, x) - distance * Broadcastable(slope, x)) *
      Broadcastable(scale, x);
  return SyncBatchNormGradients{dx.to(x.scalar_type()),
                                dweight.to(weight.scalar_type()),
                                dbias.to(weight.scalar_type())};
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
    auto result = Forward(communicator, x, weight, bias, running_mean,
                          running_var, options);
    if (!result.ok()) throw ExchangeError(result.status());
    context->save_for_backward({x, weight, result->mean, result->inverse});
    context->saved_data["communicator"] =
        reinterpret_cast<int64_t>(&communicator);
    context->saved_data["timeout"] =
        static_cast<int64_t>(options.timeout.count());
    return result->out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "sync_batch_norm can be differentiated once only");
    const tensor_list saved = context->get_saved_variables();
    auto* communicator = reinterpret_cast<Communicator*>(
        context->saved_data["communicator"].toInt());
    const std::chrono::milliseconds timeout(
        context->saved_data["timeout"].toInt());
    auto result = Backward(*communicator, saved[0], saved[1], saved[2],
                           saved[3], grads[0], timeout);
    if (!result.ok()) throw ExchangeError(result.status());
    return {result->input, result->weight, result->bias, Tensor()};
  }
};

// The arguments as the functions above take them.
struct Prepared {
  Tensor x;
  Tensor weight;
  Tensor bias;
};

Prepared Prepare(const Tensor& input, const Tensor& weight, const Tensor& bias,
                 int64_t axis) {
  TORCH_CHECK(input.dim() >= 2 && input.is_floating_point(),
              "sync_batch_norm takes floating point with at least 2 axes, not ",
              input.scalar_type(), " ", input.sizes());
  TORCH_CHECK(axis >= 0 && axis < input.dim(), "sync_batch_norm: no axis ",
              axis);
  const int64_t channels = input.size(axis);
  for (const Tensor& t : {weight, bias}) {
    TORCH_CHECK(!t.defined() || t.numel() == channels,
                "sync_batch_norm: ", t.numel(), " values for ", channels,
                " channels");
  }
  const auto options = input.options().dtype(SumType(input));
  return {axis == 1 ? input : input.movedim(axis, 1),
          weight.defined() ? weight : at::ones({channels}, options),
          bias.defined() ? bias : at::zeros({channels}, options)};
}

Tensor BackToAxis(const Tensor& x, int64_t axis) {
  return axis == 1 ? x : x.movedim(1, axis);
}

}  // namespace

Tensor SyncBatchNorm(Communicator& communicator, const Tensor& input,
                     const Tensor& weight, const Tensor& bias,
                     const Tensor& running_mean, const Tensor& running_var,
                     const SyncBatchNormOptions& options) {
  const int64_t axis = options.channel_axis;
  const Prepared prepared = Prepare(input, weight, bias, axis);
  for (const Tensor& t : {running_mean, running_var}) {
    TORCH_CHECK(!t.defined() || t.numel() == input.size(axis),
                "sync_batch_norm: ", t.numel(), " values for ",
                input.size(axis), " channels");
  }
  return BackToAxis(Node::apply(prepared.x, prepared.weight, prepared.bias,
                                Surroundings{communicator, running_mean,
                                             running_var, options}),
                    axis);
}

Result<SyncBatchNormForwardResult> SyncBatchNormForward(
    Communicator& communicator, const Tensor& input, const Tensor& weight,
    const Tensor& bias, const Tensor& running_mean, const Tensor& running_var,
    const SyncBatchNormOptions& options) {
  const at::NoGradGuard no_grad;
  const int64_t axis = options.channel_axis;
  const Prepared prepared = Prepare(input, weight, bias, axis);
  ASSIGN_OR_RETURN(SyncBatchNormForwardResult result,
                   Forward(communicator, prepared.x, prepared.weight,
                           prepared.bias, running_mean, running_var, options));
  result.out = BackToAxis(result.out, axis);
  return result;
}

Result<SyncBatchNormGradients> SyncBatchNormBackward(
    Communicator& communicator, const Tensor& input, const Tensor& weight,
    const Tensor& mean, const Tensor& inverse, const Tensor& out_gradient,
    const SyncBatchNormOptions& options) {
  const at::NoGradGuard no_grad;
  const int64_t axis = options.channel_axis;
  const Prepared prepared = Prepare(input, weight, Tensor(), axis);
  const Tensor dy = axis == 1 ? out_gradient : out_gradient.movedim(axis, 1);
  ASSIGN_OR_RETURN(SyncBatchNormGradients result,
                   Backward(communicator, prepared.x, prepared.weight, mean,
                            inverse, dy, options.timeout));
  result.input = BackToAxis(result.input, axis);
  return result;
}

}  // namespace fleet::sync
