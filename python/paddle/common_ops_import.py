# SPDX-License-Identifier: Apache-2.0
"""What modules of ops used to import together; scripts take `core` from it."""

from . import _names, core
from ._core import Tensor as Variable
from .framework.mode import in_dynamic_mode as in_dygraph_mode
from .framework.param_attr import ParamAttr
from .utils import unique_name

__all__ = _names.gathered(globals(), "core unique_name")
