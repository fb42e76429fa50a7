# SPDX-License-Identifier: Apache-2.0
"""Initializers without chance."""

import numpy as np

from ... import _core, _ops
from .initializer import Initializer


class Constant(Initializer):
    """Every element is `value`."""

    def __init__(self, value=0.0):
        if not isinstance(value, (int, float)):
            raise TypeError(
                f"Constant: value must be a number, but got {type(value).__name__}"
            )
        self._constant = value

    def _value(self, shape, dtype):
        return _ops.fill_constant(shape=shape, value=self._constant, dtype=dtype)


class Assign(Initializer):
    """The values of an array, a list or a Tensor."""

    _computed = True

    def __init__(self, value, name=None):
        if not isinstance(value, (np.ndarray, list, tuple, _core.Tensor)):
            raise TypeError(
                "Assign: value must be an array, a list or a Tensor, but got "
                f"{type(value).__name__}"
            )
        from ...static.variable import known_value

        self._source = known_value(value)

    def _value(self, shape, dtype):
        value = _core.from_object(self._source)
        if value.shape != list(shape):
            raise ValueError(
                f"Assign: the value has shape {value.shape}, but the parameter has "
                f"{list(shape)}"
            )
        value._move(_core.get_device(), dtype)
        return value


class _FromArray(Initializer):
    """Values worked out by numpy in `_array(shape)`."""

    _computed = True

    def _value(self, shape, dtype):
        return Assign(self._array(list(shape)))._value(shape, dtype)


class Bilinear(_FromArray):
    """For a transposed convolution that enlarges an image bilinearly."""

    def __init__(self, name=None):
        pass

    def _array(self, shape):
        if len(shape) != 4 or shape[2] != shape[3]:
            raise ValueError(
                f"Bilinear: the weight must have shape [C, N, K, K], but has {shape}"
            )
        size = shape[3]
        factor = np.ceil(size / 2.0)
        center = (2 * factor - 1 - factor % 2) / (2.0 * factor)
        line = 1 - np.abs(np.arange(size) / factor - center)
        return np.broadcast_to(np.outer(line, line), shape).astype("float32")


class Dirac(_FromArray):
    """For a convolution that at first passes its input on unchanged."""

    def __init__(self, groups=1, name=None):
        if not isinstance(groups, int) or groups <= 0:
            raise ValueError(f"Dirac: groups must be positive, but got {groups!r}")
        self._groups = groups

    def _array(self, shape):
        if len(shape) not in (3, 4, 5):
            raise ValueError(
                f"Dirac: the weight must have 3, 4 or 5 dimensions, not {shape}"
            )
        if shape[0] % self._groups != 0:
            raise ValueError(
                f"Dirac: {shape[0]} output channels cannot be split into "
                f"{self._groups} groups"
            )
        value = np.zeros(shape, "float32")
        per_group = shape[0] // self._groups
        center = tuple(n // 2 for n in shape[2:])
        for group in range(self._groups):
            for i in range(min(per_group, shape[1])):
                value[(group * per_group + i, i) + center] = 1.0
        return value
