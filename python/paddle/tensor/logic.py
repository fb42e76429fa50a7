# SPDX-License-Identifier: Apache-2.0
"""Comparison, and the logic of booleans and bits."""

from .. import _names, _ops
from .._core import DType, Tensor
from .creation import full
from .operand import operands


def _give(result, out):
    """`result`, or `out` made to hold it."""
    if out is None:
        return result
    out._assign_in_place(result)
    return out


# ---- comparison


def _comparison(op, symbol):
    def function(x, y, name=None):
        if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
            x, y = operands(op.name, x, y)
        return op(x, y)

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = f"x {symbol} y, element by element, with broadcasting."
    return function


equal = _comparison(_ops.equal, "==")
not_equal = _comparison(_ops.not_equal, "!=")
less_than = _comparison(_ops.less_than, "<")
less_equal = _comparison(_ops.less_equal, "<=")
greater_than = _comparison(_ops.greater_than, ">")
greater_equal = _comparison(_ops.greater_equal, ">=")


def equal_all(x, y, name=None):
    """Whether x and y have the same shape and elements."""
    return _ops.equal_all(x, y)


def isclose(x, y, rtol=1e-05, atol=1e-08, equal_nan=False, name=None):
    """|x - y| <= atol + rtol * |y|, element by element."""
    return _ops.isclose(x, y, rtol, atol, equal_nan)


def allclose(x, y, rtol=1e-05, atol=1e-08, equal_nan=False, name=None):
    """Whether isclose() holds for all elements."""
    return _ops.allclose(x, y, rtol, atol, equal_nan)


# ---- booleans and bits


def _logic(op, summary):
    def function(x, y, out=None, name=None):
        if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
            x, y = operands(op.name, x, y)
        return _give(op(x, y), out)

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = f"{summary}, element by element, with broadcasting."
    return function


logical_and = _logic(_ops.logical_and, "Whether both are true")
logical_or = _logic(_ops.logical_or, "Whether one is true")
logical_xor = _logic(_ops.logical_xor, "Whether exactly one is true")
bitwise_and = _logic(_ops.bitwise_and, "The bits that both have")
bitwise_or = _logic(_ops.bitwise_or, "The bits that one has")
bitwise_xor = _logic(_ops.bitwise_xor, "The bits that exactly one has")


def logical_not(x, out=None, name=None):
    """Whether x is false, element by element."""
    return _give(_ops.logical_not(x), out)


def bitwise_not(x, out=None, name=None):
    """The bits that x has not, element by element."""
    return _give(_ops.bitwise_not(x), out)


# ---- kinds of numbers


def isnan(x, name=None):
    """Whether an element is not a number."""
    return _ops.isnan_v2(x)


def isinf(x, name=None):
    """Whether an element is infinite."""
    return _ops.isinf_v2(x)


def isfinite(x, name=None):
    """Whether an element is neither infinite nor NaN."""
    return _ops.isfinite_v2(x)


def is_empty(x, name=None):
    """Whether x has no elements, as a boolean tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"is_empty() takes a Tensor, but got {type(x).__name__}")
    return full([1], x.size == 0, DType.bool)


__all__ = _names.own(globals())
