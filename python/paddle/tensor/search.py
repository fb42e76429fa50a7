# SPDX-License-Identifier: Apache-2.0
"""Looking for elements: the largest, the chosen, the distinct."""

from .. import _names, _ops
from .._core import Tensor
from .._lib.generated.tensor_search import *
from ..framework.dtype import convert
from .operand import to_operand


def _arg_extreme(op, x, axis, keepdim, dtype):
    if dtype is None:
        raise ValueError(f"{op.name}: dtype must be int32 or int64, not None")
    if axis is None:
        return op(x, 0, keepdim, True, convert(dtype))
    return op(x, axis, keepdim, False, convert(dtype))


def argmax(x, axis=None, keepdim=False, dtype="int64", name=None):
    """Where the largest element lies: along `axis`, or in the flat tensor."""
    return _arg_extreme(_ops.arg_max, x, axis, keepdim, dtype)


def argmin(x, axis=None, keepdim=False, dtype="int64", name=None):
    """Where the smallest element lies: along `axis`, or in the flat tensor."""
    return _arg_extreme(_ops.arg_min, x, axis, keepdim, dtype)


def topk(x, k, axis=None, largest=True, sorted=True, name=None):
    """The k largest (smallest) elements along `axis`, and where they lie."""
    axis = -1 if axis is None else axis
    if isinstance(k, Tensor):
        return _ops.top_k_v2(x, k, 1, axis, largest, sorted)
    return _ops.top_k_v2(x, None, k, axis, largest, sorted)


def nonzero(x, as_tuple=False):
    """The positions of the elements that are not zero, one in each row; as a tuple,
    one column for each dimension."""
    positions = _ops.where_index(x)
    if not as_tuple:
        return positions
    return tuple(
        _ops.slice(positions, None, None, [1], [i], [i + 1])
        for i in range(positions.shape[1])
    )


def where(condition, x=None, y=None, name=None):
    """Elements of x where the condition holds and of y elsewhere; with neither, the
    positions where it holds."""
    if x is None and y is None:
        return nonzero(condition, as_tuple=True)
    if x is None or y is None:
        raise ValueError("where(): give both of x and y, or neither")
    if isinstance(x, Tensor):
        y = _beside(x, y)
    elif isinstance(y, Tensor):
        x = _beside(y, x)
    return _ops.where(condition, x, y)


def _beside(tensor, value):
    operand = to_operand(value, tensor.dtype)
    return value if operand is None else operand


def unique(
    x,
    return_index=False,
    return_inverse=False,
    return_counts=False,
    axis=None,
    dtype="int64",
    name=None,
):
    """The distinct elements in order (slices along `axis` with one); on request also
    where each occurs first, which of them each element is, and how often it occurs."""
    values, *others = _ops.unique(
        x,
        convert(dtype),
        return_index,
        return_inverse,
        return_counts,
        [] if axis is None else [axis],
    )
    others = [other for other in others if other is not None]
    return (values, *others) if others else values


__all__ = _names.own(globals())
