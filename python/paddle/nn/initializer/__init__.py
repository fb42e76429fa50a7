# SPDX-License-Identifier: Apache-2.0
"""How a parameter gets its first values.

An initializer is called on a parameter and fills it in place. Random ones draw from
the generator that `paddle.seed` sets.
"""

from ... import _names
from .fixed import Assign, Bilinear, Constant, Dirac
from .initializer import Initializer, choose, set_global_initializer
from .random import (
    KaimingNormal,
    KaimingUniform,
    Normal,
    Orthogonal,
    TruncatedNormal,
    Uniform,
    XavierNormal,
    XavierUniform,
    calculate_gain,
)

__all__ = _names.gathered(globals())
