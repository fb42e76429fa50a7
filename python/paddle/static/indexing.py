# SPDX-License-Identifier: Apache-2.0
"""Indexing of variables: `x[1:3, ..., None, ids]` as operations of a program."""

import operator

import numpy as np

from .. import _core, _ops
from .._core import DType, Tensor, Variable

_END = 2**31 - 1  # of a dimension, whatever its size


def _split(x, index):
    """The parts of an index, one for each dimension of x, and None for new ones."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if sum(part is Ellipsis for part in parts) > 1:
        raise IndexError("an index can have one '...' only")
    taken = sum(_dims_of(part) for part in parts)
    if taken > x.ndim:
        raise IndexError(
            f"{taken} indices for the variable {x.name} of {x.ndim} dimensions"
        )
    rest = [slice(None)] * (x.ndim - taken)
    if Ellipsis in [part for part in parts if not _is_array(part)]:
        at = next(i for i, part in enumerate(parts) if part is Ellipsis)
        return parts[:at] + rest + parts[at + 1 :]
    return parts + rest


def _is_array(part):
    return isinstance(part, (Tensor, np.ndarray, list))


def _dims_of(part):
    """How many dimensions of x a part of an index stands for."""
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, Tensor) and part.dtype is DType.bool:
        return part.ndim
    return 1


def _is_scalar(part):
    """Whether a tensor picks one position rather than a list of them."""
    return (
        isinstance(part, Variable)
        and part.dtype is not DType.bool
        and part.shape in ([], [1])
    )


def _as_mask(index):
    """An array of booleans as a tensor; anything else as it is."""
    if isinstance(index, np.ndarray) and index.dtype == bool:
        return _core.from_object(index)
    return index


def get_item(x, index):
    """x[index]."""
    index = _as_mask(index)
    if isinstance(index, Tensor) and index.dtype is DType.bool:
        return _masked(x, index)
    parts = _split(x, index)
    x, parts = _slice(x, parts)
    # What is left: new dimensions, ones to drop, lists of positions.
    new, drop, lists = [], [], []
    dim = 0  # in x
    out = 0  # in the result without lists
    for part in parts:
        if part is None:
            new.append(out)
            out += 1
            continue
        if part == "drop":
            drop.append(dim)
        else:
            if part is not None and not isinstance(part, str):
                lists.append((dim, part))
            out += 1
        dim += 1
    if lists:
        if new or len(drop) and len(lists) > 1:
            raise NotImplementedError(
                "an index with lists cannot have None or numbers beside them in a "
                "program: index in two steps"
            )
        x = _pick(x, lists)
        if drop:
            before = [d for d, _ in lists]
            added = len(getattr(lists[0][1], "shape", [1])) - 1
            drop = [d + (added if before[0] < d else 0) for d in drop]
    if drop:
        x = _ops.squeeze2(x, drop)
        if x.ndim == 0:
            x = _ops.reshape2(x, None, [1])
    if new:
        x = _ops.unsqueeze2(x, new)
    return x


def _slice(x, parts):
    """x cut by the numbers and slices among the parts; numbers become "drop", since
    their dimension is left with one element, slices "keep"."""
    axes, starts, ends, steps = [], [], [], []
    tensors = False
    left = []
    dim = 0
    for part in parts:
        if part is None:
            left.append(None)
            continue
        if isinstance(part, slice):
            begin, end, step = _bounds(part)
            if part.start is not None or part.stop is not None or step != 1:
                axes.append(dim)
                starts.append(begin)
                ends.append(end)
                steps.append(step)
                tensors |= isinstance(begin, Tensor) or isinstance(end, Tensor)
            left.append("keep")
        elif _is_scalar(part):
            axes.append(dim)
            starts.append(part)
            ends.append(part + 1)
            steps.append(1)
            tensors = True
            left.append("drop")
        elif _is_array(part):
            left.append(_positions(part))
        else:
            at = operator.index(part)
            size = x.shape[dim]
            if size != -1 and not -size <= at < size:
                raise IndexError(
                    f"index {at} is outside of dimension {dim} of {x.name}, which has "
                    f"{size} elements"
                )
            axes.append(dim)
            starts.append(at)
            ends.append(at + 1 if at != -1 else _END)
            steps.append(1)
            left.append("drop")
        dim += 1
    if not axes:
        return x, left
    if tensors:
        if any(step != 1 for step in steps):
            raise NotImplementedError(
                "a slice with tensors as bounds cannot have a step in a program"
            )
        x = _ops.slice(
            x,
            _joined(starts),
            _joined(ends),
            axes,
            [-1 if isinstance(n, Tensor) else n for n in starts],
            [-1 if isinstance(n, Tensor) else n for n in ends],
        )
    elif any(step != 1 for step in steps):
        x = _ops.strided_slice(x, axes, starts, ends, steps)
    else:
        x = _ops.slice(x, None, None, axes, starts, ends)
    return x, left


def _bounds(part):
    step = 1 if part.step is None else operator.index(part.step)
    if step == 0:
        raise ValueError("the step of a slice must not be zero")
    first, last = (0, _END) if step > 0 else (_END, -_END)
    begin = first if part.start is None else part.start
    end = last if part.stop is None else part.stop
    if not isinstance(begin, Tensor):
        begin = operator.index(begin)
    if not isinstance(end, Tensor):
        end = operator.index(end)
    return begin, end, step


def _joined(numbers):
    """Numbers and tensors of one element as one int64 tensor."""
    from ..tensor.shape_argument import _as_row

    return _ops.concat([_as_row(n) for n in numbers])


def _positions(part):
    if isinstance(part, Tensor):
        return part
    array = np.asarray(part)
    if array.dtype == bool:
        array = np.nonzero(array)[0]
    return _core.from_object(array.astype("int64"))


def _pick(x, lists):
    """x at lists of positions along some dimensions."""
    if len(lists) == 1:
        dim, ids = lists[0]
        if ids.dtype is DType.bool:
            ids = _ops.reshape2(_ops.where_index(ids), None, [-1])
        if ids.ndim == 1:
            return _ops.gather(x, ids, dim)
        if dim != 0:
            raise NotImplementedError(
                "a list of more than one dimension must stand first in an index"
            )
        return _ops.gather_nd(x, _ops.unsqueeze2(ids, [ids.ndim]))
    if [dim for dim, _ in lists] != list(range(len(lists))):
        raise NotImplementedError("lists must stand first in an index of a program")
    shape = [ids for _, ids in lists]
    joined = _ops.stack(shape, shape[0].ndim)
    return _ops.gather_nd(x, joined)


def _masked(x, mask):
    if mask.ndim == x.ndim:
        return _ops.masked_select(x, mask)
    return _ops.gather_nd(x, _ops.where_index(mask))


def set_item(x, index, value):
    """x[index] = value, as an operation that writes x."""
    index = _as_mask(index)
    # A copy: gradients need what x was before.
    old = _ops.assign(x)
    if isinstance(index, Tensor) and index.dtype is DType.bool:
        value = _as_tensor(x, value)
        x._assign_in_place(_ops.where(index, value, old))
        return
    parts = _split(x, index)
    if any(_is_array(part) and not _is_scalar(part) for part in parts):
        raise NotImplementedError(
            "x[list] = value is not there in programs: use paddle.scatter"
        )
    # The mask of what is written, and the value where it belongs, by way of positions:
    # every dimension says which of its positions are meant.
    if any(n == -1 for n in x.shape):
        raise NotImplementedError(
            f"{x.name}[...] = value needs a shape that is known, not {x.shape}"
        )
    numbers = np.arange(int(np.prod(x.shape))).reshape(x.shape)
    chosen = numbers[tuple(_plain(part) for part in parts)]
    value = _as_tensor(x, value)
    spread = _ops.expand_v2(value, None, list(chosen.shape) or [1])
    flat = _ops.reshape2(old, None, [-1])
    places = _core.from_object(chosen.reshape(-1).astype("int64"))
    written = _ops.scatter(flat, places, _ops.reshape2(spread, None, [-1]), True)
    x._assign_in_place(_ops.reshape2(written, None, x.shape))


def _plain(part):
    if part is None or isinstance(part, slice):
        return part
    if isinstance(part, Variable):
        raise NotImplementedError(
            "x[variable] = value is not there in programs: use paddle.scatter"
        )
    return operator.index(part)


def _as_tensor(x, value):
    from ..tensor.operand import to_operand

    operand = to_operand(value, x.dtype)
    if operand is None:
        raise TypeError(f"cannot assign a {type(value).__name__} to a variable")
    return (
        operand
        if operand.dtype is x.dtype
        else _ops.cast(operand, operand.dtype, x.dtype)
    )
