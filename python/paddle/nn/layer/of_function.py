# SPDX-License-Identifier: Apache-2.0
"""Layers that only call a function."""

from .layers import Layer


class OfFunction(Layer):
    """A layer whose arguments are attributes of the same names."""

    _ARGUMENTS = ()

    def extra_repr(self):
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._ARGUMENTS)
