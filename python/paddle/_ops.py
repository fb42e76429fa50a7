# SPDX-License-Identifier: Apache-2.0
"""Every op of the engine as a function: `_ops.tanh(x)`.

The functions come from the definitions in fleet/program; there is no list of them
here. An op takes its inputs in slot order, then its attributes, by position or by
name.
"""

from ._core import ops as _table


def __getattr__(name):
    try:
        return _table[name]
    except KeyError:
        raise AttributeError(f"paddle has no op '{name}'") from None


globals().update(_table)
