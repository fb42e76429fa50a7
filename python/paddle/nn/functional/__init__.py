# SPDX-License-Identifier: Apache-2.0
"""Layers as functions: they take their parameters as arguments."""

from ... import _names
from ...tensor.inplace import tanh_
from .activation import *
from .conv import *
from .distance import *
from .dropout import *
from .input import *
from .linear import *
from .loss import *
from .norm import *
from .pooling import *
from .sequence import *
from .vision import *

__all__ = _names.gathered(globals())
