// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SYNC_SYNC_BATCH_NORM_H_
#define FLEET_SYNC_SYNC_BATCH_NORM_H_

#include <chrono>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"

namespace fleet::sync {

struct SyncBatchNormOptions {
  int64_t channel_axis = 1;
  double epsilon = 1e-5;
  // running = momentum * running + (1 - momentum) * batch.
  double momentum = 0.9;
  // Whether the running variance is the estimate with n - 1, as in torch, or
  // the variance of the batch itself, as in Paddle.
  bool unbiased = false;
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

// Batch norm in training mode over the joined batch of all ranks, which may be
// of different sizes. `weight`, `bias` and the running statistics may be
// undefined; the latter are changed in place. Differentiable once; backward is
// a collective too, and gives this rank's part of the gradients of `weight` and
// `bias`, which a Reducer then combines. Throws ExchangeError (reducer.h).
//
// For float32, float64, and the half types, whose sums are made in float32.
// `communicator` outlives the graph.
at::Tensor SyncBatchNorm(comm::Communicator& communicator,
                         const at::Tensor& input, const at::Tensor& weight,
                         const at::Tensor& bias, const at::Tensor& running_mean,
                         const at::Tensor& running_var,
                         const SyncBatchNormOptions& options);

// Forward and backward without a graph, for programs.
struct SyncBatchNormForwardResult {
  at::Tensor out;
  // What backward needs: [C] of float64.
  at::Tensor mean;
  at::Tensor inverse;  // of the standard deviation
};
Result<SyncBatchNormForwardResult> SyncBatchNormForward(
    comm::Communicator& communicator, const at::Tensor& input,
    const at::Tensor& weight, const at::Tensor& bias,
    const at::Tensor& running_mean, const at::Tensor& running_var,
    const SyncBatchNormOptions& options);

struct SyncBatchNormGradients {
  at::Tensor input;
  at::Tensor weight;  // this rank's part
  at::Tensor bias;    // this rank's part
};
Result<SyncBatchNormGradients> SyncBatchNormBackward(
    comm::Communicator& communicator, const at::Tensor& input,
    const at::Tensor& weight, const at::Tensor& mean, const at::Tensor& inverse,
    const at::Tensor& out_gradient, const SyncBatchNormOptions& options);

}  // namespace fleet::sync

#endif  // FLEET_SYNC_SYNC_BATCH_NORM_H_
