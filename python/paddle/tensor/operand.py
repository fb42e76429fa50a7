# SPDX-License-Identifier: Apache-2.0
"""What may stand beside a tensor in a binary operation: a tensor, a number, an array."""

import numbers

from .. import _core
from .._core import DType, Tensor

_FLOATING = (DType.float32, DType.float64, DType.float16, DType.bfloat16)
_COMPLEX = (DType.complex64, DType.complex128)
# What fits into the types that many numbers do not fit into.
NARROW = {
    DType.bool: (1, 0),
    DType.uint8: (0, 2**8 - 1),
    DType.int8: (-(2**7), 2**7 - 1),
    DType.int16: (-(2**15), 2**15 - 1),
    DType.int32: (-(2**31), 2**31 - 1),
}


def is_integral(dtype):
    """Whether `dtype` holds integers or booleans."""
    return dtype not in _FLOATING and dtype not in _COMPLEX


def _scalar_dtype(dtype, value):
    """The type that the number `value` has beside a tensor of type `dtype`."""
    if isinstance(value, bool):
        return dtype
    if isinstance(value, numbers.Integral):
        low, high = NARROW.get(dtype, (value, value))
        return dtype if low <= value <= high else DType.int64
    if isinstance(value, numbers.Real):
        return _core.get_default_dtype() if is_integral(dtype) else dtype
    return DType.complex128 if dtype is DType.float64 else DType.complex64


def to_operand(value, dtype):
    """`value` as a tensor that can meet one of type `dtype`, or None if it is neither
    a tensor, a number nor an array. A number takes the type of the tensor where that
    can hold it, so that float32 stays float32; an array keeps its own."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, numbers.Number):
        kind = _scalar_dtype(dtype, value)
        if is_integral(kind) and kind is not dtype:
            # With a dimension, it widens the integers that it meets.
            return _core.from_object([int(value)])
        if kind not in _COMPLEX:
            value = int(value) if is_integral(kind) else float(value)
        return _core.scalar(value, kind)
    if hasattr(value, "__array__"):
        return _core.from_object(value)
    return None


def operands(name, x, y):
    """Both arguments of the function `name` as tensors."""
    dtype = None
    for value in (x, y):
        dtype = value.dtype if isinstance(value, Tensor) else dtype
    if dtype is None:
        raise TypeError(
            f"{name}(): x and y are {type(x).__name__} and {type(y).__name__}, but one "
            "of them must be a Tensor"
        )
    pair = to_operand(x, dtype), to_operand(y, dtype)
    for argument, value, tensor in zip("xy", (x, y), pair):
        if tensor is None:
            raise TypeError(
                f"{name}(): argument '{argument}' must be a Tensor, a number or an "
                f"array, but got {type(value).__name__}"
            )
    return pair


def give(result, out):
    """`result`, or `out` made to hold it."""
    if out is None:
        return result
    out._assign_in_place(result)
    return out
