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
from .attribute import *  # noqa: F403
from .creation import *  # noqa: F403
from .linalg import *  # noqa: F403
from .logic import *  # noqa: F403
from .manipulation import *  # noqa: F403
from .math import *  # noqa: F403
from .operators import OPERATORS
from .random import *  # noqa: F403
from .search import *  # noqa: F403
from .stat import *  # noqa: F403
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
