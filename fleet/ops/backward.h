// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_BACKWARD_H_
#define FLEET_OPS_BACKWARD_H_

#include <vector>

#include <ATen/core/Tensor.h>

namespace fleet::ops {

// Adds to the gradient of every leaf that `outputs` depend on. `grads` holds
// the gradient to start from for each output. Unless `retain_graph`, the graph
// is freed and cannot be walked again. Throws what kernels throw.
//
// A graph on the CPU without hooks is walked here, in the calling thread, which
// for small models takes half the time of LibTorch's engine; every other graph
// is given to that engine. Thread-safe for graphs that share no node.
void Backward(const std::vector<at::Tensor>& outputs,
              std::vector<at::Tensor> grads, bool retain_graph);

}  // namespace fleet::ops

#endif  // FLEET_OPS_BACKWARD_H_
