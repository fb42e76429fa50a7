# SPDX-License-Identifier: Apache-2.0
"""Image transforms, for Pillow images, numpy arrays and Tensors."""

from ... import _names
from . import functional, transforms
from .functional import *
from .transforms import *

__all__ = _names.gathered(globals())
