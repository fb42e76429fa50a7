# SPDX-License-Identifier: Apache-2.0
"""Statistics: spread, order, counts."""

from .. import _names, _ops
from .._core import Tensor
from .._lib.generated.tensor_stat import *
from .._lib.generated.tensor_stat import var
from .axis import axes_of


def std(x, axis=None, unbiased=True, keepdim=False, name=None):
    """The square root of var()."""
    return _ops.sqrt(var(x, axis, unbiased, keepdim))


def median(x, axis=None, keepdim=False, name=None):
    """The middle element over `axis`, or of all; the mean of two for an even count."""
    return _ops.quantile(x, [0.5], axes_of("median", axis), keepdim)[0]


def quantile(x, q, axis=None, keepdim=False, name=None):
    """The value below which the fraction `q` of the elements lies, between
    neighbours by proportion. A list of fractions gives results one below the other."""
    if isinstance(q, Tensor):
        q = q.tolist()
    is_list = isinstance(q, (list, tuple))
    fractions = [float(one) for one in (q if is_list else [q])]
    if not fractions:
        raise ValueError("quantile(): q is empty")
    axes = axes_of("quantile", axis)
    return _ops.quantile(x, fractions, axes, keepdim, list=is_list)[0]


__all__ = _names.own(globals())
