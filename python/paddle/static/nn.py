# SPDX-License-Identifier: Apache-2.0
"""Layers as functions that make their parameters themselves."""

import math

from .. import _ops
from .._core import Tensor
from ..framework.mode import require_static
from ..framework.parameter import create_parameter, new_parameter
from ..tensor.math import mean
from ..utils import unique_name
from .program import layer_guard

__all__ = ["create_parameter", "cross_entropy", "fc", "mean"]


def begin(function, kind, name=None):
    """The name of a new layer of a kind: fc_0."""
    require_static(f"paddle.static.nn.{function}")
    return name if name is not None else unique_name.generate(kind)


def activate(x, act):
    """The activation named `act` of x, or x where there is none."""
    if act is None:
        return x
    op = getattr(_ops, act, None) if isinstance(act, str) else None
    if op is None:
        raise ValueError(f"there is no activation {act!r}")
    return op(x)


def _pick(function, first, second, values):
    """One argument that may come under two names."""
    for value in values:
        if value is not None:
            return value
    raise TypeError(f"{function}(): argument '{first}' (or '{second}') is missing")


def fc(
    x=None,
    size=None,
    num_flatten_dims=1,
    weight_attr=None,
    bias_attr=None,
    activation=None,
    name=None,
    *,
    input=None,
    act=None,
    param_attr=None,
):
    """A fully connected layer: x W + b, followed by an activation.

    x: a variable, or several whose products are added; also under the name `input`.
    num_flatten_dims: so many dimensions stay, the others are taken as one.
    activation: the name of an op, such as 'tanh'; also under the name `act`.
    """
    x = _pick("fc", "x", "input", (x, input))
    if size is None:
        raise TypeError("fc(): argument 'size' is missing")
    act = activation if act is None else act
    attrs = weight_attr if weight_attr is not None else param_attr
    inputs = list(x) if isinstance(x, (list, tuple)) else [x]
    if not isinstance(attrs, (list, tuple)):
        attrs = [attrs] * len(inputs)
    if len(attrs) != len(inputs):
        raise ValueError(
            f"fc(): there are {len(inputs)} inputs, but {len(attrs)} weight_attr"
        )
    layer = begin("fc", "fc", name)
    with layer_guard(layer):
        products = [
            _product(layer, one, size, num_flatten_dims, attr)
            for one, attr in zip(inputs, attrs)
        ]
        out = products[0] if len(products) == 1 else _ops.sum(products)
        bias = new_parameter([size], bias_attr, out.dtype, True, None, layer)
        if bias is not None:
            out = _ops.elementwise_add(out, bias)
        return activate(out, act)


def _product(layer, x, size, num_flatten_dims, attr):
    if not isinstance(x, Tensor):
        raise TypeError(f"fc(): x must be a Variable, but got {type(x).__name__}")
    rank = len(x.shape)
    kept = rank - 1 if num_flatten_dims == -1 else num_flatten_dims
    if not 0 < kept < rank:
        raise ValueError(
            f"fc(): num_flatten_dims {num_flatten_dims} must lie between 1 and "
            f"{rank - 1} for x of shape {x.shape}"
        )
    if any(n < 0 for n in x.shape[kept:]):
        raise ValueError(
            f"fc(): the last {rank - kept} dimensions of x must be known, but its shape "
            f"is {x.shape}"
        )
    weight = new_parameter(
        [math.prod(x.shape[kept:]), size], attr, x.dtype, False, None, layer
    )
    mul = getattr(_ops, "mul", None)
    if mul is not None:
        return mul(x, weight, kept, 1)
    if kept < rank - 1:
        x = _ops.flatten_contiguous_range(x, kept, -1)
    return _ops.matmul_v2(x, weight)


def cross_entropy(input, label, soft_label=False, ignore_index=-100):
    """-log(input) at the label, of shape [N, 1]; input holds probabilities already, as
    after a softmax."""
    require_static("paddle.static.nn.cross_entropy")
    op = getattr(_ops, "cross_entropy", None)
    if op is not None:
        return op(input, label, soft_label, ignore_index)
    return _ops.cross_entropy_loss(
        input, label, None, soft_label, ignore_index, -1, False, "none"
    )[0]
