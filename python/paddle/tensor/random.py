# SPDX-License-Identifier: Apache-2.0
"""Random tensors, from the generator that paddle.seed() sets."""

import numbers

from .. import _core, _names, _ops
from .._core import DType, Tensor
from .._lib.generated.tensor_random import *
from ..framework.dtype import convert
from . import shape_argument


def _default(dtype):
    kind = convert(dtype)
    return _core.get_default_dtype() if kind is DType.none else kind


def rand(shape, dtype=None, name=None):
    """Uniform numbers in [0, 1)."""
    dims, tensor = shape_argument.split("rand", "shape", shape)
    return _ops.uniform_random(tensor, dims, 0.0, 1.0, 0, _default(dtype))


def uniform(shape, dtype=None, min=-1.0, max=1.0, seed=0, name=None):
    """Uniform numbers in [min, max); a seed other than 0 gives the same every time."""
    dims, tensor = shape_argument.split("uniform", "shape", shape)
    return _ops.uniform_random(tensor, dims, min, max, seed, _default(dtype))


def randn(shape, dtype=None, name=None):
    """Numbers from the standard normal distribution."""
    dims, tensor = shape_argument.split("randn", "shape", shape)
    return _ops.gaussian_random(tensor, dims, 0.0, 1.0, 0, _default(dtype))


def standard_normal(shape, dtype=None, name=None):
    """Numbers from the standard normal distribution."""
    dims, tensor = shape_argument.split("standard_normal", "shape", shape)
    return _ops.gaussian_random(tensor, dims, 0.0, 1.0, 0, _default(dtype))


def normal(mean=0.0, std=1.0, shape=None, name=None):
    """Normal numbers. Where mean or std is a Tensor, the result has its shape and each
    element its own distribution."""
    for argument, value in (("mean", mean), ("std", std)):
        if not isinstance(value, (Tensor, numbers.Real)):
            raise TypeError(
                f"normal(): argument '{argument}' must be a number or a Tensor, but "
                f"got {type(value).__name__}"
            )
    like = mean if isinstance(mean, Tensor) else std
    if not isinstance(like, Tensor):
        dims, tensor = shape_argument.split(
            "normal", "shape", [1] if shape is None else shape
        )
        return _ops.gaussian_random(tensor, dims, mean, std, 0, _default(None))
    out = _ops.gaussian_random(_ops.shape(like), [], 0.0, 1.0, 0, like.dtype)
    if isinstance(std, Tensor):
        out = _ops.elementwise_mul(out, std)
    else:
        out = _ops.scale(out, std)
    if isinstance(mean, Tensor):
        return _ops.elementwise_add(out, mean)
    return _ops.scale(out, 1.0, mean)


def _integer_bounds(function, low, high):
    if high is None:
        low, high = 0, low
    if low >= high:
        raise ValueError(f"{function}(): low {low} must be below high {high}")
    return low, high


def _integer_dtype(function, dtype):
    kind = convert(dtype)
    if kind is DType.none:
        return DType.int64
    if kind not in (DType.int32, DType.int64):
        raise TypeError(f"{function}(): dtype must be int32 or int64, not {kind.name}")
    return kind


def randint(low=0, high=None, shape=[1], dtype=None, name=None):
    """Integers in [low, high); randint(n) is in [0, n)."""
    low, high = _integer_bounds("randint", low, high)
    dims, tensor = shape_argument.split("randint", "shape", shape)
    kind = _integer_dtype("randint", dtype)
    return _ops.randint(tensor, dims, low, high, 0, kind)


def randint_like(x, low=0, high=None, dtype=None, name=None):
    """Integers in [low, high) with the shape of x, and its type unless dtype says."""
    low, high = _integer_bounds("randint_like", low, high)
    kind = convert(dtype)
    if not isinstance(x, Tensor):
        raise TypeError(
            f"randint_like(): argument 'x' must be a Tensor, but got {type(x).__name__}"
        )
    kind = x.dtype if kind is DType.none else kind
    out = _ops.randint(_ops.shape(x), [], low, high, 0, DType.int64)
    return out if kind is DType.int64 else _ops.cast(out, DType.int64, kind)


def randperm(n, dtype="int64", name=None):
    """The integers below n in random order."""
    kind = convert(dtype)
    if n < 1:
        raise ValueError(f"randperm(): n is {n}, but must be positive")
    return _ops.randperm(n, 0, kind)


__all__ = _names.own(globals())
