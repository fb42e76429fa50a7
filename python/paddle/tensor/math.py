# SPDX-License-Identifier: Apache-2.0
"""Arithmetic: element by element, and reductions."""

from .. import _names, _ops
from .._core import DType, Tensor
from ..framework.dtype import convert
from . import shape_argument
from .axis import axes_of
from .manipulation import cast, concat, reshape
from .operand import operands, to_operand

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


def scale(x, scale=1.0, bias=0.0, bias_after_scale=True, act=None, name=None):
    """x * scale + bias, or (x + bias) * scale. `act` names an activation to follow."""
    if isinstance(scale, Tensor):
        out = x * scale + bias if bias_after_scale else (x + bias) * scale
    else:
        out = _ops.scale(x, scale, bias, bias_after_scale)
    return out if act is None else getattr(_ops, act)(out)


def stanh(x, scale_a=0.67, scale_b=1.7159, name=None):
    """scale_b * tanh(scale_a * x)."""
    return _ops.stanh(x, scale_a, scale_b)


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


fmax = _binary("fmax", _ops.elementwise_fmax, "The larger; NaN only if both are")
fmin = _binary("fmin", _ops.elementwise_fmin, "The smaller; NaN only if both are")
atan2 = _binary("atan2", _ops.atan2, "The angle of the point (y, x)")


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


def multiplex(inputs, index, name=None):
    """Row i of the result is row i of `inputs[index[i]]`."""
    return _ops.multiplex(inputs, index)


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


def mean(x, axis=None, keepdim=False, name=None):
    """The mean over `axis`, or of all elements (shape [1])."""
    return _ops.reduce_mean(x, axes_of("mean", axis), keepdim)


def max(x, axis=None, keepdim=False, name=None):
    """The largest element along `axis`, or of all (shape [1])."""
    return _ops.reduce_max(x, axes_of("max", axis), keepdim)


def min(x, axis=None, keepdim=False, name=None):
    """The smallest element along `axis`, or of all (shape [1])."""
    return _ops.reduce_min(x, axes_of("min", axis), keepdim)


def prod(x, axis=None, keepdim=False, dtype=None, name=None):
    """The product over `axis`, or of all elements (shape [1])."""
    return _ops.reduce_prod(_as(x, dtype), axes_of("prod", axis), keepdim)


def logsumexp(x, axis=None, keepdim=False, name=None):
    """log(sum(exp(x))) over `axis`, without overflow."""
    return _ops.logsumexp(x, axes_of("logsumexp", axis), keepdim)


def all(x, axis=None, keepdim=False, name=None):
    """Whether all elements along `axis` are true."""
    return _ops.reduce_all(x, axes_of("all", axis), keepdim)


def any(x, axis=None, keepdim=False, name=None):
    """Whether any element along `axis` is true."""
    return _ops.reduce_any(x, axes_of("any", axis), keepdim)


def amax(x, axis=None, keepdim=False, name=None):
    """As max(); equal largest elements share the gradient."""
    return _ops.reduce_amax(x, axes_of("amax", axis), keepdim)


def amin(x, axis=None, keepdim=False, name=None):
    """As min(); equal smallest elements share the gradient."""
    return _ops.reduce_amin(x, axes_of("amin", axis), keepdim)


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
