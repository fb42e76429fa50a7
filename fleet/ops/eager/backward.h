// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_EAGER_BACKWARD_H_
#define FLEET_OPS_EAGER_BACKWARD_H_

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

namespace torch::autograd {
struct Node;
}

namespace fleet::ops {

// Adds to the gradient of every leaf that `outputs` depend on. `grads` holds
// the gradient to start from for each output. Unless `retain_graph`, the graph
// is freed and cannot be walked again. Throws what kernels throw.
//
// A graph on the CPU without hooks is walked here, in the calling thread, which
// for small models takes half the time of LibTorch's engine; every other graph
// is given to that engine. Hooks behind the accumulation of a leaf's gradient
// are no hindrance. Thread-safe for graphs that share no node.
void Backward(const std::vector<at::Tensor>& outputs,
              std::vector<at::Tensor> grads, bool retain_graph);

// Runs `callback` when the backward that this thread is in has ended well; when
// it fails, `callback` is dropped. For hooks, in this walk as in LibTorch's
// engine. Of backwards inside each other, the outermost counts.
void AtEndOfBackward(std::function<void()> callback);

// A hook of a leaf (torch's set_post_acc_grad_hooks) that has a place of its
// own for the gradient. LibTorch's engine only calls it as such a hook, after
// the gradient was accumulated. The walk here offers it more.
class GradientSink : public torch::autograd::PostAccumulateGradHook {
 public:
  // Where the gradient should be computed; undefined for anywhere. Asked when
  // one kernel makes the whole gradient; that kernel may use it or not.
  virtual at::Tensor Place() = 0;
  // Takes the whole gradient of this walk in place of the accumulation, which
  // is then left out. False: it is accumulated, and the hook is called.
  virtual bool Take(const at::Tensor& grad) = 0;
};

// For backward kernels: memory for the gradient at `position` of those that the
// kernel returns. The place where it is wanted, if there is one and it is
// contiguous and fits, and new memory otherwise.
at::Tensor EmptyGradient(size_t position, at::IntArrayRef shape,
                         const at::TensorOptions& options);

// While it lives, EmptyGradient speaks of the gradients of `node`, whose
// backward kernel runs on this thread.
class RunningNode final {
 public:
  explicit RunningNode(const torch::autograd::Node& node);
  RunningNode(const RunningNode&) = delete;
  ~RunningNode();

 private:
  const torch::autograd::Node* const before_;
};

}  // namespace fleet::ops

#endif  // FLEET_OPS_EAGER_BACKWARD_H_
