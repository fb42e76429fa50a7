# SPDX-License-Identifier: Apache-2.0
"""Functions on tensors, and the same as methods of Tensor.

The package's `_core.Tensor` is what functions take: a Tensor with a value, or a variable
of a program. Users know it by its two kinds, `paddle.Tensor`, which is
`_core.EagerTensor`, and `paddle.static.Variable`.
"""

from .._core import EagerTensor, Tensor
from . import (
    attribute,
    inplace,
    linalg,
    logic,
    manipulation,
    math,
    methods,
    search,
    stat,
)
from .attribute import *
from .creation import *
from .linalg import *
from .logic import *
from .manipulation import *
from .math import *
from .operators import OPERATORS
from .random import *
from .search import *
from .stat import *
from .to_string import set_printoptions


def _attach_methods():
    for module in (math, logic, stat, linalg, attribute, manipulation, search, inplace):
        for name in module.__all__:
            setattr(Tensor, name, getattr(module, name))
    for name in ("bernoulli", "diag", "diagflat", "multinomial", "tril", "triu"):
        setattr(Tensor, name, globals()[name])
    for name, member in {**methods.MEMBERS, **OPERATORS}.items():
        setattr(Tensor, name, member)
    # Python drops it where __eq__ is set.
    Tensor.__hash__ = object.__hash__
    # Its name among users, where others, such as pickle, find it.
    EagerTensor.__name__ = EagerTensor.__qualname__ = "Tensor"
    EagerTensor.__module__ = "paddle"


_attach_methods()
