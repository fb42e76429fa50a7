# SPDX-License-Identifier: Apache-2.0
"""Sizes and margins as the transforms take them. Sizes are (height, width)."""

import numbers


def pair(size, what):
    """(height, width) from one number or two."""
    if isinstance(size, numbers.Integral):
        size = (size, size)
    if len(size) != 2 or min(size) <= 0:
        raise ValueError(f"{what}: size must be one or two positive numbers: {size}")
    return int(size[0]), int(size[1])


def fitted_size(current, size):
    """The size to scale to: `size`, or where it is one number, the size whose
    shorter edge that is, with the proportions of `current`."""
    if not isinstance(size, numbers.Integral):
        return pair(size, "resize")
    height, width = current
    if size <= 0:
        raise ValueError(f"resize: size must be positive: {size}")
    if height <= width:
        return int(size), int(size * width / height)
    return int(size * height / width), int(size)


def four_sides(padding):
    """(left, top, right, bottom) from one number, two (left and right, top and
    bottom), or four."""
    if isinstance(padding, numbers.Integral):
        padding = (padding,) * 4
    elif isinstance(padding, (list, tuple)) and len(padding) == 2:
        padding = tuple(padding) * 2
    if not isinstance(padding, (list, tuple)) or len(padding) != 4:
        raise ValueError(f"pad: padding must be one, two or four numbers: {padding}")
    return tuple(int(side) for side in padding)
