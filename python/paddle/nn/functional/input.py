# SPDX-License-Identifier: Apache-2.0
"""From numbers of things to vectors."""

from ... import _names, _ops
from ..._lib.generated.nn_functional_input import *


def embedding(x, weight, padding_idx=None, sparse=False, name=None):
    """The rows of weight [vocabulary, size] that x names.

    padding_idx: gives zeros and gets no gradient; counts from the end if negative.
    sparse: the gradient of weight holds only the rows that x names.
    """
    if padding_idx is None:
        padding_idx = -1
    else:
        rows = weight.shape[0]
        if not -rows <= padding_idx < rows:
            raise ValueError(
                f"embedding: padding_idx {padding_idx} must lie in [{-rows}, {rows})"
            )
        padding_idx %= rows
    return _ops.lookup_table_v2(weight, x, padding_idx, sparse)


__all__ = _names.own(globals())
