# SPDX-License-Identifier: Apache-2.0
"""Making, reshaping and searching tensors."""

import paddle

from ... import (
    _names,
    _ops,
    assign,
    cast,
    gather,
    gather_nd,
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
from ...framework.dtype import convert
from ...static.global_variable import create_global_var
from ...static.program import default_main_program
from ...tensor.shape_argument import split as _split
from ...utils import unique_name
from .activate import activate


def fill_constant(shape, dtype, value, force_cpu=False, out=None, name=None):
    filled = paddle.full(shape, value, dtype)
    return filled if out is None else assign(filled, out)


def fill_constant_batch_size_like(
    input,
    shape,
    dtype,
    value,
    input_dim_idx=0,
    output_dim_idx=0,
    force_cpu=False,
):
    """A tensor of `value` and of this shape, but with as many rows as `input` has."""
    kind = convert(dtype)
    return _ops.fill_constant_batch_size_like(
        input, list(shape), input_dim_idx, output_dim_idx, kind, float(value)
    )


def create_tensor(dtype, name=None, persistable=False):
    """A variable of a program that something has to be assigned to first."""
    return (
        default_main_program()
        .current_block()
        .create_var(
            name=name or unique_name.generate("create_tensor"),
            dtype=dtype,
            persistable=persistable,
        )
    )


def zeros(shape, dtype, force_cpu=False, name=None):
    return paddle.zeros(shape, dtype)


def ones(shape, dtype, force_cpu=False):
    return paddle.ones(shape, dtype)


def uniform_random(shape, dtype="float32", min=-1.0, max=1.0, seed=0, name=None):
    return paddle.uniform(shape, dtype, min, max, seed)


def gaussian_random(shape, mean=0.0, std=1.0, seed=0, dtype="float32", name=None):
    dims, tensor = _split("gaussian_random", "shape", shape)
    return _ops.gaussian_random(tensor, dims, mean, std, seed, convert(dtype))


def reshape(x, shape, actual_shape=None, act=None, inplace=False, name=None):
    shape = shape if actual_shape is None else actual_shape
    return activate(paddle.reshape(x, shape), act)


def flatten(x, axis=1, name=None):
    """Two dimensions: those before `axis` and the rest."""
    rank = len(x.shape)
    if not 0 <= axis <= rank:
        raise ValueError(f"flatten: axis {axis} must lie in [0, {rank}]")
    if axis in (0, rank):
        return paddle.reshape(x, [1, -1] if axis == 0 else [-1, 1])
    if axis < rank - 1:
        x = paddle.flatten(x, axis, -1)
    return paddle.flatten(x, 0, axis - 1) if axis > 1 else x


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


__all__ = _names.gathered(globals(), hidden="activate convert default_main_program")
