# SPDX-License-Identifier: Apache-2.0
"""Functions of one element, and softmax."""

import paddle

from ... import _names, _ops
from ..._lib.generated.nn_functional_activation import *
from ...tensor.shape_argument import sizes
from ...tensor.twin import in_place


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


def softshrink(x, threshold=0.5, name=None):
    """x moved towards zero by the threshold, and not beyond."""
    if threshold < 0:
        raise ValueError(
            f"softshrink: threshold must not be negative, but is {threshold}"
        )
    return _ops.softshrink(x, threshold)


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


softmax_ = in_place(softmax, __name__)


__all__ = _names.own(globals())
