# SPDX-License-Identifier: Apache-2.0
"""Functions that compute a tensor anew, as ones that change it where it lies."""

import functools

from .. import _core, _ops
from .._core import Variable
from .manipulation import cast, check_in_place


def _become(name, x, result):
    """Gives x the value `result`, and returns x."""
    if result.shape != x.shape:
        raise ValueError(
            f"{name}(): the result has shape {result.shape}, but x has {x.shape} "
            "and cannot grow in place"
        )
    if result.dtype is not x.dtype:
        result = cast(result, x.dtype)
    if isinstance(x, Variable):
        x._assign_in_place(result)
        return x
    if _core.is_grad_enabled() and not (x.stop_gradient and result.stop_gradient):
        check_in_place(name, x)
        x._assign_in_place(result)
    else:
        x[...] = result
    return x


def change(name, function, x, *args, **kwargs):
    """Gives x the value of `function(x, ...)`, on behalf of the function `name`, and
    returns x."""
    if not isinstance(x, Variable):
        return _become(name, x, function(x, *args, **kwargs))
    # A copy of a variable: gradients need what it was before.
    before = _ops.assign(x)
    args = [before if arg is x else arg for arg in args]
    return _become(name, x, function(before, *args, **kwargs))


def in_place(function, module):
    """`function` as one that changes its first argument, with a `_` to its name, of
    the module of that name."""
    name = function.__name__ + "_"

    @functools.wraps(function)
    def twin(x, *args, **kwargs):
        return change(name, function, x, *args, **kwargs)

    twin.__module__ = module
    twin.__name__ = twin.__qualname__ = name
    twin.__doc__ = f"As {function.__name__}(), in place."
    return twin
