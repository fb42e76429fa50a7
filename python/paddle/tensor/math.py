# SPDX-License-Identifier: Apache-2.0
"""Arithmetic: element by element, and reductions."""

from .. import _names, _ops
from .._core import DType, Tensor
from .._lib.generated.tensor_math import *
from .._lib.generated.tensor_math import maximum, minimum
from ..framework.dtype import convert
from . import shape_argument
from .axis import axes_of
from .manipulation import cast, concat, reshape
from .operand import to_operand

# ---- one input


def scale(x, scale=1.0, bias=0.0, bias_after_scale=True, act=None, name=None):
    """x * scale + bias, or (x + bias) * scale. `act` names an activation to follow."""
    if isinstance(scale, Tensor):
        out = x * scale + bias if bias_after_scale else (x + bias) * scale
    else:
        out = _ops.scale(x, scale, bias, bias_after_scale)
    return out if act is None else getattr(_ops, act)(out)


_LARGEST = {
    DType.float16: 65504.0,
    DType.bfloat16: 3.3895313892515355e38,
    DType.float32: 3.4028234663852886e38,
}


def nan_to_num(x, nan=0.0, posinf=None, neginf=None, name=None):
    """x with numbers in the place of NaN and infinities."""
    largest = _LARGEST.get(x.dtype, 1.7976931348623157e308)
    posinf = largest if posinf is None else posinf
    neginf = -largest if neginf is None else neginf
    return _ops.nan_to_num(x, nan, posinf, neginf)


_INFINITY = float("inf")


def clip(x, min=None, max=None, name=None):
    """x with what is below `min` or above `max` set to it; numbers or tensors."""
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        if min is not None:
            x = maximum(x, min)
        return x if max is None else minimum(x, max)
    low = -_INFINITY if min is None else min
    high = _INFINITY if max is None else max
    return _ops.clip(x, low, high)


# ---- two inputs


def pow(x, y, name=None):
    """x to the power of y, a number or a tensor."""
    return x**y


def lerp(x, y, weight, name=None):
    """x + weight * (y - x); `weight` is a number or a tensor."""
    tensor = to_operand(weight, x.dtype)
    if tensor is None:
        raise TypeError(
            "lerp(): weight must be a number or a Tensor, but got "
            f"{type(weight).__name__}"
        )
    return _ops.lerp(x, y, tensor)


def add_n(inputs, name=None):
    """The sum of a list of tensors of one shape."""
    return _ops.sum([inputs] if isinstance(inputs, Tensor) else inputs)


def outer(x, y, name=None):
    """The product of each element of x with each of y: [x.size, y.size]."""
    return _ops.elementwise_mul(reshape(x, [-1, 1]), reshape(y, [1, -1]))


def inner(x, y, name=None):
    """The sum of products over the last dimensions of x and y."""
    if x.ndim == 0 or y.ndim == 0:
        return _ops.elementwise_mul(x, y)
    if shape_argument.differ(x.shape[-1], y.shape[-1]):
        raise ValueError(
            f"inner(): the last dimensions of x {x.shape} and y {y.shape} differ"
        )
    if y.ndim <= 2:
        return _ops.matmul_v2(x, y, trans_y=y.ndim == 2)
    out = _ops.matmul_v2(x, reshape(y, [-1, y.shape[-1]]), trans_y=True)
    kept = [shape_argument.size(x, i) for i in range(x.ndim - 1)]
    kept += [shape_argument.size(y, i) for i in range(y.ndim - 1)]
    return reshape(out, kept)


# ---- reductions


_NARROW = (DType.bool, DType.int32, DType.int16, DType.int8, DType.uint8)


def sum(x, axis=None, dtype=None, keepdim=False, name=None):
    """The sum over `axis`, or of all elements (shape [1]). Integers and booleans
    are summed as int64."""
    if dtype is not None:
        x = _as(x, dtype)
    elif x.dtype in _NARROW:
        x = cast(x, DType.int64)
    return _ops.reduce_sum(x, axes_of("sum", axis), keepdim)


def prod(x, axis=None, keepdim=False, dtype=None, name=None):
    """The product over `axis`, or of all elements (shape [1])."""
    return _ops.reduce_prod(_as(x, dtype), axes_of("prod", axis), keepdim)


def count_nonzero(x, axis=None, keepdim=False, name=None):
    """How many elements along `axis` are not zero."""
    nonzero = cast(x != 0, DType.int64)
    return _ops.reduce_sum(nonzero, axes_of("count_nonzero", axis), keepdim)


# ---- along one axis


def cumsum(x, axis=None, dtype=None, name=None):
    """The sum of all elements up to each, along `axis` or of the flattened tensor."""
    x = _as(x, dtype)
    if dtype is None and x.dtype is DType.bool:
        x = cast(x, DType.int64)
    return _ops.cumsum(x, -1 if axis is None else axis, axis is None)


def cumprod(x, dim=None, dtype=None, name=None):
    """The product of all elements up to each, along `dim` or of the flattened tensor."""
    x = _as(x, dtype)
    if dim is None:
        x, dim = reshape(x, [-1]), 0
    return _ops.cumprod(x, dim)


_END = 2**31 - 1  # of a dimension, whatever its size


def diff(x, n=1, axis=-1, prepend=None, append=None, name=None):
    """Each element less the one before, along `axis`, `n` times over."""
    parts = [part for part in (prepend, x, append) if part is not None]
    if len(parts) > 1:
        x = concat(parts, axis)
    if x.dtype is DType.bool:
        for _ in range(n):
            x = _ops.logical_xor(
                _ops.slice(x, axes=[axis], starts=[1], ends=[_END]),
                _ops.slice(x, axes=[axis], starts=[0], ends=[-1]),
            )
        return x
    return _ops.diff(x, n, axis)


def _as(x, dtype):
    """x with the element type `dtype`; None leaves it."""
    if dtype is None:
        return x
    dtype = convert(dtype)
    return x if x.dtype is dtype else cast(x, dtype)


__all__ = _names.own(globals())
