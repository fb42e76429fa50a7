# SPDX-License-Identifier: Apache-2.0
"""The `axis` argument of reductions."""

import operator


def axes_of(function, axis):
    """`axis` (None, an int, or several) as the list an op takes; [] means all."""
    if axis is None:
        return []
    if type(axis) is int:
        return [axis]
    items = axis if isinstance(axis, (list, tuple)) else [axis]
    try:
        return [operator.index(item) for item in items]
    except TypeError:
        raise TypeError(
            f"{function}(): axis must be an int or a list of ints, but got {axis!r}"
        ) from None
