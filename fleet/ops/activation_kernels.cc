// SPDX-License-Identifier: Apache-2.0
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/celu.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/elu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/hardshrink.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardswish_backward.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softplus_backward.h>
#include <ATen/ops/softshrink.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/layout.h"
#include "fleet/ops/reduction.h"
#include "fleet/ops/rows.h"

namespace fleet::ops {
namespace {

using at::Tensor;

// ---- softmax

Tensor Softmax(const Tensor& x, int64_t axis) {
  const auto size = RowsAlong(x.sizes(), axis);
  if (!size || !FastOnCpu(x)) return at::_softmax(x, axis, false);
  Tensor out = at::empty(x.sizes(), x.options());
  SoftmaxRows(*size, x.expect_contiguous()->const_data_ptr<float>(),
              out.mutable_data_ptr<float>());
  return out;
}

Tensor SoftmaxGrad(const Tensor& out, const Tensor& dout, int64_t axis) {
  const auto size = RowsAlong(out.sizes(), axis);
  if (!size || !FastOnCpu(out, dout)) {
    return at::_softmax_backward_data(dout, out, axis, out.scalar_type());
  }
  const auto y = out.expect_contiguous(), dy = dout.expect_contiguous();
  Tensor dx = at::empty(out.sizes(), out.options());
  SoftmaxRowsGrad(*size, y->const_data_ptr<float>(),
                  dy->const_data_ptr<float>(), dx.mutable_data_ptr<float>());
  return dx;
}

bool SoftmaxForm(BareCall& c) {
  const int x = c.In(0), y = c.Out(0);
  if (!c.AreFloat({x, y})) return false;
  const auto size = RowsAlong(c.dims(x), c.attr<int64_t>("axis"));
  if (!size) return false;
  return c.Run({x}, [=](void* const* m) {
    SoftmaxRows(*size, FloatIn(m, x), FloatOut(m, y));
  });
}

bool SoftmaxGradForm(BareCall& c) {
  const int y = c.In(0), dy = c.In(1), dx = c.Out(0);
  if (!c.AreFloat({y, dy, dx})) return false;
  const auto size = RowsAlong(c.dims(y), c.attr<int64_t>("axis"));
  if (!size) return false;
  return c.Run({y, dy}, [=](void* const* m) {
    SoftmaxRowsGrad(*size, FloatIn(m, y), FloatIn(m, dy), FloatOut(m, dx));
  });
}

Tensor LogSoftmax(const Tensor& x, int64_t axis) {
  return at::_log_softmax(x, axis, false);
}

Tensor LogSoftmaxGrad(const Tensor& out, const Tensor& dout, int64_t axis) {
  return at::_log_softmax_backward_data(dout, out, axis, out.scalar_type());
}

// ---- functions of one element

const char* Approximation(bool approximate) {
  return approximate ? "tanh" : "none";
}

// `dout` where `open`, else zero.
Tensor Gate(const Tensor& open, const Tensor& dout) {
  return at::where(open, dout, at::zeros_like(dout));
}

Tensor Between(const Tensor& x, double low, double high) {
  return at::logical_and(x > low, x < high);
}

Tensor HardSigmoid(const Tensor& x, double slope, double offset) {
  return at::clamp(x * slope + offset, 0.0, 1.0);
}
Tensor HardSigmoidGrad(const Tensor& x, const Tensor& dout, double slope,
                       double offset) {
  return Gate(Between(x * slope + offset, 0, 1), dout * slope);
}

Tensor Swish(const Tensor& x, double beta) { return x * at::sigmoid(x * beta); }
Tensor SwishGrad(const Tensor& x, const Tensor& dout, double beta) {
  Tensor s = at::sigmoid(x * beta);
  return dout * (s + x * s * (1 - s) * beta);
}

// ATen computes some functions otherwise on a view with gaps than on its copy,
// so these get it packed.
void AddElementwise(KernelTable& k) {
  k.Add<[](const Tensor& x, bool approximate) {
    return at::gelu(Packed(x), Approximation(approximate));
  },
        [](const Tensor& x, const Tensor& dout, bool approximate) {
          return at::gelu_backward(Packed(dout), Packed(x),
                                   Approximation(approximate));
        }>("gelu");
  k.Add<[](const Tensor& x, double alpha) { return at::leaky_relu(x, alpha); },
        [](const Tensor& x, const Tensor& dout, double alpha) {
          return at::leaky_relu_backward(dout, x, alpha, false);
        }>("leaky_relu");
  k.Add<[](const Tensor& x, double alpha) { return at::elu(Packed(x), alpha); },
        [](const Tensor& x, const Tensor& dout, double alpha) {
          return at::elu_backward(Packed(dout), alpha, 1.0, 1.0, false,
                                  Packed(x));
        }>("elu");
  k.Add<[](const Tensor& x, double alpha) {
    TORCH_CHECK(alpha != 0, "alpha must not be 0");
    return at::elu(Packed(x), alpha, 1.0, 1 / alpha);
  },
        [](const Tensor& x, const Tensor& dout, double alpha) {
          return at::elu_backward(Packed(dout), alpha, 1.0, 1 / alpha, false,
                                  Packed(x));
        }>("celu");
  k.Add<[](const Tensor& x, double scale, double alpha) {
    return at::elu(Packed(x), alpha, scale, 1.0);
  },
        [](const Tensor& x, const Tensor& dout, double scale, double alpha) {
          return at::elu_backward(Packed(dout), alpha, scale, 1.0, false,
                                  Packed(x));
        }>("selu");
  k.Add<[](const Tensor& x) { return at::clamp(x, 0.0, 6.0); },
        [](const Tensor& x, const Tensor& dout) {
          return Gate(Between(x, 0, 6), dout);
        }>("relu6");
  k.Add<[](const Tensor& x) { return at::hardswish(x); },
        [](const Tensor& x, const Tensor& dout) {
          return at::hardswish_backward(dout, x);
        }>("hard_swish");
  k.Add<HardSigmoid, HardSigmoidGrad>("hard_sigmoid");
  k.Add<[](const Tensor& x, double low, double high) {
    TORCH_CHECK(low <= high, "min ", low, " is above max ", high);
    return at::clamp(x, low, high);
  },
        [](const Tensor& x, const Tensor& dout, double low, double high) {
          return Gate(Between(x, low, high), dout);
        }>("brelu");
  k.Add<[](const Tensor& x, double limit) { return at::hardshrink(x, limit); },
        [](const Tensor& x, const Tensor& dout, double limit) {
          return Gate(x.abs() > limit, dout);
        }>("hard_shrink");
  k.Add<[](const Tensor& x, double limit) { return at::softshrink(x, limit); },
        [](const Tensor& x, const Tensor& dout, double limit) {
          return Gate(x.abs() > limit, dout);
        }>("softshrink");
  k.Add<[](const Tensor& x, double beta, double threshold) {
    return at::softplus(Packed(x), beta, threshold);
  },
        [](const Tensor& x, const Tensor& dout, double beta, double threshold) {
          return at::softplus_backward(Packed(dout), Packed(x), beta,
                                       threshold);
        }>("softplus");
  k.Add<Swish, SwishGrad>("swish");
  k.Add<[](const Tensor& x, double limit) { return Gate(x > limit, x); },
        [](const Tensor& x, const Tensor& dout, double limit) {
          return Gate(x > limit, dout);
        }>("thresholded_relu");
}

// ---- prelu, maxout

// Alpha in a shape that broadcasts over x: one for all, one per channel, or one
// per element.
Tensor Slopes(const Tensor& x, const Tensor& alpha,
              const std::string& data_format) {
  if (alpha.numel() == 1) return alpha.reshape({1});
  int64_t channel = program::ChannelsLast(data_format) ? x.dim() - 1 : 1;
  if (x.dim() > 1 && alpha.numel() == x.size(channel)) {
    std::vector<int64_t> shape(x.dim(), 1);
    shape[channel] = alpha.numel();
    return alpha.reshape(shape);
  }
  TORCH_CHECK(alpha.numel() == x.numel(), "weight does not fit");
  return alpha.reshape(x.sizes());
}

Tensor Prelu(const Tensor& x, const Tensor& alpha,
             const std::string& data_format) {
  return at::where(x > 0, x, x * Slopes(x, alpha, data_format));
}

std::tuple<Tensor, Tensor> PreluGrad(const Tensor& x, const Tensor& alpha,
                                     const Tensor& dout,
                                     const std::string& data_format,
                                     GradNeeds needs) {
  Tensor slopes = Slopes(x, alpha, data_format);
  Tensor dx, dalpha;
  if (needs[0]) dx = at::where(x > 0, dout, dout * slopes);
  if (needs[1]) {
    Tensor below = Gate(x <= 0, dout * x);
    dalpha = at::sum_to(below, slopes.sizes()).reshape(alpha.sizes());
  }
  return {dx, dalpha};
}

// x with the channels of a group in a dimension of their own, behind `axis`.
Tensor SplitGroups(const Tensor& x, int64_t groups, int64_t axis) {
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  TORCH_CHECK(groups > 0 && shape[axis] % groups == 0,
              "groups must divide the channels");
  shape[axis] /= groups;
  shape.insert(shape.begin() + axis + 1, groups);
  return x.reshape(shape);
}

Tensor Maxout(const Tensor& x, int64_t groups, int64_t axis) {
  axis = at::maybe_wrap_dim(axis, x.dim(), /*wrap_scalar=*/false);
  return at::amax(SplitGroups(x, groups, axis), {axis + 1});
}

Tensor MaxoutGrad(const Tensor& x, const Tensor& out, const Tensor& dout,
                  int64_t groups, int64_t axis) {
  if (axis < 0) axis += x.dim();
  Tensor mask = (SplitGroups(x, groups, axis) == out.unsqueeze(axis + 1))
                    .to(dout.scalar_type());
  Tensor share = mask / at::sum(mask, {axis + 1}, true);
  return (share * dout.unsqueeze(axis + 1)).reshape(x.sizes());
}

}  // namespace

void AddActivationKernels(KernelTable& k) {
  k.Add<Softmax, SoftmaxGrad>("softmax");
  k.OnMemory("softmax", SoftmaxForm, SoftmaxGradForm);
  k.Add<LogSoftmax, LogSoftmaxGrad>("log_softmax");
  AddElementwise(k);
  k.Add<Prelu, PreluGrad>("prelu");
  k.Add<Maxout, MaxoutGrad>("maxout");
}

}  // namespace fleet::ops
