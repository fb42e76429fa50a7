# SPDX-License-Identifier: Apache-2.0
"""What can be asked of a tensor without computing."""

from .. import _names
from .._core import DType, Tensor
from .creation import full

_FLOATING = (DType.float16, DType.bfloat16, DType.float32, DType.float64)
_COMPLEX = (DType.complex64, DType.complex128)


def _dtype_of(function, x):
    if not isinstance(x, Tensor):
        raise TypeError(f"{function}() takes a Tensor, but got {type(x).__name__}")
    return x.dtype


def is_tensor(x):
    """Whether `x` is a Tensor or a variable of a program."""
    return isinstance(x, Tensor)


def is_floating_point(x):
    """Whether `x` holds floating-point numbers."""
    return _dtype_of("is_floating_point", x) in _FLOATING


def is_complex(x):
    """Whether `x` holds complex numbers."""
    return _dtype_of("is_complex", x) in _COMPLEX


def is_integer(x):
    """Whether `x` holds integers; booleans are not."""
    dtype = _dtype_of("is_integer", x)
    return dtype not in _FLOATING and dtype not in _COMPLEX and dtype != DType.bool


def rank(input):
    """The number of dimensions, as an int32 tensor."""
    _dtype_of("rank", input)
    return full([1], input.ndim, DType.int32)


__all__ = _names.own(globals())
