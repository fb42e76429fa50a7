# SPDX-License-Identifier: Apache-2.0
"""Functions on tensors, and the same as methods of Tensor."""

import importlib
import importlib.util

from .._core import Tensor
from . import attribute, math, methods
from .attribute import *  # noqa: F403
from .math import *  # noqa: F403
from .operators import OPERATORS
from .to_string import set_printoptions

_METHOD_MODULES = [math, attribute]
for _name in ("manipulation", "search"):
    if importlib.util.find_spec("." + _name, __name__):
        _METHOD_MODULES.append(importlib.import_module("." + _name, __name__))

for _module in _METHOD_MODULES:
    for _name in _module.__all__:
        setattr(Tensor, _name, getattr(_module, _name))
for _name, _member in {**methods.MEMBERS, **OPERATORS}.items():
    setattr(Tensor, _name, _member)
Tensor.__hash__ = object.__hash__
