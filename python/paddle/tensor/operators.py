# SPDX-License-Identifier: Apache-2.0
"""Python's operators on tensors: `x + y`, `2 - x`, `x @ y`, `x == y`, `~x`.

Two tensors go straight to the op. A number takes the `scale` or `pow` op where there
is one, since that reads nothing but the tensor.
"""

from .. import _ops
from .._core import DType, Tensor
from .operand import NARROW, to_operand

_add = _ops.elementwise_add
_sub = _ops.elementwise_sub
_mul = _ops.elementwise_mul
_scale = _ops.scale
_FLOAT32 = DType.float32
_FLOAT64 = DType.float64
# Integers above this lose digits as the double that an attribute is.
_EXACT = 2**53


def _fits_scale(x, number):
    """Whether x * number and x + number have the type of x and lose no digits."""
    kind = type(number)
    dtype = x.dtype
    if dtype is _FLOAT32 or dtype is _FLOAT64:
        return kind is float or kind is int
    if kind is int:
        low, high = NARROW.get(dtype, (-_EXACT, _EXACT))
        return low <= number <= high
    return kind is float and dtype in (DType.float16, DType.bfloat16)


def _binary(op, x, other):
    y = to_operand(other, x.dtype)
    return NotImplemented if y is None else op(x, y)


def _reflected(op, x, other):
    y = to_operand(other, x.dtype)
    return NotImplemented if y is None else op(y, x)


def _plus(x, y):
    if isinstance(y, Tensor):
        return _add(x, y)
    if _fits_scale(x, y):
        return _scale(x, 1.0, y)
    return _binary(_add, x, y)


def _minus(x, y):
    if isinstance(y, Tensor):
        return _sub(x, y)
    if _fits_scale(x, y):
        return _scale(x, 1.0, -y)
    return _binary(_sub, x, y)


def _minus_reflected(x, y):
    if _fits_scale(x, y):
        return _scale(x, -1.0, y)
    return _reflected(_sub, x, y)


def _times(x, y):
    if isinstance(y, Tensor):
        return _mul(x, y)
    if _fits_scale(x, y):
        return _scale(x, y)
    return _binary(_mul, x, y)


def _power(x, y):
    if not isinstance(y, Tensor) and _fits_scale(x, y):
        return _ops.pow(x, y)
    return _binary(_ops.elementwise_pow, x, y)


def _divided_into(x, y):
    if type(y) in (int, float) and y == 1 and x.dtype in (_FLOAT32, _FLOAT64):
        return _ops.reciprocal(x)
    return _reflected(_ops.elementwise_div, x, y)


def _forward(op):
    def operator(x, y):
        return op(x, y) if isinstance(y, Tensor) else _binary(op, x, y)

    return operator


def _backward(op):
    def operator(x, y):
        return _reflected(op, x, y)

    return operator


def _negative(x):
    return _scale(x, -1.0)


def _positive(x):
    return x


# There is no __iadd__ and kin: `x += y` gives the name x to a new tensor, as in
# Paddle 2, and what others hold stays as it was. x.add_(y) changes x itself.
OPERATORS = {
    "__add__": _plus,
    "__radd__": _plus,
    "__sub__": _minus,
    "__rsub__": _minus_reflected,
    "__mul__": _times,
    "__rmul__": _times,
    "__truediv__": _forward(_ops.elementwise_div),
    "__rtruediv__": _divided_into,
    "__div__": _forward(_ops.elementwise_div),
    "__rdiv__": _divided_into,
    "__floordiv__": _forward(_ops.elementwise_floordiv),
    "__rfloordiv__": _backward(_ops.elementwise_floordiv),
    "__mod__": _forward(_ops.elementwise_mod),
    "__rmod__": _backward(_ops.elementwise_mod),
    "__pow__": _power,
    "__rpow__": _backward(_ops.elementwise_pow),
    "__matmul__": _forward(_ops.matmul_v2),
    "__rmatmul__": _backward(_ops.matmul_v2),
    "__neg__": _negative,
    "__pos__": _positive,
    "__abs__": lambda x: _ops.abs(x),
    "__invert__": lambda x: _ops.bitwise_not(x),
    "__and__": _forward(_ops.bitwise_and),
    "__rand__": _backward(_ops.bitwise_and),
    "__or__": _forward(_ops.bitwise_or),
    "__ror__": _backward(_ops.bitwise_or),
    "__xor__": _forward(_ops.bitwise_xor),
    "__rxor__": _backward(_ops.bitwise_xor),
    "__eq__": _forward(_ops.equal),
    "__ne__": _forward(_ops.not_equal),
    "__lt__": _forward(_ops.less_than),
    "__le__": _forward(_ops.less_equal),
    "__gt__": _forward(_ops.greater_than),
    "__ge__": _forward(_ops.greater_equal),
}
