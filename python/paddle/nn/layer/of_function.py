# SPDX-License-Identifier: Apache-2.0
"""Layers that only call a function."""

from .layers import Layer


class OfFunction(Layer):
    """A layer whose arguments are attributes of the same names."""

    _ARGUMENTS = ()

    def extra_repr(self):
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._ARGUMENTS)


def check_reduction(name, reduction, allowed=("mean", "sum", "none")):
    """ValueError unless `reduction` is one that the loss `name` takes."""
    if reduction not in allowed:
        choices = ", ".join(f"'{a}'" for a in allowed)
        raise ValueError(
            f"{name}: reduction must be one of {choices}, but got {reduction!r}"
        )


class OfLoss(Layer):
    """A loss, whose reduction is looked at when the layer is made."""

    def __init__(self, reduction):
        super().__init__()
        check_reduction(type(self).__name__, reduction)
