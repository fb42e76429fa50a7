# SPDX-License-Identifier: Apache-2.0
"""The `act` argument: the name of an activation."""

from ...nn import functional as _F


def activate(x, act):
    """`x` after the activation called `act`; None leaves it alone."""
    if act is None:
        return x
    function = getattr(_F, act, None) if isinstance(act, str) else None
    if function is None:
        raise ValueError(f"act: there is no activation {act!r}")
    return function(x)
