# SPDX-License-Identifier: Apache-2.0
"""Making, reshaping and searching tensors."""

import paddle

from ... import (
    assign,
    cast,
    gather,
    gather_nd,
    increment,
    ones_like,
    scatter,
    shape,
    slice,
    stack,
    strided_slice,
    tile,
    transpose,
    unstack,
    where,
    zeros_like,
)
from ...metric import accuracy
from .activate import activate

__all__ = [
    "accuracy",
    "argmax",
    "argmin",
    "argsort",
    "assign",
    "cast",
    "concat",
    "expand",
    "fill_constant",
    "flatten",
    "gather",
    "gather_nd",
    "gaussian_random",
    "increment",
    "ones",
    "ones_like",
    "reshape",
    "scatter",
    "shape",
    "slice",
    "split",
    "squeeze",
    "stack",
    "strided_slice",
    "sums",
    "tile",
    "topk",
    "transpose",
    "uniform_random",
    "unsqueeze",
    "unstack",
    "where",
    "zeros",
    "zeros_like",
]


def fill_constant(shape, dtype, value, force_cpu=False, out=None, name=None):
    filled = paddle.full(shape, value, dtype)
    return filled if out is None else assign(filled, out)


def zeros(shape, dtype, force_cpu=False, name=None):
    return paddle.zeros(shape, dtype)


def ones(shape, dtype, force_cpu=False):
    return paddle.ones(shape, dtype)


def uniform_random(shape, dtype="float32", min=-1.0, max=1.0, seed=0, name=None):
    return paddle.uniform(shape, dtype, min, max, seed)


def gaussian_random(shape, mean=0.0, std=1.0, seed=0, dtype="float32", name=None):
    return paddle.cast(paddle.normal(mean, std, shape), dtype)


def reshape(x, shape, actual_shape=None, act=None, inplace=False, name=None):
    shape = shape if actual_shape is None else actual_shape
    return activate(paddle.reshape(x, shape), act)


def flatten(x, axis=1, name=None):
    """Two dimensions: those before `axis` and the rest."""
    rows = 1
    for size in x.shape[:axis]:
        rows *= size
    return paddle.reshape(x, [rows, -1])


def squeeze(input, axes, name=None):
    return paddle.squeeze(input, axes or None)


def unsqueeze(input, axes, name=None):
    return paddle.unsqueeze(input, axes)


def concat(input, axis=0, name=None):
    return paddle.concat(input, axis)


def split(input, num_or_sections, dim=-1, name=None):
    return paddle.split(input, num_or_sections, dim)


def expand(x, expand_times, name=None):
    """Repeats: `expand_times` counts for each axis."""
    return tile(x, expand_times)


def sums(input, out=None):
    total = paddle.add_n(input)
    return total if out is None else assign(total, out)


def topk(input, k, name=None):
    return paddle.topk(input, k)


def argmax(x, axis=0):
    return paddle.argmax(x, axis)


def argmin(x, axis=0):
    return paddle.argmin(x, axis)


def argsort(input, axis=-1, descending=False, name=None):
    """Both the sorted values and where they were."""
    return paddle.sort(input, axis, descending), paddle.argsort(input, axis, descending)
