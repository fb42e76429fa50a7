# SPDX-License-Identifier: Apache-2.0
"""Comparison, and the logic of booleans and bits."""

from .. import _names
from .._core import DType, Tensor
from .._lib.generated.tensor_logic import *
from .creation import full


def is_empty(x, name=None):
    """Whether x has no elements, as a boolean tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"is_empty() takes a Tensor, but got {type(x).__name__}")
    return full([1], x.size == 0, DType.bool)


__all__ = _names.own(globals())
