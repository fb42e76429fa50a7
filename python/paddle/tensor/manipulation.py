# SPDX-License-Identifier: Apache-2.0
"""Shapes, parts and copies of tensors."""

import builtins

from .. import _core, _names, _ops
from .._core import Tensor, Variable
from .._lib.generated.tensor_manipulation import *
from .._lib.generated.tensor_manipulation import flatten, scatter, squeeze, unsqueeze
from ..framework.dtype import convert
from . import shape_argument
from .operand import to_operand


def _check_tensor(function, argument, value):
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{function}(): argument '{argument}' must be a Tensor, but got "
            f"{type(value).__name__}"
        )


def check_in_place(function, x):
    """ValueError if x is a leaf whose change in place would have to be recorded."""
    if x.is_leaf and not x.stop_gradient and _core.is_grad_enabled():
        raise ValueError(
            f"{function}(): a leaf Tensor that asks for its gradient cannot be changed "
            "in place; wrap the call in paddle.no_grad()"
        )


def _in_place(function, x, op, *args, **kwargs):
    """Gives x the result of `op` on it, and returns x."""
    _check_tensor(function, "x", x)
    if isinstance(x, Variable):
        x._assign_in_place(op(_ops.assign(x), *args, **kwargs))
        return x
    check_in_place(function, x)
    trainable = not x.stop_gradient
    x._assign_in_place(op(x, *args, **kwargs))
    if trainable and x.stop_gradient:  # not recorded, so a parameter stays one
        x.stop_gradient = False
    return x


# ---- the same elements in another shape


def moveaxis(x, source, destination, name=None):
    """Dimensions `source` moved to the places `destination`; the others keep order."""
    _check_tensor("moveaxis", "x", x)
    source = [source] if isinstance(source, int) else list(source)
    destination = [destination] if isinstance(destination, int) else list(destination)
    rank = x.ndim
    for argument, axes in (("source", source), ("destination", destination)):
        if any(not -rank <= a < rank for a in axes):
            raise ValueError(
                f"moveaxis(): {argument} {axes} must lie in [{-rank}, {rank - 1}] for "
                f"a tensor of shape {x.shape}"
            )
        axes[:] = [a % rank for a in axes]
    unique = len(set(source)) == len(source) == len(set(destination))
    if not unique or len(source) != len(destination):
        raise ValueError(
            f"moveaxis(): source {source} and destination {destination} must be "
            "equally long and name each dimension once"
        )
    rest = iter(a for a in range(rank) if a not in source)
    place = dict(zip(destination, source))
    return _ops.transpose2(
        x, [place[i] if i in place else next(rest) for i in range(rank)]
    )


def reshape(x, shape, name=None):
    """The elements in another shape: 0 copies a dimension of x, one -1 is inferred."""
    if type(shape) is list and builtins.all(type(d) is int for d in shape):
        return _ops.reshape2(x, None, shape)
    numbers, tensor = shape_argument.split("reshape", "shape", shape)
    return _ops.reshape2(x, tensor, numbers)


def reshape_(x, shape, name=None):
    """reshape() in place."""
    return _in_place("reshape_", x, reshape, shape)


def flatten_(x, start_axis=0, stop_axis=-1, name=None):
    """flatten() in place."""
    return _in_place("flatten_", x, flatten, start_axis, stop_axis)


def squeeze_(x, axis=None, name=None):
    """squeeze() in place."""
    return _in_place("squeeze_", x, squeeze, axis)


def unsqueeze_(x, axis, name=None):
    """unsqueeze() in place."""
    return _in_place("unsqueeze_", x, unsqueeze, axis)


# ---- joining and splitting


def split(x, num_or_sections, axis=0, name=None):
    """Parts of x along `axis`: so many equal ones, or of the sizes of a list, in which
    one may be -1."""
    if isinstance(num_or_sections, int):
        if num_or_sections < 1:
            raise ValueError(
                f"split(): num_or_sections is {num_or_sections}, but must be positive"
            )
        return _ops.split(x, num_or_sections, [], axis)
    if not isinstance(num_or_sections, (list, tuple)):
        raise TypeError(
            "split(): argument 'num_or_sections' must be an int, a list or a tuple, "
            f"but got {type(num_or_sections).__name__}"
        )
    return _ops.split(x, 0, num_or_sections, axis)


def chunk(x, chunks, axis=0, name=None):
    """x in `chunks` equal parts along `axis`."""
    return split(x, chunks, axis)


# ---- copies along dimensions


