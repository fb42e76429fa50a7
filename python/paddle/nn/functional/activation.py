# SPDX-License-Identifier: Apache-2.0
"""Functions of one element, and softmax."""

import paddle

from ... import _names, _ops
from ...tensor.inplace import in_place
from ...tensor.shape_argument import sizes


def relu(x, name=None):
    """max(x, 0)."""
    return _ops.relu(x)


def sigmoid(x, name=None):
    """1 / (1 + exp(-x))."""
    return _ops.sigmoid(x)


def tanh(x, name=None):
    return _ops.tanh(x)


def softmax(x, axis=-1, dtype=None, name=None):
    """exp(x) over its sum along `axis`. With `dtype` x is converted first."""
    if dtype is not None:
        x = paddle.cast(x, dtype)
    return _ops.softmax(x, axis)


def log_softmax(x, axis=-1, dtype=None, name=None):
    """The logarithm of softmax, computed without loss."""
    if dtype is not None:
        x = paddle.cast(x, dtype)
    return _ops.log_softmax(x, axis)


def gelu(x, approximate=False, name=None):
    """x times the normal distribution function; `approximate` by tanh."""
    return _ops.gelu(x, approximate)


def leaky_relu(x, negative_slope=0.01, name=None):
    return _ops.leaky_relu(x, negative_slope)


def elu(x, alpha=1.0, name=None):
    """x above zero, alpha (exp(x) - 1) below."""
    return _ops.elu(x, alpha)


def celu(x, alpha=1.0, name=None):
    """x above zero, alpha (exp(x / alpha) - 1) below."""
    return _ops.celu(x, alpha)


def selu(
    x,
    scale=1.0507009873554804934193349852946,
    alpha=1.6732632423543772848170429916717,
    name=None,
):
    """scale times elu(x, alpha)."""
    if scale <= 1.0:
        raise ValueError(f"selu: scale must be greater than 1.0, but is {scale}")
    if alpha < 0:
        raise ValueError(f"selu: alpha must not be negative, but is {alpha}")
    return _ops.selu(x, scale, alpha)


def relu6(x, name=None):
    """min(max(x, 0), 6)."""
    return _ops.relu6(x)


def hardswish(x, name=None):
    """x min(max(x + 3, 0), 6) / 6."""
    return _ops.hard_swish(x)


def hardsigmoid(x, slope=0.1666667, offset=0.5, name=None):
    """min(max(slope x + offset, 0), 1)."""
    return _ops.hard_sigmoid(x, slope, offset)


def hardtanh(x, min=-1.0, max=1.0, name=None):
    """x, kept between min and max."""
    return _ops.brelu(x, min, max)


def hardshrink(x, threshold=0.5, name=None):
    """x where its size is above the threshold, else zero."""
    return _ops.hard_shrink(x, threshold)


def softshrink(x, threshold=0.5, name=None):
    """x moved towards zero by the threshold, and not beyond."""
    if threshold < 0:
        raise ValueError(
            f"softshrink: threshold must not be negative, but is {threshold}"
        )
    return _ops.softshrink(x, threshold)


def softplus(x, beta=1, threshold=20, name=None):
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold."""
    return _ops.softplus(x, beta, threshold)


def softsign(x, name=None):
    """x / (1 + |x|)."""
    return _ops.softsign(x)


def swish(x, name=None):
    """x sigmoid(x)."""
    return _ops.swish(x)


def silu(x, name=None):
    """x sigmoid(x)."""
    return _ops.silu(x)


def mish(x, name=None):
    """x tanh(softplus(x))."""
    return _ops.mish(x)


def log_sigmoid(x, name=None):
    return _ops.logsigmoid(x)


def tanhshrink(x, name=None):
    """x - tanh(x)."""
    return _ops.tanhshrink(x)


def thresholded_relu(x, threshold=1.0, name=None):
    """x where it is above the threshold, else zero."""
    return _ops.thresholded_relu(x, threshold)


def prelu(x, weight, data_format="NCHW", name=None):
    """x above zero, weight x below; one weight for all, or one per channel."""
    return _ops.prelu(x, weight, data_format)


def rrelu(x, lower=1.0 / 8.0, upper=1.0 / 3.0, training=True, name=None):
    """leaky_relu with a slope drawn for each element; its mean outside training."""
    if not 0 <= lower <= upper <= 1:
        raise ValueError(
            f"rrelu: 0 <= lower <= upper <= 1 must hold, but they are {lower} and "
            f"{upper}"
        )
    if not training:
        return _ops.leaky_relu(x, (lower + upper) / 2)
    slopes = paddle.uniform(sizes(x), x.dtype, lower, upper)
    return _ops.relu(x) - slopes * _ops.relu(-x)


def maxout(x, groups, axis=1, name=None):
    """The largest of each group of `groups` channels."""
    return _ops.maxout(x, groups, axis)


def glu(x, axis=-1, name=None):
    """The first half along `axis` times the sigmoid of the second."""
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise ValueError(f"glu: axis {axis} does not fit a tensor of {rank} dimensions")
    if x.shape[axis] % 2 != 0:
        raise ValueError(
            f"glu: dimension {axis} must be even, but has {x.shape[axis]} elements"
        )
    first, gate = paddle.split(x, 2, axis)
    return first * _ops.sigmoid(gate)


def gumbel_softmax(x, temperature=1.0, hard=False, axis=-1, name=None):
    """Softmax of x plus Gumbel noise: a sample from the categories whose logits are
    x. `hard` gives a one-hot tensor with the gradient of the soft one."""
    if temperature <= 0:
        raise ValueError(
            f"gumbel_softmax: temperature must be positive, but is {temperature}"
        )
    tiny = 1e-20
    uniform = paddle.uniform(sizes(x), x.dtype, 0.0, 1.0)
    noise = -_ops.log(-_ops.log(uniform + tiny) + tiny)
    soft = _ops.softmax((x + noise) / temperature, axis)
    if not hard:
        return soft
    fixed = soft.detach()
    top = paddle.argmax(fixed, axis=axis)
    one_hot = paddle.cast(_ops.one_hot_v2(top, soft.shape[axis]), soft.dtype)
    rank = len(soft.shape)
    axis %= rank
    order = list(range(rank - 1))
    order.insert(axis, rank - 1)
    return paddle.transpose(one_hot, order) - fixed + soft


relu_ = in_place(relu)
elu_ = in_place(elu)
softmax_ = in_place(softmax)


__all__ = [*_names.own(globals()), "elu_", "relu_", "softmax_"]
