# SPDX-License-Identifier: Apache-2.0
"""The names of the old C++ module, which paddle.core has too."""

from .. import core as _core
from ..core import *  # noqa: F403

__all__ = _core.__all__


def __getattr__(name):
    return _core.__getattr__(name)