def expand(x, shape, name=None):
    """x repeated along dimensions of size 1 to `shape`; -1 keeps a dimension."""
    numbers, tensor = shape_argument.split("expand", "shape", shape)
    return _ops.expand_v2(x, tensor, numbers)


def broadcast_to(x, shape, name=None):
    """x repeated along dimensions of size 1 to `shape`; -1 keeps a dimension."""
    return expand(x, shape)


def tile(x, repeat_times, name=None):
    """x repeated as often as `repeat_times` says for each dimension."""
    numbers, tensor = shape_argument.split("tile", "repeat_times", repeat_times)
    return _ops.tile(x, tensor, numbers)


def repeat_interleave(x, repeats, axis=None, name=None):
    """Each slice along `axis` (each element without one) repeated in place."""
    if axis is None:
        x, axis = _ops.flatten_contiguous_range(x, 0, -1), 0
    if isinstance(repeats, Tensor):
        return _ops.repeat_interleave(x, repeats, 1, axis)
    return _ops.repeat_interleave(x, None, repeats, axis)


def rot90(x, k=1, axes=[0, 1], name=None):
    """Turned by k times 90 degrees from the first of `axes` towards the second."""
    _check_tensor("rot90", "x", x)
    rank = x.ndim
    valid = len(axes) == 2 and builtins.all(-rank <= a < rank for a in axes)
    if not valid or axes[0] % rank == axes[1] % rank:
        raise ValueError(
            f"rot90(): axes {list(axes)} must be two different dimensions of a tensor "
            f"of shape {x.shape}"
        )
    a, b = (axis % rank for axis in axes)
    perm = list(range(rank))
    perm[a], perm[b] = b, a
    k %= 4
    if k == 0:
        return _ops.assign(x)
    if k == 2:
        return _ops.flip(x, [a, b])
    if k == 1:
        return _ops.transpose2(_ops.flip(x, [b]), perm)
    return _ops.flip(_ops.transpose2(x, perm), [b])


# ---- slices


def slice(input, axes, starts, ends):
    """Elements starts to ends along each of `axes`, as Python slices."""
    first, first_tensor = shape_argument.split("slice", "starts", starts)
    last, last_tensor = shape_argument.split("slice", "ends", ends)
    return _ops.slice(input, first_tensor, last_tensor, axes, first, last)


def crop(x, shape=None, offsets=None, name=None):
    """The part of size `shape` that begins at `offsets`; -1 goes to the end."""
    _check_tensor("crop", "x", x)
    size, size_tensor = shape_argument.split(
        "crop", "shape", x.shape if shape is None else shape
    )
    begin, begin_tensor = shape_argument.split(
        "crop", "offsets", [0] * x.ndim if offsets is None else offsets
    )
    return _ops.crop_tensor(x, size_tensor, begin_tensor, size, begin)


# ---- by tensors of indices


def scatter_(x, index, updates, overwrite=True, name=None):
    """scatter() in place."""
    return _in_place("scatter_", x, scatter, index, updates, overwrite)


def scatter_nd(index, updates, shape, name=None):
    """Zeros of `shape` with `updates` added at the positions in `index`."""
    _check_tensor("scatter_nd", "updates", updates)
    numbers, tensor = shape_argument.split("scatter_nd", "shape", shape)
    zero = _ops.fill_constant(tensor, None, numbers, 0.0, "", updates.dtype)
    return _ops.scatter_nd_add(zero, index, updates)


def put_along_axis(arr, indices, values, axis, reduce="assign"):
    """arr with `values` put ('assign', 'add' or 'mul') where indices says along
    `axis`."""
    _check_tensor("put_along_axis", "arr", arr)
    operand = to_operand(values, arr.dtype)
    if operand is None:
        _check_tensor("put_along_axis", "values", values)
    return _ops.put_along_axis(
        arr, indices, operand, axis, "mul" if reduce == "multiply" else reduce
    )


# ---- types and facts


def cast(x, dtype):
    """The same values with another element type."""
    _check_tensor("cast", "x", x)
    return _ops.cast(x, x.dtype, convert(dtype))


def increment(x, value=1.0, name=None):
    """Adds `value` to x in place."""
    _check_tensor("increment", "x", x)
    if x.size != 1:
        raise ValueError(
            f"increment(): x must have one element, but its shape is {x.shape}"
        )
    if isinstance(x, Variable):
        x.block.program.current_block().append_op(
            "increment", {"X": x}, {"Out": x}, {"step": float(value)}
        )
        return x
    return _in_place("increment", x, _ops.increment, value)


__all__ = _names.own(globals(), "check_in_place")
