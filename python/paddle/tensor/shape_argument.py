# SPDX-License-Identifier: Apache-2.0
"""Shapes and other lists of integers as callers write them: numbers, tensors of one
element among them, or one integer tensor."""

import operator

from .. import _ops
from .._core import DType, Tensor, Variable

_ONLY_INT = {int}


def split(function, argument, value):
    """What is known of `value` now, as a list of ints, and the tensor that holds the
    rest, or None. Where the tensor decides, the list has -1; it is empty if all is in
    the tensor."""
    kind = type(value)
    if (kind is list or kind is tuple) and set(map(type, value)) <= _ONLY_INT:
        return value, None
    if isinstance(value, Tensor):
        return [], value
    if isinstance(value, int):
        return [value], None
    try:
        items = list(value)
    except TypeError:
        raise TypeError(
            f"{function}(): argument '{argument}' must be a list of integers or an "
            f"integer Tensor, but got {type(value).__name__}"
        ) from None
    numbers = [
        -1 if isinstance(item, Tensor) else integer(function, argument, item)
        for item in items
    ]
    if not any(isinstance(item, Tensor) for item in items):
        return numbers, None
    return numbers, _ops.concat([_as_row(item) for item in items])


def integer(function, argument, value):
    """`value` as an int, or a TypeError that names the argument."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"{function}(): argument '{argument}' must hold integers, but got "
            f"{type(value).__name__}"
        ) from None


def sizes(x):
    """The shape of x, as functions take it: a list, or a tensor where a program does
    not know all of it yet."""
    shape = x.shape
    return _ops.shape(x) if isinstance(x, Variable) and -1 in shape else shape


def size(x, dim):
    """The size of one dimension, as functions take it in a list."""
    known = x.shape[dim]
    if known != -1 or not isinstance(x, Variable):
        return known
    dim %= x.ndim
    return _ops.slice(_ops.shape(x), axes=[0], starts=[dim], ends=[dim + 1])


def differ(a, b):
    """Whether two sizes are known and not equal."""
    return a != b and a != -1 and b != -1


def _as_row(item):
    """A number or a tensor of one element as an int64 tensor of shape [1]."""
    if not isinstance(item, Tensor):
        return _ops.fill_constant(
            shape=[1], str_value=str(operator.index(item)), dtype=DType.int64
        )
    return _ops.cast(_ops.reshape2(item, None, [1]), item.dtype, DType.int64)
