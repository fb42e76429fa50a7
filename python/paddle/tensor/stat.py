# SPDX-License-Identifier: Apache-2.0
"""Statistics: spread, order, counts."""

from .. import _names, _ops
from .._core import Tensor
from .axis import axes_of


def var(x, axis=None, unbiased=True, keepdim=False, name=None):
    """The variance over `axis`, or of all elements; divided by n - 1 if `unbiased`."""
    return _ops.var(x, axes_of("var", axis), keepdim, unbiased=unbiased)


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


def histogram(input, bins=100, min=0, max=0, name=None):
    """How many elements lie in each of `bins` equal intervals from `min` to `max`;
    both 0: from the smallest to the largest element."""
    return _ops.histogram(input, bins, min, max)


def bincount(x, weights=None, minlength=0, name=None):
    """How often each integer from 0 on occurs, or the sum of its weights."""
    return _ops.bincount(x, weights, minlength)


__all__ = _names.own(globals())
