# SPDX-License-Identifier: Apache-2.0
"""Arithmetic: element by element, and reductions."""

from .. import _ops
from .._core import DType, Tensor
from ..framework.dtype import convert
from .operand import operands

__all__ = [
    "abs",
    "acos",
    "add",
    "all",
    "any",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "divide",
    "erf",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "log",
    "log10",
    "log1p",
    "log2",
    "logsumexp",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mod",
    "multiply",
    "neg",
    "pow",
    "prod",
    "reciprocal",
    "remainder",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "sum",
    "tan",
    "tanh",
    "trunc",
]


# ---- one input


def _unary(name, summary):
    op = getattr(_ops, name)

    def function(x, name=None):
        return op(x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{summary}, element by element."
    return function


abs = _unary("abs", "The absolute value")
acos = _unary("acos", "The inverse cosine")
asin = _unary("asin", "The inverse sine")
atan = _unary("atan", "The inverse tangent")
ceil = _unary("ceil", "The least integer that is not below")
cos = _unary("cos", "The cosine")
cosh = _unary("cosh", "The hyperbolic cosine")
erf = _unary("erf", "The error function")
exp = _unary("exp", "e to the power of x")
expm1 = _unary("expm1", "exp(x) - 1, exact near zero")
floor = _unary("floor", "The greatest integer that is not above")
log = _unary("log", "The natural logarithm")
log10 = _unary("log10", "The logarithm to base 10")
log1p = _unary("log1p", "log(1 + x), exact near zero")
log2 = _unary("log2", "The logarithm to base 2")
reciprocal = _unary("reciprocal", "1 / x")
round = _unary("round", "The nearest integer")
rsqrt = _unary("rsqrt", "1 / sqrt(x)")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x))")
sign = _unary("sign", "-1, 0 or 1")
sin = _unary("sin", "The sine")
sinh = _unary("sinh", "The hyperbolic sine")
sqrt = _unary("sqrt", "The square root")
square = _unary("square", "x * x")
tan = _unary("tan", "The tangent")
tanh = _unary("tanh", "The hyperbolic tangent")


def trunc(input, name=None):
    """The integer part, element by element."""
    return _ops.trunc(input)


def neg(x, name=None):
    """-x."""
    return _ops.scale(x, -1.0)


# ---- two inputs


def _binary(name, op, summary):
    def function(x, y, name=None):
        if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
            x, y = operands(function.__name__, x, y)
        return op(x, y)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{summary}, element by element, with broadcasting."
    return function


add = _binary("add", _ops.elementwise_add, "x + y")
subtract = _binary("subtract", _ops.elementwise_sub, "x - y")
multiply = _binary("multiply", _ops.elementwise_mul, "x * y")
divide = _binary("divide", _ops.elementwise_div, "x / y; integers give float32")
floor_divide = _binary("floor_divide", _ops.elementwise_floordiv, "floor(x / y)")
mod = _binary("mod", _ops.elementwise_mod, "x modulo y, with the sign of y")
remainder = _binary("remainder", _ops.elementwise_mod, "x modulo y, with y's sign")
maximum = _binary("maximum", _ops.elementwise_max, "The larger of x and y")
minimum = _binary("minimum", _ops.elementwise_min, "The smaller of x and y")


def pow(x, y, name=None):
    """x to the power of y, a number or a tensor."""
    return x**y


# ---- reductions


def _axes(axis):
    """`axis` of a function as the op's list; all axes are an empty one."""
    if axis is None:
        return []
    return [axis] if isinstance(axis, int) else list(axis)


def sum(x, axis=None, dtype=None, keepdim=False, name=None):
    """The sum over `axis`, or of all elements (shape [1]). Integers and booleans
    are summed as int64."""
    if dtype is not None:
        x = _cast(x, dtype)
    elif x.dtype in (DType.bool, DType.int32, DType.int16, DType.int8, DType.uint8):
        x = _cast(x, DType.int64)
    return _ops.reduce_sum(x, _axes(axis), keepdim)


def mean(x, axis=None, keepdim=False, name=None):
    """The mean over `axis`, or of all elements (shape [1])."""
    return _ops.reduce_mean(x, _axes(axis), keepdim)


def max(x, axis=None, keepdim=False, name=None):
    """The largest element along `axis`, or of all (shape [1])."""
    return _ops.reduce_max(x, _axes(axis), keepdim)


def min(x, axis=None, keepdim=False, name=None):
    """The smallest element along `axis`, or of all (shape [1])."""
    return _ops.reduce_min(x, _axes(axis), keepdim)


def prod(x, axis=None, keepdim=False, dtype=None, name=None):
    """The product over `axis`, or of all elements (shape [1])."""
    if dtype is not None:
        x = _cast(x, dtype)
    return _ops.reduce_prod(x, _axes(axis), keepdim)


def logsumexp(x, axis=None, keepdim=False, name=None):
    """log(sum(exp(x))) over `axis`, without overflow."""
    return _ops.logsumexp(x, _axes(axis), keepdim)


def all(x, axis=None, keepdim=False, name=None):
    """Whether all elements along `axis` are true."""
    return _ops.reduce_all(x, _axes(axis), keepdim)


def any(x, axis=None, keepdim=False, name=None):
    """Whether any element along `axis` is true."""
    return _ops.reduce_any(x, _axes(axis), keepdim)


def _cast(x, dtype):
    from .manipulation import cast

    dtype = convert(dtype)
    return x if x.dtype is dtype else cast(x, dtype)
