# SPDX-License-Identifier: Apache-2.0
from ..nn import functional as _F
from ..static.nn import embedding


def one_hot(input, depth, allow_out_of_range=False):
    """One number for each class in a further dimension: [N, depth] for [N]."""
    if allow_out_of_range:
        raise ValueError("one_hot: allow_out_of_range is not supported")
    return _F.one_hot(input, depth)
