# SPDX-License-Identifier: Apache-2.0
"""Functions that change a tensor where it lies: `x.add_(y)`, `x.zero_()`.

Outside of recording the memory stays and gets new values, which is what parameters
need. When gradients are recorded, x becomes the result of the operation on what it was.
"""

from .. import _core, _names, _ops
from .._core import Tensor, Variable
from .._lib.generated.tensor_inplace import *
from . import math
from .creation import full_like
from .manipulation import cast, check_in_place
from .random import normal, uniform
from .shape_argument import sizes
from .twin import in_place

pow_ = in_place(math.pow, __name__)
scale_ = in_place(math.scale, __name__)
clip_ = in_place(math.clip, __name__)
lerp_ = in_place(math.lerp, __name__)


# ---- values that come from nowhere: the tensor has no history afterwards


def _is_trained(x):
    """Whether the variable x is a parameter of the program that is being built."""
    program = _core.building.main
    return (
        x.is_parameter
        and x.trainable
        and x.block.program is program
        and program is not _core.building.startup
    )


def _overwrite(function, x, make_values):
    if not isinstance(x, Tensor):
        raise TypeError(f"{function}() takes a Tensor, but got {type(x).__name__}")
    if isinstance(x, Variable):
        if _is_trained(x):
            raise TypeError(
                f"{function}(): {x.name} is a parameter of a program and would begin "
                "anew in every run. To begin training with these values, give it an "
                "initializer (weight_attr=paddle.ParamAttr(initializer=...)), or call "
                f"{function}() on the variable of that name in the startup program, "
                "under program_guard of it"
            )
        x._assign_in_place(make_values())
        return x
    check_in_place(function, x)
    before = _core.is_grad_enabled()
    _core.set_grad_enabled(False)
    try:
        x[...] = make_values()
    finally:
        _core.set_grad_enabled(before)
    return x


def fill_(x, value):
    """Sets all elements to `value`."""
    return _overwrite("fill_", x, lambda: full_like(x, value))


def zero_(x):
    """Sets all elements to zero."""
    return _overwrite("zero_", x, lambda: full_like(x, 0))


def fill_diagonal_(x, value, offset=0, wrap=False, name=None):
    """Sets the diagonal of a matrix to `value`; with `wrap`, it begins again below
    the square part of a tall matrix."""
    if x.ndim != 2:
        raise ValueError(
            f"fill_diagonal_(): x must be a matrix, but its shape is {x.shape}"
        )
    rows, columns = x.shape
    places = []
    for row in range(rows):
        column = row + offset
        if wrap and offset == 0:
            column = row % (columns + 1)
        if 0 <= column < columns:
            places.append((row, column))
    if not places:
        return x
    row, column = (list(part) for part in zip(*places))
    x[row, column] = value
    return x


def uniform_(x, min=-1.0, max=1.0, seed=0, name=None):
    """Draws all elements evenly from [min, max)."""
    return _overwrite("uniform_", x, lambda: uniform(sizes(x), x.dtype, min, max, seed))


def normal_(x, mean=0.0, std=1.0, name=None):
    """Draws all elements from a normal distribution."""
    return _overwrite("normal_", x, lambda: cast(normal(mean, std, sizes(x)), x.dtype))


def exponential_(x, lam=1.0, name=None):
    """Draws all elements from an exponential distribution with rate `lam`."""

    def values():
        even = uniform(sizes(x), x.dtype, 0.0, 1.0)
        return _ops.log1p(-even) * (-1.0 / lam)

    return _overwrite("exponential_", x, values)


__all__ = _names.own(globals())
